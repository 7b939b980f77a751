//! A blocking connection, encrypted or not, for the few requests that need no event loop.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use super::certificates::ClientTls;

/// See the module.
pub enum BlockingStream {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted.
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl BlockingStream {
    /// Connects. This, and each read and write, takes at most `timeout`.
    ///
    /// # Errors
    /// Returns the system's error, or the reason why the node cannot be trusted.
    pub fn connect(
        address: SocketAddr,
        tls: Option<&ClientTls>,
        timeout: Duration,
    ) -> io::Result<BlockingStream> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Ok(match tls {
            None => BlockingStream::Plain(stream),
            Some(client) => BlockingStream::Encrypted(Box::new(client.encrypt(stream, address)?)),
        })
    }

    /// Sets how long a read, and a write, may take from now on.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let socket = match self {
            BlockingStream::Plain(stream) => stream,
            BlockingStream::Encrypted(stream) => &stream.sock,
        };
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))
    }
}

impl Read for BlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            BlockingStream::Plain(stream) => stream.read(into),
            BlockingStream::Encrypted(stream) => stream.read(into),
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            BlockingStream::Plain(stream) => stream.write(bytes),
            BlockingStream::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            BlockingStream::Plain(stream) => stream.flush(),
            BlockingStream::Encrypted(stream) => stream.flush(),
        }
    }
}
