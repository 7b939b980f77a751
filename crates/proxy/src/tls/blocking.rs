//! A blocking connection, for the few requests that the proxy sends to nodes besides its clients'
//! requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use super::NodeTls;

/// See the module documentation.
pub(crate) enum Blocking {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Blocking {
    /// Connects. This, and each read and write, takes at most `patience`.
    ///
    /// # Errors
    /// Returns the system's error, or the reason why the node cannot be trusted.
    pub(crate) fn connect(
        address: SocketAddr,
        tls: Option<&NodeTls>,
        patience: Duration,
    ) -> io::Result<Blocking> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(match tls {
            None => Blocking::Plain(stream),
            Some(nodes) => Blocking::Encrypted(Box::new(nodes.encrypt(stream, address)?)),
        })
    }

    /// Sets how long a read may take from now on.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn set_read_timeout(&self, patience: Duration) -> io::Result<()> {
        let socket = match self {
            Blocking::Plain(stream) => stream,
            Blocking::Encrypted(stream) => &stream.sock,
        };
        socket.set_read_timeout(Some(patience))
    }
}

impl Read for Blocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Blocking::Plain(stream) => stream.read(into),
            Blocking::Encrypted(stream) => stream.read(into),
        }
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Blocking::Plain(stream) => stream.write(bytes),
            Blocking::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Blocking::Plain(stream) => stream.flush(),
            Blocking::Encrypted(stream) => stream.flush(),
        }
    }
}
