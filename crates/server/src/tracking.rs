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

use base::{Epoch, Tid};
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

/// Keys that have changed, as one notice has them; `None`: all keys.
pub(crate) type ChangedKeys = Option<Arc<[Box<[u8]>]>>;

/// The news that keys have changed.
#[derive(Debug)]
pub(crate) struct Invalidation {
    pub(crate) keys: ChangedKeys,
    /// Not used if all keys have changed: all clients that track keys get the news then.
    pub(crate) clients: TrackedClients,
    /// `true` if the clients have read the keys, `false` if they get the news of prefixes.
    pub(crate) of_reads: bool,
}

/// The keys of a prefix that a transaction has changed, for these clients.
struct PrefixNews {
    tid: Tid,
    prefix: Arc<[u8]>,
    clients: TrackedClients,
    keys: Vec<Box<[u8]>>,
}

/// A change that waits until it is durable.
pub(crate) struct QueuedChange {
    tid: Tid,
    /// `None`: of all keys.
    key: Option<Box<[u8]>>,
    /// The clients that have read the key.
    readers: TrackedClients,
    /// The prefixes of the key whose changes clients get, with these clients.
    prefixes: SmallVec<[(Arc<[u8]>, TrackedClients); 1]>,
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

/// By prefix, the clients that get the news of all keys with it.
type PrefixTable = HashMap<Arc<[u8]>, TrackedClients>;

fn add_prefixes(table: &mut PrefixTable, client: TrackedClient, prefixes: &[Box<[u8]>]) {
    for prefix in prefixes {
        let clients = table.entry(Arc::from(&**prefix)).or_default();
        clients.push(client);
    }
}

/// See the module's description.
pub(crate) struct TrackingTable {
    clients: AtomicUsize,
    hash: DefaultHashBuilder,
    shards: Box<[Mutex<KeyShard>]>,
    keys: AtomicUsize,
    items: AtomicUsize,
    /// The most keys; 0: no bound.
    most: AtomicUsize,
    prefixes: RwLock<PrefixTable>,
    pub(crate) queue: DurableQueue<QueuedChange>,
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

    /// Sets the most keys; 0: no bound. Keys beyond them leave the table. Returns `true` if the reader of
    /// the queue is to be woken.
    pub(crate) fn set_most_keys(&self, most: usize) -> bool {
        self.most.store(most, Ordering::Relaxed);
        let mut wakes = false;
        for shard in &self.shards {
            let mut shard = shard.lock();
            while most > 0
                && self.keys.load(Ordering::Relaxed) > most
                && let Some(key) = shard.keys().next().cloned()
            {
                wakes |= self.evict(&mut shard, key);
            }
        }
        wakes
    }

    /// Adds a client that tracks keys.
    pub(crate) fn begin(&self, client: TrackedClient, prefixes: &[Box<[u8]>]) {
        let mut table = self.prefixes.write();
        self.clients.fetch_add(1, Ordering::SeqCst);
        add_prefixes(&mut table, client, prefixes);
    }

    /// Has a client get the news of all keys with these prefixes, too.
    pub(crate) fn add_prefixes(&self, client: TrackedClient, prefixes: &[Box<[u8]>]) {
        add_prefixes(&mut self.prefixes.write(), client, prefixes);
    }

    /// Removes a client that was added before. The keys that it has read leave the table when they change, or
    /// when no client is left.
    pub(crate) fn end(&self, client: u64, prefixes: &[Box<[u8]>]) {
        // No client can begin meanwhile.
        let mut table = self.prefixes.write();
        if self.clients.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.clear();
        }
        for prefix in prefixes {
            if let Some(clients) = table.get_mut(&**prefix) {
                clients.retain(|other| other.id != client);
                if clients.is_empty() {
                    table.remove(&**prefix);
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
            wakes = self.evict(&mut shard, other);
        }
        let clients = std::iter::once(client).collect();
        shard.insert(key.into(), clients);
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(1, Ordering::Relaxed);
        wakes
    }

    /// Removes a key that has not changed, with news. Returns `true` if the reader of the queue is to be woken.
    fn evict(&self, shard: &mut KeyShard, key: Box<[u8]>) -> bool {
        let change = QueuedChange {
            tid: Tid::ZERO,
            readers: self.take(shard, &key).unwrap_or_default(),
            prefixes: SmallVec::new(),
            key: Some(key),
        };
        self.queue.push(Tid::ZERO, change)
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
        let own = CLIENT.get();
        let wants = |client: &TrackedClient| !(client.ignores_own && client.id == own);
        let readers = self.take(&mut self.shard(key).lock(), key);
        let mut readers = readers.unwrap_or_default();
        readers.retain(|client| wants(client));
        let table = self.prefixes.read();
        let matching = table.iter().filter(|(prefix, _)| key.starts_with(prefix));
        let prefixes = matching.map(|(prefix, clients)| {
            let clients: TrackedClients = clients.iter().copied().filter(wants).collect();
            (Arc::clone(prefix), clients)
        });
        let change = QueuedChange {
            tid,
            key: Some(key.into()),
            readers,
            prefixes: prefixes
                .filter(|(_, clients)| !clients.is_empty())
                .collect(),
        };
        if change.readers.is_empty() && change.prefixes.is_empty() {
            return false;
        }
        self.queue.push(tid, change)
    }

    /// Removes all keys.
    fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let items: usize = shard.values().map(|clients| clients.len()).sum();
            self.keys.fetch_sub(shard.len(), Ordering::Relaxed);
            self.items.fetch_sub(items, Ordering::Relaxed);
            shard.clear();
        }
    }

