//! The connected clients, as `CLIENT LIST` shows them.
//!
//! Each entry belongs to one connection of one runtime; other runtimes only read it, or request
//! that the connection is closed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::time::Instant;

use channels::SubscriptionKind;
use channels::client_tracking::{ClientTracking, TrackedReads};
use parking_lot::Mutex;

/// The state of one client.
pub(crate) struct ConnectedClient {
    /// Its number, never given again.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) local: SocketAddr,
    /// `true` if it is connected over TLS.
    pub(crate) over_tls: bool,
    /// The descriptor of its socket.
    pub(crate) descriptor: i32,
    /// The runtime that serves it.
    pub(crate) runtime: usize,
    /// The number of its connection there.
    pub(crate) connection: AtomicUsize,
    pub(crate) since: Instant,
    pub(crate) names: Mutex<ClientNames>,
    /// Milliseconds after `since` at which its last input came.
    pub(crate) last_ms: AtomicU64,
    /// The database that it has selected.
    pub(crate) database: AtomicU16,
    /// Commands queued in its `MULTI` block; -1 without one.
    pub(crate) queued: AtomicI64,
    /// Its subscriptions, by their kind.
    pub(crate) subscriptions: [AtomicU32; 3],
    /// `true` if it is shown the commands of all clients.
    pub(crate) monitors: AtomicBool,
    /// The letters of its client-side caching: `t` it is on, `R` its news have nowhere to go, `B` it gets all
    /// changes.
    pub(crate) tracking: [AtomicBool; 3],
    /// The client that gets the news of its keys: 0 itself, -1 none.
    pub(crate) redirect: AtomicI64,
    /// The protocol's number.
    pub(crate) protocol: AtomicU8,
    /// The bytes of its input that is not executed, of its replies, and of all that is kept for it.
    pub(crate) memory: [AtomicU64; 3],
    /// `true` if another connection requested that it is closed.
    pub(crate) killed: AtomicBool,
    /// Its [`BlockedState`].
    pub(crate) blocked: AtomicU8,
}

/// Whether a client waits for keys to have something for its command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockedState {
    No,
    Waits,
    /// Another client has ended its wait, as if its time were over.
    Ends,
    /// Another client has ended its wait, by an error.
    Fails,
}

impl BlockedState {
    const ALL: [BlockedState; 4] = [
        BlockedState::No,
        BlockedState::Waits,
        BlockedState::Ends,
        BlockedState::Fails,
    ];
}

/// The names that a client gives itself.
#[derive(Default, Clone)]
pub(crate) struct ClientNames {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    /// The command it last gave.
    pub(crate) last_command: &'static str,
}

