//! etcd's own protocol, gRPC: a request of HTTP/2 for each call, whose body is a message with its
//! length before it. Each client has a connection.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Method, Request, Response};
use tokio::net::TcpStream;

use super::proto;
use crate::error::RunError;

/// Bytes before a message: a byte that says that it is not compressed, and its length.
const PREFIX: usize = 5;

/// A connection.
pub(super) struct EtcdConnection {
    sender: SendRequest<Bytes>,
    /// The URI that requests have in common.
    at: SocketAddr,
}

/// A member's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EtcdStatus {
    pub(super) version: String,
    pub(super) member: u64,
    /// Zero: it knows none.
    pub(super) leader: u64,
}

fn failed(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl EtcdConnection {
    /// Connects, within a runtime that continues to serve the connection.
    pub(super) async fn connect(at: SocketAddr) -> Result<EtcdConnection, RunError> {
        let stream = TcpStream::connect(at).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (sender, connection) = h2::client::handshake(stream).await.map_err(failed)?;
        // It ends with the connection; callers get the reason.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(EtcdConnection { sender, at })
    }

    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        let mut message = Vec::with_capacity(key.len() + value.len() + 16);
        message.resize(PREFIX, 0);
        proto::put_bytes(&mut message, 1, key);
        proto::put_bytes(&mut message, 2, value);
        self.call("/etcdserverpb.KV/Put", message).await.map(drop)
    }

    pub(super) async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, RunError> {
        let mut message = vec![0; PREFIX];
        proto::put_bytes(&mut message, 1, key);
        let reply = self.call("/etcdserverpb.KV/Range", message).await?;
        let Some(pair) = proto::bytes(&reply, 2) else {
            return Ok(None);
        };
        Ok(Some(proto::bytes(pair, 5).unwrap_or_default().to_vec()))
    }

    pub(super) async fn status(&mut self) -> Result<EtcdStatus, RunError> {
        let message = vec![0; PREFIX];
        let reply = self.call("/etcdserverpb.Maintenance/Status", message);
        let reply = reply.await?;
        let header = proto::bytes(&reply, 1).ok_or("etcd's answer has no header")?;
        let version = proto::bytes(&reply, 2).unwrap_or_default();
        Ok(EtcdStatus {
            version: String::from_utf8_lossy(version).into_owned(),
            member: proto::number(header, 2),
            leader: proto::number(&reply, 4),
        })
    }

    /// Calls a method with a message that has room for its prefix.
    async fn call(&mut self, method: &str, mut message: Vec<u8>) -> Result<Vec<u8>, RunError> {
        let length = (message.len() - PREFIX) as u32;
        message[1..PREFIX].copy_from_slice(&length.to_be_bytes());
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}{method}", self.at))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(failed)?;
        let mut sender = self.sender.clone().ready().await.map_err(failed)?;
        let (reply, mut body) = sender.send_request(request, false).map_err(failed)?;
        body.send_data(Bytes::from(message), true).map_err(failed)?;
        answer(reply.await.map_err(failed)?).await
    }
}

/// Returns the message of a successful answer.
async fn answer(reply: Response<RecvStream>) -> Result<Vec<u8>, RunError> {
    let (head, mut body) = reply.into_parts();
    let mut message = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(failed)?;
        message.extend_from_slice(&piece);
        let window = body.flow_control();
        window.release_capacity(piece.len()).map_err(failed)?;
    }
    // An answer without a message has its status among the headers.
    let trailers = body.trailers().await.map_err(failed)?;
    let status = trailers.as_ref().unwrap_or(&head.headers);
    let text = |name: &str| status.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => {}
        status => {
            let (status, why) = (status.unwrap_or("none"), text("grpc-message"));
            let why = why.unwrap_or_default();
            return Err(RunError::Failed(format!(
                "etcd answers with status {status}: {why}"
            )));
        }
    }
    let length = message.get(1..PREFIX).and_then(|b| b.try_into().ok());
    let length = length.map_or(0, u32::from_be_bytes) as usize;
    match message.len() == PREFIX + length && message[0] == 0 {
        true => Ok(message.split_off(PREFIX)),
        false => Err(RunError::Failed(
            "etcd's answer is not one message".to_owned(),
        )),
    }
}
