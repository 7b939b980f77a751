//! Requests and answers of clients that are another process.
//!
//! | bytes | request | answer |
//! |---|---|---|
//! | 4, little-endian | the number of those that follow | the same |
//! | 1 | – | 0: replies; 1: a text that says why there are none |
//! | rest | operations, as nodes encode them | replies, as nodes encode them, or the text |

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Bytes of the greatest frame.
const MOST: usize = 64 << 20;

/// A connection that carries frames.
pub(super) struct FrameConnection {
    stream: BufReader<TcpStream>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl FrameConnection {
    pub(super) fn new(stream: TcpStream) -> io::Result<FrameConnection> {
        stream.set_nodelay(true)?;
        Ok(FrameConnection {
            stream: BufReader::new(stream),
            input: Vec::new(),
            output: Vec::new(),
        })
    }

    /// Returns the next frame; `None` at the end of the stream.
    pub(super) async fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let len = match self.stream.read_u32_le().await {
            Ok(len) => len as usize,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        if len > MOST {
            return Err(io::Error::other(format!("a frame of {len} bytes")));
        }
        self.input.resize(len, 0);
        self.stream.read_exact(&mut self.input).await?;
        Ok(Some(&self.input))
    }

    /// Sends the frame that `write` appends.
    pub(super) async fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.output.clear();
        self.output.extend_from_slice(&[0; 4]);
        write(&mut self.output);
        let len = (self.output.len() - 4) as u32;
        self.output[..4].copy_from_slice(&len.to_le_bytes());
        self.stream.write_all(&self.output).await
    }
}
