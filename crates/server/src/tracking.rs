//! Client-side caching (`CLIENT TRACKING`): which clients may keep which keys, and the news that a key has
//! changed.
//!
//! | part | has |
//! |---|---|
//! | [`TrackingTable`], which all runtimes share | by key, the clients that have read it since its last change; by prefix, the clients that get all changes |
//! | [`ClientTracking`], of one client | what it wants |
//!
//! Invariants:
//! 1. A client is in the table before it reads a key, and a commit looks into the table after its change can
//!    be read: the client either reads the change, or gets an invalidation.
//! 2. An invalidation leaves when the change is durable, and behind the replies to what the client has
//!    requested before: none overtakes the reply with the value that it is about.
//! 3. A client that reads keys of another node's partition, of which no news come, gets their invalidation
//!    at once, behind the reply.
//! 4. A key is in the table once at most; when the table is full, another one leaves it, with an
//!    invalidation.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Tid;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::durable_queue::DurableQueue;

/// The parts of the table of keys, each with a lock of its own.
const SHARDS: usize = 64;

/// A client, as the table knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TrackedClient {
    pub(crate) id: u64,
    pub(crate) runtime: usize,
    /// The number of its connection in its runtime.
    pub(crate) connection: usize,
    /// `true` if it gets no news of its own changes.
    pub(crate) ignores_own: bool,
}

/// Clients that are to be sent the news of a key.
pub(crate) type TrackedClients = SmallVec<[TrackedClient; 2]>;

/// The news that a key has changed, or all of them.
#[derive(Debug)]
pub(crate) struct Invalidation {
    /// `None`: all keys.
    pub(crate) key: Option<Box<[u8]>>,
    /// Not used if all keys have changed: all clients that track keys get the news then.
    pub(crate) clients: TrackedClients,
}

/// The keys of which a client gets news.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrackedReads {
    /// Those that it reads.
    All,
    /// Those that it reads right behind `CLIENT CACHING YES`.
    OptIn,
    /// Those that it reads, but right behind `CLIENT CACHING NO`.
    OptOut,
    /// Those with these prefixes, read or not.
    Prefixed,
}

/// What one client wants to be sent.
#[derive(Debug)]
pub(crate) struct ClientTracking {
    pub(crate) reads: TrackedReads,
    /// The client that gets the news in its place.
    pub(crate) redirect: Option<u64>,
    /// `true` if that client has gone.
    pub(crate) is_broken: bool,
    pub(crate) ignores_own: bool,
    pub(crate) prefixes: Vec<Box<[u8]>>,
    /// The choice for the next command (`CLIENT CACHING`).
    pub(crate) caching: Option<bool>,
}

impl ClientTracking {
    /// Returns `true` if the keys that the next command reads are tracked.
    pub(crate) fn tracks_reads(&self) -> bool {
        match self.reads {
            TrackedReads::All => true,
            TrackedReads::OptIn => self.caching == Some(true),
            TrackedReads::OptOut => self.caching != Some(false),
            TrackedReads::Prefixed => false,
        }
    }
}

/// A part of the table of keys.
type KeyShard = HashMap<Box<[u8]>, TrackedClients>;

/// See the module's description.
pub(crate) struct TrackingTable {
    clients: AtomicUsize,
    hash: DefaultHashBuilder,
    shards: Box<[Mutex<KeyShard>]>,
    keys: AtomicUsize,
    items: AtomicUsize,
    /// The most keys; 0: no bound.
    most: AtomicUsize,
    prefixes: RwLock<HashMap<Box<[u8]>, Vec<TrackedClient>>>,
    pub(crate) queue: DurableQueue<Invalidation>,
}

thread_local! {
    /// The client whose command this thread executes.
    static CLIENT: Cell<u64> = const { Cell::new(0) };
}

/// Notes the client whose command this thread executes from now on; 0: none.
#[inline]
pub(crate) fn note_client(id: u64) {
    CLIENT.set(id);
}

impl Default for TrackingTable {
    fn default() -> TrackingTable {
        TrackingTable {
            clients: AtomicUsize::new(0),
            hash: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            most: AtomicUsize::new(1_000_000),
            prefixes: RwLock::default(),
            queue: DurableQueue::default(),
        }
    }
}