    /// Takes the removal of all keys by transaction `tid`. Returns `true` if the reader of the queue is to
    /// be woken.
    pub(crate) fn flushed(&self, tid: Tid) -> bool {
        if self.clients() == 0 {
            return false;
        }
        self.clear();
        let change = QueuedChange {
            tid,
            key: None,
            readers: SmallVec::new(),
            prefixes: SmallVec::new(),
        };
        self.queue.push(tid, change)
    }

    /// Removes the changes of epochs up to `durable`. Returns the news of them: of keys that clients have read
    /// one by one, of prefixes those of a transaction together.
    pub(crate) fn release(&self, durable: Epoch) -> Vec<Invalidation> {
        let mut news = Vec::new();
        let mut gathered: Vec<PrefixNews> = Vec::new();
        for change in self.queue.release(durable) {
            let Some(key) = change.key else {
                let clients = TrackedClients::new();
                news.push(Invalidation {
                    keys: None,
                    clients,
                    of_reads: false,
                });
                continue;
            };
            for (prefix, clients) in change.prefixes {
                let mut known = gathered.iter_mut();
                match known.find(|own| own.tid == change.tid && own.prefix == prefix) {
                    Some(own) if own.keys.contains(&key) => {}
                    Some(own) => own.keys.push(key.clone()),
                    None => gathered.push(PrefixNews {
                        tid: change.tid,
                        prefix,
                        clients,
                        keys: vec![key.clone()],
                    }),
                }
            }
            if !change.readers.is_empty() {
                news.push(Invalidation {
                    keys: Some(Arc::from([key])),
                    clients: change.readers,
                    of_reads: true,
                });
            }
        }
        news.extend(gathered.into_iter().map(|own| Invalidation {
            keys: Some(own.keys.into()),
            clients: own.clients,
            of_reads: false,
        }));
        news
    }
}

/// News on their way to one client.
#[derive(Clone, Debug)]
pub(crate) enum InvalidationNotice {
    /// These keys have changed.
    Changed {
        keys: ChangedKeys,
        /// `true` if the news are about keys of another client.
        redirected: bool,
    },
    /// The client that gets the news in the place of this one has gone.
    Broken { target: u64 },
}

impl InvalidationNotice {
    /// Replaces the keys that notices name by all keys.
    pub(crate) fn sum_up(notices: &mut Vec<InvalidationNotice>) {
        let is_of = |notice: &InvalidationNotice, own: bool| matches!(notice, InvalidationNotice::Changed { redirected, .. } if *redirected == own);
        let present = [true, false].map(|own| notices.iter().any(|notice| is_of(notice, own)));
        notices.retain(|notice| matches!(notice, InvalidationNotice::Broken { .. }));
        for (redirected, is_present) in [true, false].into_iter().zip(present) {
            let keys = None;
            notices.extend(is_present.then_some(InvalidationNotice::Changed { keys, redirected }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_summed_up_for_each_kind() {
        let changed = |redirected| InvalidationNotice::Changed {
            keys: Some(Arc::from([Box::from(&b"key"[..])])),
            redirected,
        };
        let shown = |notices: Vec<InvalidationNotice>| -> Vec<String> {
            notices.iter().map(|notice| format!("{notice:?}")).collect()
        };
        let mut notices = vec![changed(true), changed(true)];
        InvalidationNotice::sum_up(&mut notices);
        let all_of_others = "Changed { keys: None, redirected: true }";
        assert_eq!(shown(notices), [all_of_others]);
        let broken = InvalidationNotice::Broken { target: 7 };
        let mut notices = vec![changed(false), broken, changed(true)];
        InvalidationNotice::sum_up(&mut notices);
        assert_eq!(
            shown(notices),
            [
                "Broken { target: 7 }",
                all_of_others,
                "Changed { keys: None, redirected: false }"
            ]
        );
    }
}
