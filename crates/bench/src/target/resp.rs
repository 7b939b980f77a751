//! Kumiki's protocol, RESP: a client has a connection, and one request under way.

use std::net::SocketAddr;

use ::resp::command::write_command;
use ::resp::reply::{ReplyParser, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection.
pub(super) struct Resp {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Resp {
    pub(super) async fn connect(at: SocketAddr) -> Result<Resp, String> {
        let stream = TcpStream::connect(at).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let nodelay = stream.set_nodelay(true);
        nodelay.map_err(|error| error.to_string())?;
        Ok(Resp {
            stream,
            out: Vec::new(),
            input: Vec::new(),
        })
    }

    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match self.call(&[b"SET", key, value]).await? {
            Value::Status(text) if text == b"OK" => Ok(()),
            other => Err(strange(&other)),
        }
    }

    pub(super) async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match self.call(&[b"GET", key]).await? {
            Value::Bulk(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            other => Err(strange(&other)),
        }
    }

    /// One request and its reply.
    async fn call(&mut self, arguments: &[&[u8]]) -> Result<Value, String> {
        self.out.clear();
        write_command(&mut self.out, arguments);
        let sent = self.stream.write_all(&self.out).await;
        sent.map_err(|error| error.to_string())?;
        let mut parser = ReplyParser::new();
        self.input.clear();
        loop {
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the server has closed the connection".to_owned());
            }
            let end = parser.parse(&self.input);
            if let Some(end) = end.map_err(|error| error.to_string())? {
                let value = Value::decode(&self.input[..end]);
                return value.map_err(|error| error.to_string());
            }
        }
    }
}

fn strange(value: &Value) -> String {
    match value {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("a strange answer: {other:?}"),
    }
}
