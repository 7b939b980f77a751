//! A blocking HTTP client that sends any bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time that an answer may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A response, split into its parts.
#[derive(Debug)]
pub struct Response {
    /// The number in the first line.
    pub status: u16,
    /// The first line and the headers.
    pub head: String,
    /// The part behind the empty line.
    pub body: String,
}

impl Response {
    /// Returns the value of a header.
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
/// Panics if no process listens at `address`.
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends these bytes, and returns the server's answer up to the end of the connection.
///
/// # Panics
/// Panics in the same cases as [`connect`].
#[must_use]
pub fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    send_over(connect(address), bytes)
}

fn send_over(mut stream: impl Read + Write, bytes: &[u8]) -> Vec<u8> {
    // A server that has closed already has sent the reason.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    // A connection that is reset has ended, too.
    let _ = stream.read_to_end(&mut said);
    said
}

/// Sends a request without a body, and returns the response.
///
/// # Panics
/// Panics if it is not HTTP.
#[must_use]
pub fn request(address: SocketAddr, method: &str, path: &str) -> Response {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    respond(address, request.as_bytes())
}

/// Sends a `GET`, and returns the response.
///
/// # Panics
/// Panics in the same cases as [`request`].
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> Response {
    request(address, "GET", path)
}

/// Sends a `GET` over a stream, and returns the response; `None` if the server sends none.
#[must_use]
pub fn get_over(stream: impl Read + Write, path: &str) -> Option<Response> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    parse(send_over(stream, request.as_bytes()))
}

/// Sends a request with these lines of headers, each with its end, and a body. Returns the
/// response.
///
/// # Panics
/// Panics in the same cases as [`request`].
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
    parse(send(address, request)).expect("a response")
}

fn parse(said: Vec<u8>) -> Option<Response> {
    let said = String::from_utf8(said).ok()?;
    let (head, body) = said.split_once("\r\n\r\n")?;
    Some(Response {
        status: head.split(' ').nth(1)?.parse().ok()?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