impl TrackingTable {
    /// Returns the number of clients that track keys.
    #[inline]
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Returns the numbers of keys, and of pairs of a key and a client.
    pub(crate) fn keys_and_items(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.keys), of(&self.items))
    }

    /// Returns the number of prefixes of which clients get all news.
    pub(crate) fn prefixes(&self) -> usize {
        self.prefixes.read().len()
    }

    /// Returns the most keys; 0: no bound.
    pub(crate) fn most_keys(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets the most keys; 0: no bound.
    pub(crate) fn set_most_keys(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Adds a client that tracks keys.
    pub(crate) fn begin(&self, client: TrackedClient, prefixes: &[Box<[u8]>]) {
        self.clients.fetch_add(1, Ordering::SeqCst);
        self.add_prefixes(client, prefixes);
    }

    /// Has a client get the news of all keys with these prefixes, too.
    pub(crate) fn add_prefixes(&self, client: TrackedClient, prefixes: &[Box<[u8]>]) {
        let mut table = self.prefixes.write();
        for prefix in prefixes {
            table.entry(prefix.clone()).or_default().push(client);
        }
    }

    /// Removes a client that was added before. The keys that it has read leave the table when they change.
    pub(crate) fn end(&self, client: u64, prefixes: &[Box<[u8]>]) {
        self.clients.fetch_sub(1, Ordering::SeqCst);
        if prefixes.is_empty() {
            return;
        }
        let mut table = self.prefixes.write();
        for prefix in prefixes {
            if let Some(clients) = table.get_mut(prefix) {
                clients.retain(|other| other.id != client);
                if clients.is_empty() {
                    table.remove(prefix);
                }
            }
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<KeyShard> {
        &self.shards[self.hash.hash_one(key) as usize % SHARDS]
    }

    /// Notes that a client is about to read a key. Returns `true` if the reader of the queue is to be
    /// woken: another key had to leave.
    pub(crate) fn add(&self, key: &[u8], client: TrackedClient) -> bool {
        let mut shard = self.shard(key).lock();
        if let Some(clients) = shard.get_mut(key) {
            if !clients.contains(&client) {
                clients.push(client);
                self.items.fetch_add(1, Ordering::Relaxed);
            }
            return false;
        }
        let most = self.most_keys();
        let mut wakes = false;
        if most > 0
            && self.keys.load(Ordering::Relaxed) >= most
            && let Some(other) = shard.keys().next().cloned()
        {
            let clients = self.take(&mut shard, &other).unwrap_or_default();
            let key = Some(other);
            wakes = self.queue.push(Tid::ZERO, Invalidation { key, clients });
        }
        let clients = std::iter::once(client).collect();
        shard.insert(key.into(), clients);
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(1, Ordering::Relaxed);
        wakes
    }

    /// Removes a key. Returns the clients that may keep it.
    fn take(&self, shard: &mut KeyShard, key: &[u8]) -> Option<TrackedClients> {
        let clients = shard.remove(key)?;
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(clients.len(), Ordering::Relaxed);
        Some(clients)
    }

    /// Takes the change of a key by transaction `tid`. Returns `true` if the reader of the queue is to be
    /// woken.
    pub(crate) fn changed(&self, key: &[u8], tid: Tid) -> bool {
        if self.clients() == 0 {
            return false;
        }
        let mut clients = self
            .take(&mut self.shard(key).lock(), key)
            .unwrap_or_default();
        for (prefix, others) in self.prefixes.read().iter() {
            if key.starts_with(prefix) {
                clients.extend(others.iter().copied());
            }
        }
        let own = CLIENT.get();
        clients.retain(|client| !(client.ignores_own && client.id == own));
        if clients.is_empty() {
            return false;
        }
        let key = Some(key.into());
        self.queue.push(tid, Invalidation { key, clients })
    }

    /// Takes the removal of all keys by transaction `tid`. Returns `true` if the reader of the queue is to
    /// be woken.
    pub(crate) fn flushed(&self, tid: Tid) -> bool {
        if self.clients() == 0 {
            return false;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            let items: usize = shard.values().map(|clients| clients.len()).sum();
            self.keys.fetch_sub(shard.len(), Ordering::Relaxed);
            self.items.fetch_sub(items, Ordering::Relaxed);
            shard.clear();
        }
        let clients = TrackedClients::new();
        self.queue.push(tid, Invalidation { key: None, clients })
    }
}

/// News on their way to one client.
#[derive(Clone, Debug)]
pub(crate) enum InvalidationNotice {
    /// This key has changed, or all of them.
    Changed {
        key: Option<Arc<[u8]>>,
        /// `true` if the news are about keys of another client.
        redirected: bool,
    },
    /// The client that gets the news in the place of this one has gone.
    Broken { target: u64 },
}
