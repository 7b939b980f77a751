//! A blocking client that sees every byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use resp::command::write_command;
use resp::{ReplyParser, Value};

/// How long a reply may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
    parser: ReplyParser,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).expect("connect")
    }

    /// The same where nobody may listen.
    pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Ok(Client {
            stream,
            buffer: Vec::new(),
            parser: ReplyParser::new(),
        })
    }

    pub(crate) fn send(&mut self, args: &[&str]) {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let mut bytes = Vec::new();
        write_command(&mut bytes, &args);
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("send");
    }

    pub(crate) fn end(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next reply; `None` when the connection has ended.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.parser.parse(&self.buffer).expect("RESP") {
                let value = Value::decode(&self.buffer[..end]).expect("RESP");
                self.buffer.drain(..end);
                return Some(value);
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    pub(crate) fn reply(&mut self) -> Value {
        self.next().expect("a reply before the connection ends")
    }

    pub(crate) fn call(&mut self, args: &[&str]) -> Value {
        self.send(args);
        self.reply()
    }

    /// As [`Client::call`]; `None` when the connection ends, maybe before the command was sent.
    pub(crate) fn try_call(&mut self, args: &[&str]) -> Option<Value> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let mut bytes = Vec::new();
        write_command(&mut bytes, &args);
        self.stream.write_all(&bytes).ok()?;
        self.next()
    }

    /// Whether no reply comes for a while.
    pub(crate) fn is_silent(&mut self, time: Duration) -> bool {
        assert!(self.buffer.is_empty(), "replies are left");
        self.stream.set_read_timeout(Some(time)).unwrap();
        let mut byte = [0];
        let outcome = self.stream.peek(&mut byte);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!(outcome, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.next().is_none()
    }
}

pub(crate) fn ok() -> Value {
    status("OK")
}

pub(crate) fn status(text: &str) -> Value {
    Value::Status(text.as_bytes().to_vec())
}

pub(crate) fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

pub(crate) fn int(number: i64) -> Value {
    Value::Int(number)
}

/// The text of an error reply.
pub(crate) fn error(value: &Value) -> &str {
    match value {
        Value::Error(text) => std::str::from_utf8(text).unwrap(),
        other => panic!("{other:?} is no error"),
    }
}
