//! Kumiki's protocol, RESP: a client has a connection, and one request under way.

use crate::error::RunError;
use std::net::SocketAddr;

use ::resp::command::write_command;
use ::resp::reply::{ReplyParser, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection.
pub(crate) struct RespConnection {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl RespConnection {
    pub(crate) async fn connect(at: SocketAddr) -> Result<RespConnection, RunError> {
        let stream = TcpStream::connect(at).await;
        let stream = stream.map_err(RunError::of)?;
        let nodelay = stream.set_nodelay(true);
        nodelay.map_err(RunError::of)?;
        Ok(RespConnection {
            stream,
            out: Vec::new(),
            input: Vec::new(),
        })
    }

    pub(crate) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        match self.call(&[b"SET", key, value]).await? {
            Value::Status(text) if text == b"OK" => Ok(()),
            other => Err(strange(&other)),
        }
    }

    pub(crate) async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, RunError> {
        match self.call(&[b"GET", key]).await? {
            Value::Bulk(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            other => Err(strange(&other)),
        }
    }

    /// Returns the values of several keys, all of one moment.
    pub(crate) async fn mget(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, RunError> {
        self.send_mget(keys).await?;
        self.receive_mget().await
    }

    /// Requests them, without waiting for the answer.
    pub(crate) async fn send_mget(&mut self, keys: &[&[u8]]) -> Result<(), RunError> {
        let mut arguments: Vec<&[u8]> = vec![b"MGET"];
        arguments.extend(keys);
        self.send(&arguments).await
    }

    /// Waits for the answer.
    pub(crate) async fn receive_mget(&mut self) -> Result<Vec<Option<Vec<u8>>>, RunError> {
        let value = |value| match value {
            Value::Bulk(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            other => Err(strange(&other)),
        };
        match self.receive().await? {
            Value::Array(values) => values.into_iter().map(value).collect(),
            other => Err(strange(&other)),
        }
    }

    /// Sends one request and returns its reply.
    async fn call(&mut self, arguments: &[&[u8]]) -> Result<Value, RunError> {
        self.send(arguments).await?;
        self.receive().await
    }

    async fn send(&mut self, arguments: &[&[u8]]) -> Result<(), RunError> {
        self.out.clear();
        write_command(&mut self.out, arguments);
        let sent = self.stream.write_all(&self.out).await;
        sent.map_err(RunError::of)
    }

    /// Returns the reply to the one request that is under way.
    async fn receive(&mut self) -> Result<Value, RunError> {
        let mut parser = ReplyParser::new();
        self.input.clear();
        loop {
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(RunError::of)? == 0 {
                return Err(RunError::Failed(
                    "the server has closed the connection".to_owned(),
                ));
            }
            let end = parser.parse(&self.input);
            if let Some(end) = end.map_err(RunError::of)? {
                let value = Value::decode(&self.input[..end]);
                return value.map_err(RunError::of);
            }
        }
    }
}

fn strange(value: &Value) -> RunError {
    match value {
        Value::Error(text) => RunError::of(String::from_utf8_lossy(text)),
        other => RunError::Failed(format!("a strange answer: {other:?}")),
    }
}
