//! A blocking HTTP client that sends any bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(": ")?;
            own.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What the server says to these bytes until it closes the connection.
pub(crate) fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // A server that has closed already has said why.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    // A connection that is reset has ended, too.
    let _ = stream.read_to_end(&mut said);
    said
}

pub(crate) fn request(address: SocketAddr, method: &str, path: &str) -> Answer {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let said = String::from_utf8(send(address, request.as_bytes())).expect("text");
    let (head, body) = said.split_once("\r\n\r\n").expect("an empty line");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        status: status.expect("a status"),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path)
}
