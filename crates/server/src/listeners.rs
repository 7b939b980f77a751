//! The sockets on which a server listens, one for each runtime.

use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{Config, StartError};
use crate::limits::BACKLOG;

/// Returns listeners for other nodes, one for each runtime; none for a server that is in no
/// cluster.
pub(crate) fn listen_for_nodes(
    config: &Config,
    count: usize,
) -> Result<Vec<Option<TcpListener>>, StartError> {
    let Some(membership) = &config.cluster else {
        return Ok((0..count).map(|_| None).collect());
    };
    let node = membership.node;
    let fabric = membership.listen.unwrap_or(membership.info()?.fabric);
    fabric::tcp::listen(fabric, count)
        .map(|listeners| listeners.into_iter().map(Some).collect())
        .map_err(|error| StartError::ListenFabric {
            fabric,
            node,
            error,
        })
}

/// Returns listeners for clients that speak TLS, one for each runtime, if there are any.
pub(crate) fn listen_for_tls(
    config: &Config,
    count: usize,
) -> Result<Vec<Option<TcpListener>>, StartError> {
    let Some(tls) = &config.tls else {
        return Ok((0..count).map(|_| None).collect());
    };
    let listeners = listen(tls.listen, count).map_err(|error| StartError::ListenTls {
        listen: tls.listen,
        error,
    })?;
    Ok(listeners.into_iter().map(Some).collect())
}

/// Returns as many listeners on one address: the system spreads connections over them.
pub(crate) fn listen(address: SocketAddr, count: usize) -> std::io::Result<Vec<TcpListener>> {
    reactor::bind_when_free(|| refuse_shared(address))?;
    if count > 1 && address.port() != 0 {
        // Sockets that share an address share it with those of another server, too, and would take
        // turns with it. A socket that does not share detects that.
        socket(address)?;
    }
    let mut address = address;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = if count > 1 {
            shared_socket(address)?
        } else {
            socket(address)?
        };
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        // With port 0 the first listener has chosen; the others share its port.
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Returns an error if another process listens on the address. Listeners that share a port would do
/// so with those of another server of the same user, too, which would then get a part of the
/// connections.
fn refuse_shared(address: SocketAddr) -> std::io::Result<()> {
    let domain = Domain::for_address(address);
    let probe = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier server that linger are no obstacle.
    probe.set_reuse_address(true)?;
    probe.bind(&address.into())
}

/// Returns a socket bound to `address`, for itself alone.
fn socket(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = unbound_socket(address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Returns a socket bound to `address`, which others may be bound to as well.
fn shared_socket(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = unbound_socket(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn unbound_socket(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
