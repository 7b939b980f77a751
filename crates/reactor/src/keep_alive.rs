//! The settings by which the system notices that a silent peer is gone.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// How long a client's connection is idle before the system asks if the client is still there.
pub(crate) const CLIENT_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Lets the system notice within about half a minute that a node is gone to which nothing is sent. A
/// node that loses its power says nothing, and connections that wait for ever must learn of it.
pub(crate) fn keep_node_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let ask = TcpKeepalive::new().with_time(Duration::from_secs(15));
    socket.set_tcp_keepalive(&ask.with_interval(Duration::from_secs(5)).with_retries(3))
}

/// Lets the system notice a peer that has vanished: with data in transit (by the time-out for acknowledgements) or
/// without (by probes). `dead_after` is at least a second.
///
/// # Errors
/// Returns the system's errors.
pub fn set_dead_after(socket: &SockRef<'_>, dead_after: Duration) -> io::Result<()> {
    // The system counts these in seconds.
    let second = Duration::from_secs(1);
    let dead_after = dead_after.max(second);
    socket.set_tcp_user_timeout(Some(dead_after))?;
    let ask = TcpKeepalive::new().with_time((dead_after / 2).max(second));
    socket.set_tcp_keepalive(&ask.with_interval((dead_after / 10).max(second)))
}

/// Lets the system notice within twice the time `after` that a client is gone. There are many clients, and a
/// client that is gone would keep its place among the connections for ever.
pub(crate) fn keep_client_alive(socket: &SockRef<'_>, after: Duration) -> io::Result<()> {
    let ask = TcpKeepalive::new().with_time(after);
    socket.set_tcp_keepalive(&ask.with_interval(after / 4).with_retries(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_notices_a_machine_that_vanished() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = SockRef::from(&stream);
        set_dead_after(&socket, Duration::from_secs(20)).unwrap();
        let limit = socket.tcp_user_timeout().unwrap();
        assert_eq!(limit, Some(Duration::from_secs(20)));
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), 10);
        assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), 2);
    }
}
