//! Client-side caching (`CLIENT TRACKING`): which clients may keep which keys, and the news that a key has
//! changed.
//!
//! | part | has |
//! |---|---|
//! | [`TrackingTable`], which all runtimes share | by key, the clients that have read it since its last change; by prefix, the clients that get all changes |
//! | [`ClientTracking`](channels::client_tracking::ClientTracking), of one client | what it wants |
//!
//! Invariants:
//! 1. A client is in the table before it reads a key, and a commit looks into the table after its change can
//!    be read: the client either reads the change, or gets an invalidation.
//! 2. An invalidation leaves when the change is durable, and behind the replies to what the client has
//!    requested before: none overtakes the reply with the value that it is about.
//! 3. A client that reads keys of another node's partition, of which no news come, gets their invalidation
//!    at once, behind the reply.
//! 4. A client that gets the news of prefixes gets the news that all keys may have changed, once the commits have
//!    ended that were on their way before there was a client that wants news.
//! 5. The table of keys is bounded: [`TrackedKeys`].

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::{Epoch, Tid};
use channels::client_tracking::ChangedKeys;
use channels::tracked_keys::{KeyClients, PrefixClients, RemovedKey, TrackedKeys, TrackedPrefixes};
use smallvec::SmallVec;

use crate::durable_queue::DurableQueue;

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
pub(crate) type TrackedClients = KeyClients<TrackedClient>;

/// The news that keys have changed.
#[derive(Debug)]
pub(crate) struct Invalidation {
    pub(crate) keys: ChangedKeys,
    /// Not used if all keys have changed: all clients that track keys get the news then.
    pub(crate) clients: TrackedClients,
    /// `true` if the clients have read the keys, `false` if they get the news of prefixes.
    pub(crate) of_reads: bool,
}

impl Invalidation {
    /// Returns the news that all keys may have changed.
    pub(crate) fn of_all() -> Invalidation {
        Invalidation {
            keys: None,
            clients: TrackedClients::new(),
            of_reads: false,
        }
    }
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
    prefixes: PrefixClients<TrackedClient>,
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct TrackingTable {
    clients: AtomicUsize,
    /// A client gets the news of prefixes, and some commits are on their way that announce nothing.
    misses_commits: AtomicBool,
    pub(crate) keys: TrackedKeys<TrackedClient>,
    pub(crate) prefixes: TrackedPrefixes<TrackedClient>,
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

impl TrackingTable {
    /// Returns the number of clients that track keys.
    #[inline]
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Sets the most keys; 0: no bound. Keys beyond them leave the table. Returns `true` if the reader of
    /// the queue is to be woken.
    pub(crate) fn set_most_keys(&self, most: usize) -> bool {
        let mut wakes = false;
        self.keys
            .set_most(most, |removed| wakes |= self.queue_removed(removed));
        wakes
    }

    /// Adds a client that tracks keys.
    pub(crate) fn begin(&self, client: TrackedClient, prefixes: &[Box<[u8]>]) {
        let mut table = self.prefixes.change();
        self.clients.fetch_add(1, Ordering::SeqCst);
        table.add(client, prefixes);
    }

    /// Records if a client gets the news of prefixes while commits are on their way that announce nothing.
    pub(crate) fn set_misses_commits(&self, misses: bool) {
        self.misses_commits.store(misses, Ordering::SeqCst);
    }

    /// Returns what [`TrackingTable::set_misses_commits`] has recorded.
    pub(crate) fn misses_commits(&self) -> bool {
        self.misses_commits.load(Ordering::Relaxed)
    }

    /// Removes a client that was added before. The keys that it has read leave the table when they change, or
    /// when no client is left.
    pub(crate) fn end(&self, client: u64, prefixes: &[Box<[u8]>]) {
        // No client can begin meanwhile.
        let mut table = self.prefixes.change();
        if self.clients.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.keys.clear();
        }
        table.remove(|other| other.id == client, prefixes);
    }

    /// Notes that a client is about to read a key. Returns `true` if the reader of the queue is to be
    /// woken: another key had to leave.
    pub(crate) fn add(&self, key: &[u8], client: TrackedClient) -> bool {
        let removed = self.keys.add(key, client);
        removed.is_some_and(|removed| self.queue_removed(removed))
    }

    /// Queues the news of a key that has left the table, and has not changed. Returns `true` if the reader of
    /// the queue is to be woken.
    fn queue_removed(&self, (key, readers): RemovedKey<TrackedClient>) -> bool {
        let change = QueuedChange {
            tid: Tid::ZERO,
            readers,
            prefixes: SmallVec::new(),
            key: Some(key),
        };
        self.queue.push(Tid::ZERO, change)
    }

    /// Takes the change of a key by transaction `tid`. Returns `true` if the reader of the queue is to be
    /// woken.
    pub(crate) fn changed(&self, key: &[u8], tid: Tid) -> bool {
        if self.clients() == 0 {
            return false;
        }
        let own = CLIENT.get();
        let wants = |client: &TrackedClient| !(client.ignores_own && client.id == own);
        let mut readers = self.keys.take(key);
        readers.retain(|client| wants(client));
        let change = QueuedChange {
            tid,
            key: Some(key.into()),
            readers,
            prefixes: self.prefixes.of_key(key, wants),
        };
        if change.readers.is_empty() && change.prefixes.is_empty() {
            return false;
        }
        self.queue.push(tid, change)
    }

    /// Takes the removal of all keys by transaction `tid`. Returns `true` if the reader of the queue is to
    /// be woken.
    pub(crate) fn flushed(&self, tid: Tid) -> bool {
        if self.clients() == 0 {
            return false;
        }
        self.keys.clear();
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
                news.push(Invalidation::of_all());
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
