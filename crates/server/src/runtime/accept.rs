//! Accepting connections.

use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Token};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};

use super::Runtime;
use crate::clients::{ClientNames, ConnectedClient};
use crate::connection::Connection;
use crate::limits::KEEPALIVE;
use crate::refusal;

/// Connections accepted in one turn.
const ACCEPTS: usize = 128;

impl Runtime {
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                self.accepting = false;
                return;
            };
            match listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.accepting = false;
                    return;
                }
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    // The system's limits may be reached for a long time, and each attempt fails.
                    let text = format!("cannot accept a connection; trying again: {error}");
                    let context = &mut self.executor.context;
                    return context.warn(context.shared.config.listen, "accept", text);
                }
            }
        }
    }

    /// Makes a connection of an accepted socket.
    pub(super) fn admit(&mut self, mut stream: TcpStream, address: std::net::SocketAddr) {
        let shared = Arc::clone(&self.executor.context.shared);
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(local) = stream.local_addr() else {
            return;
        };
        let descriptor = stream.as_raw_fd();
        let runtime = self.index;
        let client = shared
            .clients
            .add(shared.config.limits.clients, |id| ConnectedClient {
                id,
                address,
                local,
                descriptor,
                runtime,
                since: Instant::now(),
                names: Mutex::new(ClientNames {
                    last_command: "NULL",
                    ..ClientNames::default()
                }),
                last_ms: AtomicU64::new(0),
                queued: AtomicI64::new(-1),
                protocol: AtomicU8::new(2),
                killed: AtomicBool::new(false),
            });
        let Some(client) = client else {
            shared.counters.rejected.fetch_add(1, Ordering::Relaxed);
            // The client may be gone already; either way the connection is closed.
            drop(stream.write(refusal::MAX_CLIENTS));
            return;
        };
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered = stream
            .set_nodelay(true)
            .and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&keepalive()))
            .and_then(|()| self.poll.registry().register(&mut stream, Token(key), both));
        if let Err(error) = registered {
            shared.clients.remove(client.id);
            let text = format!("cannot serve a connection: {error}");
            return self.executor.context.warn(address, "serve", text);
        }
        let authenticated = shared.config.password.is_none();
        let connection = entry.insert(Connection::new(
            key,
            stream,
            client,
            authenticated,
            &shared.in_flight,
        ));
        self.lists.ready(key, connection);
        if !authenticated {
            self.admit_newcomer(key);
        }
    }
}

/// Returns the settings that detect clients that have gone silently.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 3)
        .with_retries(3)
}

/// Returns `true` if accepting failed because of the connection that was to be accepted.
fn is_of_the_client(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::Interrupted | ErrorKind::ConnectionReset
    )
}
