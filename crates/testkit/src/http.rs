//! A blocking HTTP client that sends any bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A response, taken apart.
#[derive(Debug)]
pub struct Response {
    /// The number in the first line.
    pub status: u16,
    /// The first line and the headers.
    pub head: String,
    /// What follows the empty line.
    pub body: String,
}

impl Response {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(": ")?;
            own.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// Connects, with limits of time.
///
/// # Panics
/// If no process listens at `address`.
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What the server says to these bytes until it closes the connection.
///
/// # Panics
/// As [`connect`].
#[must_use]
pub fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // A server that has closed already has said why.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    // A connection that is reset has ended, too.
    let _ = stream.read_to_end(&mut said);
    said
}

/// The response to a request without a body.
///
/// # Panics
/// If it is not HTTP.
#[must_use]
pub fn request(address: SocketAddr, method: &str, path: &str) -> Response {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    respond(address, request.as_bytes())
}

/// The response to `GET`.
///
/// # Panics
/// As [`request`].
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> Response {
    request(address, "GET", path)
}

/// The response to a request with these lines of headers, each with its end, and a body.
///
/// # Panics
/// As [`request`].
#[must_use]
pub fn request_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Response {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n\
         {body}"
    );
    respond(address, request.as_bytes())
}

fn respond(address: SocketAddr, request: &[u8]) -> Response {
    let said = String::from_utf8(send(address, request)).expect("text");
    let (head, body) = said.split_once("\r\n\r\n").expect("an empty line");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Response {
        status: status.expect("a status"),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}
