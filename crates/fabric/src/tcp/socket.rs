//! Sockets: makes listeners, and sets up connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

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
    let alone = socket(address)?;
    alone.bind(&address.into())?;
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

/// Sets a connection up: output is sent without delay, and a peer that has vanished is noticed,
/// with data in transit (by the time-out for acknowledgements) or without (by probes).
pub(super) fn tune(socket: SockRef<'_>, dead_after: Duration) -> io::Result<()> {
    let second = Duration::from_secs(1);
    let dead_after = dead_after.max(second);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(dead_after))?;
    // The system counts these in seconds.
    let probes = TcpKeepalive::new()
        .with_time((dead_after / 2).max(second))
        .with_interval((dead_after / 10).max(second));
    socket.set_tcp_keepalive(&probes)
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

    #[test]
    fn a_connection_notices_a_machine_that_vanished() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = listener[0].local_addr().unwrap();
        let stream = std::net::TcpStream::connect(address).unwrap();
        let socket = SockRef::from(&stream);
        tune(SockRef::from(&stream), Duration::from_secs(20)).unwrap();
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        let limit = socket.tcp_user_timeout().unwrap();
        assert_eq!(limit, Some(Duration::from_secs(20)));
        assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), 10);
        assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), 2);
    }
}
