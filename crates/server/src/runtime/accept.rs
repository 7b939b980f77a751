//! Accepting connections.

use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering,
};
use std::time::Instant;

use parking_lot::Mutex;
use reactor::Network;

use super::{ClientListener, Runtime};
use crate::clients::{ClientNames, ConnectedClient};
use crate::connection::Connection;
use crate::refusal;

/// A socket that was accepted and is no connection yet.
struct AcceptedSocket<S> {
    stream: S,
    address: SocketAddr,
    /// `true` if the client speaks TLS.
    over_tls: bool,
}

impl<N: Network> Runtime<N> {
    /// Accepts some of the clients that have connected.
    pub(super) fn accept(&mut self) {
        let now = self.executor.context.now;
        if !self.accepting.begin(now) {
            return;
        }
        loop {
            let (listeners, network) = (&self.listeners, &mut self.network);
            match self.accepting.next(now, || next_client(listeners, network)) {
                Ok(Some(accepted)) => self.admit(accepted),
                Ok(None) => return,
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
    fn admit(&mut self, accepted: AcceptedSocket<N::Stream>) {
        let AcceptedSocket {
            mut stream,
            address,
            over_tls,
        } = accepted;
        let shared = Arc::clone(&self.executor.context.shared);
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(local) = self.network.local_address(&stream) else {
            return self.network.close(stream);
        };
        let descriptor = self.network.descriptor(&stream);
        let runtime = self.index;
        let client = shared
            .clients
            .add(shared.settings.clients(), |id| ConnectedClient {
                id,
                address,
                local,
                over_tls,
                descriptor,
                runtime,
                connection: AtomicUsize::new(0),
                since: Instant::now(),
                names: Mutex::new(ClientNames {
                    last_command: "NULL",
                    ..ClientNames::default()
                }),
                last_ms: AtomicU64::new(0),
                database: AtomicU16::new(0),
                queued: AtomicI64::new(-1),
                subscriptions: Default::default(),
                monitors: AtomicBool::new(false),
                tracking: Default::default(),
                redirect: AtomicI64::new(-1),
                protocol: AtomicU8::new(2),
                memory: Default::default(),
                killed: AtomicBool::new(false),
                blocked: AtomicU8::new(0),
            });
        let Some(client) = client else {
            shared.counters.rejected.fetch_add(1, Ordering::Relaxed);
            // The client may be gone already; either way the connection is closed.
            drop(
                self.network
                    .write(&mut stream, &[IoSlice::new(refusal::MAX_CLIENTS)]),
            );
            return self.network.close(stream);
        };
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        client.connection.store(key, Ordering::Relaxed);
        if let Err(error) = self.network.watch(&mut stream, key) {
            shared.clients.remove(client.id);
            self.network.close(stream);
            let text = format!("cannot serve a connection: {error}");
            return self.executor.context.warn(address, "serve", text);
        }
        let authenticated = shared.config.password.is_none();
        let connection = entry.insert(Connection::new(
            key,
            client,
            authenticated,
            &shared.in_flight,
        ));
        self.lists.ready(key, connection);
        let same = self.streams.insert(stream);
        debug_assert_eq!(same, key, "streams have the numbers of their connections");
        if !authenticated {
            self.admit_newcomer(key);
        }
    }
}

/// Returns the next connection of any listener.
fn next_client<N: Network>(
    listeners: &[ClientListener<N::Listener>],
    network: &mut N,
) -> std::io::Result<AcceptedSocket<N::Stream>> {
    for listener in listeners {
        match network.accept(&listener.socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            accepted => {
                return accepted.map(|(stream, address)| AcceptedSocket {
                    stream,
                    address,
                    over_tls: listener.over_tls,
                });
            }
        }
    }
    Err(ErrorKind::WouldBlock.into())
}
