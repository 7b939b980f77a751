//! A blocking connection to a node for a few requests of the proxy's own, one after another.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use resp::ReplyParser;
use resp::command::write_command;

use super::wire::Options;
use crate::error::ProxyError;
use reactor::tls::BlockingStream;

/// How long one node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module documentation.
pub(super) struct RedisControlConnection {
    stream: BlockingStream,
    input: BytesMut,
}

impl RedisControlConnection {
    /// Connects, and authenticates as the proxy.
    ///
    /// # Errors
    /// Returns the fault of the node.
    pub(super) fn connect(
        address: SocketAddr,
        options: &Options,
    ) -> Result<RedisControlConnection, ProxyError> {
        let failed =
            |error: std::io::Error| ProxyError::unavailable(format!("cannot be reached ({error})"));
        let stream =
            BlockingStream::connect(address, options.tls.as_deref(), PATIENCE).map_err(failed)?;
        let input = BytesMut::new();
        let mut asked = RedisControlConnection { stream, input };
        if let Some(password) = &options.password {
            let mut request: Vec<&[u8]> = vec![b"AUTH"];
            request.extend(options.user.as_deref().map(str::as_bytes));
            request.push(password.as_bytes());
            let reply = asked.ask(&request)?;
            if let [b'-', text @ ..] = &reply[..] {
                let text = String::from_utf8_lossy(text);
                return Err(ProxyError::refused(format!(
                    "refuses the proxy: {}",
                    text.trim_end()
                )));
            }
        }
        Ok(asked)
    }

    /// Sends one request, and returns its reply.
    ///
    /// # Errors
    /// Returns an error if the node does not answer, or not in RESP.
    pub(super) fn ask(&mut self, request: &[&[u8]]) -> Result<Bytes, ProxyError> {
        let failed =
            |error: std::io::Error| ProxyError::unavailable(format!("does not answer ({error})"));
        let mut out = Vec::new();
        write_command(&mut out, request);
        self.stream.write_all(&out).map_err(failed)?;
        let mut parser = ReplyParser::new();
        let mut piece = vec![0; 16 * 1024];
        loop {
            match parser.parse(&self.input) {
                Ok(Some(end)) => return Ok(self.input.split_to(end).freeze()),
                Ok(None) => {}
                Err(error) => {
                    return Err(ProxyError::malformed(format!(
                        "does not speak RESP: {error}"
                    )));
                }
            }
            match self.stream.read(&mut piece).map_err(failed)? {
                0 => return Err(ProxyError::unavailable("closes the connection")),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }
}