impl ConnectedClient {
    /// Records the memory that is kept for it; see [`ConnectedClient::memory`].
    #[inline]
    pub(crate) fn note_memory(&self, memory: [usize; 3]) {
        for (own, now) in self.memory.iter().zip(memory) {
            if own.load(Ordering::Relaxed) != now as u64 {
                own.store(now as u64, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of its connection in its runtime.
    pub(crate) fn connection(&self) -> usize {
        self.connection.load(Ordering::Relaxed)
    }

    /// Returns whether it waits for keys.
    pub(crate) fn blocked(&self) -> BlockedState {
        BlockedState::ALL[usize::from(self.blocked.load(Ordering::SeqCst))]
    }

    /// Records whether it waits for keys.
    pub(crate) fn set_blocked(&self, state: BlockedState) {
        self.blocked.store(state as u8, Ordering::SeqCst);
    }

    /// Has its wait for keys end. Returns `false` if it does not wait.
    pub(crate) fn unblock(&self, state: BlockedState) -> bool {
        let waits = BlockedState::Waits as u8;
        let ended =
            self.blocked
                .compare_exchange(waits, state as u8, Ordering::SeqCst, Ordering::SeqCst);
        ended.is_ok()
    }

    /// Records its client-side caching.
    pub(crate) fn note_tracking(&self, tracking: Option<&ClientTracking>) {
        let redirect = tracking.map_or(-1, |own| own.redirect.unwrap_or(0) as i64);
        self.redirect.store(redirect, Ordering::Relaxed);
        let is_prefixed = |own: &ClientTracking| own.reads == TrackedReads::Prefixed;
        let letters = [
            tracking.is_some(),
            tracking.is_some_and(|own| own.is_broken),
            tracking.is_some_and(is_prefixed),
        ];
        for (own, now) in self.tracking.iter().zip(letters) {
            own.store(now, Ordering::Relaxed);
        }
    }

    /// Returns `true` if it has subscriptions.
    pub(crate) fn is_subscriber(&self) -> bool {
        let mut counts = self.subscriptions.iter();
        counts.any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Writes the line of `CLIENT LIST`, without its end.
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        let names = self.names.lock().clone();
        let age = self.since.elapsed();
        let idle_ms = (age.as_millis() as u64).saturating_sub(self.last_ms.load(Ordering::Relaxed));
        let queued = self.queued.load(Ordering::Relaxed);
        let [input, output, all] = &self.memory;
        let memory = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let subscriptions =
            |kind: SubscriptionKind| self.subscriptions[kind as usize].load(Ordering::Relaxed);
        let flags = [
            (self.monitors.load(Ordering::Relaxed), 'O'),
            (self.is_subscriber(), 'P'),
            (queued >= 0, 'x'),
            (self.blocked() != BlockedState::No, 'b'),
            (self.tracking[0].load(Ordering::Relaxed), 't'),
            (self.tracking[1].load(Ordering::Relaxed), 'R'),
            (self.tracking[2].load(Ordering::Relaxed), 'B'),
        ];
        let flags: String = flags
            .into_iter()
            .filter_map(|(set, flag)| set.then_some(flag))
            .collect();
        let flags = if flags.is_empty() { "N" } else { &flags };
        let head = format!(
            "id={} addr={} laddr={} fd={} name=",
            self.id, self.address, self.local, self.descriptor
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&names.name);
        let middle = format!(
            " age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={queued} qbuf={} omem={} tot-mem={} cmd={} user=default redir={} resp={} lib-name=",
            age.as_secs(),
            idle_ms / 1000,
            self.database.load(Ordering::Relaxed),
            subscriptions(SubscriptionKind::Channel),
            subscriptions(SubscriptionKind::Pattern),
            subscriptions(SubscriptionKind::ShardChannel),
            memory(input),
            memory(output),
            memory(all),
            names.last_command,
            self.redirect.load(Ordering::Relaxed),
            self.protocol.load(Ordering::Relaxed),
        );
        out.extend_from_slice(middle.as_bytes());
        out.extend_from_slice(&names.library);
        out.extend_from_slice(b" lib-ver=");
        out.extend_from_slice(&names.library_version);
    }
}

/// All clients by number.
#[derive(Default)]
pub(crate) struct ClientRegistry {
    table: Mutex<BTreeMap<u64, Arc<ConnectedClient>>>,
    last_id: AtomicU64,
}

impl ClientRegistry {
    /// Adds a client unless there are `most` already.
    pub(crate) fn add(
        &self,
        most: usize,
        client: impl FnOnce(u64) -> ConnectedClient,
    ) -> Option<Arc<ConnectedClient>> {
        let mut table = self.table.lock();
        if table.len() >= most {
            return None;
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(client(id));
        table.insert(id, Arc::clone(&client));
        Some(client)
    }

    /// Returns the client with this number.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<ConnectedClient>> {
        self.table.lock().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: u64) {
        self.table.lock().remove(&id);
    }

    pub(crate) fn count(&self) -> usize {
        self.table.lock().len()
    }

    /// Returns the number of clients that subscribe to channels.
    pub(crate) fn subscribers(&self) -> usize {
        let table = self.table.lock();
        let subscribers = table.values().filter(|client| client.is_subscriber());
        subscribers.count()
    }

    /// Returns all clients, by age.
    pub(crate) fn list(&self) -> Vec<Arc<ConnectedClient>> {
        self.table.lock().values().cloned().collect()
    }
}
