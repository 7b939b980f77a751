//! Sockets: makes listeners; reads and writes of connections.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener};

use reactor::Network;
use socket2::{Domain, Protocol, Socket, Type};

/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Makes `count` listeners on one address, one for each thread that serves it: the system spreads
/// connections over them. With port 0 the first one chooses the port.
///
/// # Errors
/// Returns an error if the address is not available, for example because another program listens
/// there.
pub fn listen(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    // Listeners that share a port would also share it with those of another program of the same
    // user, which would get a part of the connections. A socket that does not share reveals this.
    let alone = reactor::bind_when_free(|| {
        let alone = socket(address)?;
        alone.bind(&address.into())?;
        Ok(alone)
    })?;
    if count <= 1 {
        alone.listen(BACKLOG)?;
        return Ok(vec![alone.into()]);
    }
    drop(alone);
    let mut address = address;
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(count);
    for _ in 0..count {
        let shared = socket(address)?;
        shared.set_reuse_port(true)?;
        shared.bind(&address.into())?;
        shared.listen(BACKLOG)?;
        let listener = TcpListener::from(shared);
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // Lingering connections of an earlier process are no obstacle.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The socket of a connection, together with the network that it belongs to. It is not there as long as the connection
/// is not begun.
pub(super) struct LinkSocket<'a, N: Network> {
    pub(super) network: &'a mut N,
    pub(super) stream: &'a mut Option<N::Stream>,
}

impl<N: Network> Read for LinkSocket<'_, N> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.stream {
            Some(stream) => self.network.read(stream, into),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl<N: Network> Write for LinkSocket<'_, N> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.stream {
            Some(stream) => self.network.write(stream, pieces),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shared_by_threads_and_not_with_others() {
        let any = "127.0.0.1:0".parse().unwrap();
        let listeners = listen(any, 3).unwrap();
        let address = listeners[0].local_addr().unwrap();
        for listener in &listeners {
            assert_eq!(listener.local_addr().unwrap(), address);
        }
        for count in [1, 2] {
            let error = listen(address, count).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
        drop(listeners);
        assert_eq!(listen(address, 1).unwrap().len(), 1);
    }
}
