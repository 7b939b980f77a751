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

/// Lets the system notice within twice the time `after` that a client is gone. There are many clients, and a
/// client that is gone would keep its place among the connections for ever.
pub(crate) fn keep_client_alive(socket: &SockRef<'_>, after: Duration) -> io::Result<()> {
    let ask = TcpKeepalive::new().with_time(after);
    socket.set_tcp_keepalive(&ask.with_interval(after / 4).with_retries(4))
}
