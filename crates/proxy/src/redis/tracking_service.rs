//! Client-side caching: what the threads with clients and the [hub](super::tracking_hub) share.
//!
//! The nodes tell the proxy of every key that changes, on connections of the hub. The proxy knows which of
//! its clients may keep which key.
//!
//! Invariants:
//! 1. A client is in the table of a key from before its read is sent to a node until it has been told that
//!    the key changed.
//! 2. While a node sends no news, every read that it answers is followed by an invalidation of its keys. When
//!    the news of a node begin or end, and when slots move, all clients get the news that all keys may have
//!    changed.
//! 3. The events of one thread keep their order: an event of a change comes behind the one that says that
//!    the nodes send news.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use channels::client_tracking::ChangedKeys;
use channels::tracked_keys::{RemovedKey, TrackedKeys, TrackedPrefixes};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};

use super::subscription_service::{SubscriptionEvent, SubscriptionService};
use crate::runtime::query::{ClientId, NodeIndex};

/// The nodes as far as they send news.
#[derive(Default)]
struct NewsState {
    /// The clients that want news, or wait until they can have them.
    clients: usize,
    /// Set when all nodes have been asked for news; the error of a node that refuses them is a whole reply.
    begun: Option<Result<(), Bytes>>,
    /// The nodes that send news.
    sending: HashSet<NodeIndex, RandomState>,
}

/// See the module documentation.
pub(crate) struct TrackingService {
    subscriptions: Arc<SubscriptionService>,
    keys: TrackedKeys<ClientId>,
    pub(crate) prefixes: TrackedPrefixes<ClientId>,
    news: RwLock<NewsState>,
    /// All clients of each thread: their places by their numbers.
    clients: Box<[Mutex<HashMap<u32, u32, RandomState>>]>,
}

/// Returns the number of a client, by which other clients name it.
pub(crate) fn number_of(client: ClientId) -> u64 {
    (u64::from(client.thread) << 32 | u64::from(client.number)) + 1
}

impl TrackingService {
    /// Creates the service. The events for clients go through `subscriptions`; `most_keys` bounds the table
    /// of keys.
    pub(crate) fn new(
        subscriptions: Arc<SubscriptionService>,
        most_keys: usize,
    ) -> TrackingService {
        let keys = TrackedKeys::default();
        keys.set_most(most_keys, |_| {});
        let clients = (0..subscriptions.threads()).map(|_| Mutex::default());
        TrackingService {
            clients: clients.collect(),
            subscriptions,
            keys,
            prefixes: TrackedPrefixes::default(),
            news: RwLock::default(),
        }
    }

    /// Records a client that has connected.
    pub(crate) fn admit(&self, client: ClientId) {
        let mut clients = self.clients[usize::from(client.thread)].lock();
        clients.insert(client.number, client.place);
    }

    /// Records that a client is gone.
    pub(crate) fn forget(&self, client: ClientId) {
        let mut clients = self.clients[usize::from(client.thread)].lock();
        clients.remove(&client.number);
    }

    /// Returns the client of this number, if it is connected.
    pub(crate) fn client(&self, number: u64) -> Option<ClientId> {
        let number = number.checked_sub(1)?;
        let thread = u16::try_from(number >> 32).ok()?;
        let clients = self.clients.get(usize::from(thread))?.lock();
        let number = number as u32;
        let place = *clients.get(&number)?;
        Some(ClientId {
            place,
            thread,
            number,
        })
    }

    /// Counts a client that wants news. Returns `None` if it has to wait for
    /// [`SubscriptionEvent::TrackingBegun`], or the error of a node, which is a whole reply; then the client
    /// is not counted.
    pub(crate) fn begin(&self) -> Option<Result<(), Bytes>> {
        let mut news = self.news.write();
        let begun = news.begun.clone();
        if !matches!(begun, Some(Err(_))) {
            news.clients += 1;
        }
        drop(news);
        self.subscriptions.wake_hub();
        begun
    }

    /// Ends what [`TrackingService::begin`] counted.
    pub(crate) fn end(&self) {
        self.news.write().clients -= 1;
        self.subscriptions.wake_hub();
    }

    /// Returns `true` if clients want news.
    pub(crate) fn is_wanted(&self) -> bool {
        self.news.read().clients > 0
    }

    /// Returns `true` if the node tells the proxy of every change.
    pub(crate) fn sends_news(&self, node: NodeIndex) -> bool {
        self.news.read().sending.contains(&node)
    }

    /// Notes that a client is about to read a key.
    pub(crate) fn add_read(&self, key: &[u8], client: ClientId) {
        if let Some(removed) = self.keys.add(key, client) {
            self.send(removed);
        }
    }

    /// Removes a client of a key. Returns `true` if it may keep the key.
    pub(crate) fn take_read(&self, key: &[u8], client: ClientId) -> bool {
        self.keys.take_client(key, client)
    }

    fn send(&self, (key, clients): RemovedKey<ClientId>) {
        if !clients.is_empty() {
            let keys: ChangedKeys = Some(Arc::from([key]));
            for client in clients {
                self.send_to(client, keys.clone(), false);
            }
        }
    }

    /// Tells a client that keys have changed. `redirected`: they are keys of another client.
    pub(crate) fn send_to(&self, client: ClientId, keys: ChangedKeys, redirected: bool) {
        let event = SubscriptionEvent::Invalidated {
            client,
            keys,
            redirected,
        };
        self.subscriptions.send(client.thread.into(), event);
    }

    /// Tells the clients that keys have changed: of keys that they have read one by one, of prefixes
    /// together.
    pub(crate) fn changed(&self, keys: Vec<Box<[u8]>>) {
        let mut gathered: HashMap<ClientId, Vec<Box<[u8]>>, RandomState> = HashMap::default();
        for key in keys {
            for (_, clients) in self.prefixes.of_key(&key, |_| true) {
                for client in clients {
                    gathered.entry(client).or_default().push(key.clone());
                }
            }
            let clients = self.keys.take(&key);
            self.send((key, clients));
        }
        for (client, keys) in gathered {
            self.send_to(client, Some(keys.into()), false);
        }
    }

    /// Tells all clients that all keys may have changed.
    pub(crate) fn changed_all(&self) {
        self.keys.clear();
        self.tell_threads(|| SubscriptionEvent::AllInvalidated);
    }

    fn tell_threads(&self, event: impl Fn() -> SubscriptionEvent) {
        for thread in 0..self.subscriptions.threads() {
            self.subscriptions.send(thread, event());
        }
    }

    /// Records that all nodes have been asked for news, and tells the clients that wait for that.
    pub(crate) fn note_begun(&self, result: Result<(), Bytes>) {
        self.news.write().begun = Some(result.clone());
        self.tell_threads(|| SubscriptionEvent::TrackingBegun(result.clone()));
    }

    /// Records that a node sends news from now on. What was read there before may have changed unnoticed.
    pub(crate) fn note_sending(&self, node: NodeIndex) {
        self.news.write().sending.insert(node);
        self.changed_all();
    }

    /// Records that a node sends no news any more, if it has sent some.
    pub(crate) fn note_silent(&self, node: NodeIndex) {
        if self.news.write().sending.remove(&node) {
            self.changed_all();
        }
    }

    /// Records that no node sends news, unless clients want them. Returns `true` if no client does.
    pub(crate) fn try_end(&self) -> bool {
        let mut news = self.news.write();
        if news.clients > 0 {
            return false;
        }
        *news = NewsState::default();
        self.keys.clear();
        true
    }
}
