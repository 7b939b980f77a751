//! Publish/subscribe: the way between the threads with clients and the thread that has the subscriptions at
//! the nodes.
//!
//! | from | to | what |
//! |---|---|---|
//! | a thread with clients | the [hub](super::subscription_hub) | a client wants to subscribe to names; one subscription has ended |
//! | the hub | a thread with clients | the names are subscribed to, or cannot be; a message; news of [keys](super::tracking_service) that have changed |
//!
//! Invariants:
//! 1. The hub counts each name of a [`HubRequest::Subscribe`] as one use, until a
//!    [`HubRequest::Unsubscribe`] of the name, or until it refuses the request.
//! 2. The events of one thread keep their order: a message that a node sent after it had confirmed a
//!    subscription comes behind [`SubscriptionEvent::Subscribed`].
//! 3. The messages that wait for one thread are bounded: the hub does not read on while they are more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use base::glob;
use bytes::Bytes;
use channels::client_tracking::ChangedKeys;
use channels::{ChannelMessage, ChannelName, ChannelRegistry, EncodedMessage, SubscriptionKind};
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use resp::Protocol;

use crate::node_kind::NodeKind;
use crate::runtime::query::{ClientId, NodeIndex};
use crate::runtime::thread_waker::ThreadWaker;

/// Bytes of messages that wait for one thread, beyond which the hub reads no more of them.
const MOST_WAITING: usize = 8 << 20;

/// A request to the hub.
pub(crate) enum HubRequest {
    Subscribe(SubscribeRequest),
    /// One use of the name has ended.
    Unsubscribe(SubscriptionKind, ChannelName),
}

/// A client wants to subscribe to names.
#[derive(Clone)]
pub(crate) struct SubscribeRequest {
    pub(crate) client: ClientId,
    /// The client's request.
    pub(crate) sequence: u64,
    pub(crate) wanted: OpenSubscription,
}

/// The names of a request that has no answer yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenSubscription {
    pub(crate) kind: SubscriptionKind,
    pub(crate) names: Arc<[ChannelName]>,
}

/// An event for the clients of one thread.
pub(crate) enum SubscriptionEvent {
    /// The nodes have confirmed the subscriptions of a request.
    Subscribed {
        client: ClientId,
        sequence: u64,
    },
    /// The subscriptions of a request cannot be made; the error is a whole reply.
    Refused {
        client: ClientId,
        sequence: u64,
        error: Bytes,
    },
    Message(Arc<IncomingMessage>),
    /// Keys have changed that a client may keep, or another client whose news it gets (`redirected`).
    Invalidated {
        client: ClientId,
        keys: ChangedKeys,
        redirected: bool,
    },
    /// All keys may have changed.
    AllInvalidated,
    /// The nodes have been asked to tell of changes of keys; an error is a whole reply.
    TrackingBegun(Result<(), Bytes>),
}

impl SubscriptionEvent {
    /// Returns the bytes for which it counts while it waits.
    fn bytes(&self) -> usize {
        match self {
            SubscriptionEvent::Message(message) => message.message.bytes(),
            SubscriptionEvent::Invalidated {
                keys: Some(keys), ..
            } => keys.iter().map(|key| key.len() + 64).sum(),
            _ => 0,
        }
    }
}

/// A message, as one subscription of the proxy has brought it.
pub(crate) struct IncomingMessage {
    pub(crate) message: ChannelMessage,
    /// The pattern of the subscription; `None`: it is to the channel.
    pub(crate) pattern: Option<ChannelName>,
    encoded: [OnceLock<Bytes>; 2],
}

impl IncomingMessage {
    pub(crate) fn new(message: ChannelMessage, pattern: Option<ChannelName>) -> IncomingMessage {
        IncomingMessage {
            message,
            pattern,
            encoded: Default::default(),
        }
    }

    /// Returns the kind and the name of the subscriptions that get it.
    pub(crate) fn subscription(&self) -> (SubscriptionKind, &[u8]) {
        match &self.pattern {
            Some(pattern) => (SubscriptionKind::Pattern, pattern),
            None => (self.message.kind(), &self.message.channel),
        }
    }

    /// Returns the message as clients get it.
    pub(crate) fn frame(&self, protocol: Protocol) -> &Bytes {
        self.encoded[usize::from(protocol == Protocol::Resp3)].get_or_init(|| {
            let mut encoded = EncodedMessage::default();
            Bytes::copy_from_slice(encoded.of(protocol, self.pattern.as_deref(), &self.message))
        })
    }
}

/// The events that wait for one thread.
#[derive(Default)]
struct Mailbox {
    events: Mutex<VecDeque<SubscriptionEvent>>,
    has_some: AtomicBool,
    /// The bytes of its messages and news.
    bytes: AtomicUsize,
    waker: OnceLock<Arc<ThreadWaker>>,
}

/// Names by the kind of the subscription.
type NamesByKind = [HashSet<ChannelName>; 3];

/// See the module documentation.
pub(crate) struct SubscriptionService {
    /// The clients' subscriptions, by thread.
    pub(crate) registry: ChannelRegistry,
    requests: Mutex<Vec<HubRequest>>,
    has_requests: AtomicBool,
    mailboxes: Box<[CachePadded<Mailbox>]>,
    hub: OnceLock<Arc<ThreadWaker>>,
    /// Nodes pass messages on to the others.
    pass_on: bool,
    /// The subscriptions that each node has confirmed to the proxy.
    confirmed: RwLock<HashMap<NodeIndex, NamesByKind>>,
    stopping: AtomicBool,
}

impl SubscriptionService {
    /// Creates the service for `threads` threads with clients, before nodes of this kind.
    pub(crate) fn new(threads: usize, kind: NodeKind) -> SubscriptionService {
        SubscriptionService {
            registry: ChannelRegistry::new(threads),
            requests: Mutex::default(),
            has_requests: AtomicBool::new(false),
            mailboxes: (0..threads).map(|_| CachePadded::default()).collect(),
            hub: OnceLock::new(),
            pass_on: kind != NodeKind::RedisServers,
            confirmed: RwLock::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Returns the number of threads with clients.
    pub(crate) fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// Sets the waker of a thread with clients.
    pub(crate) fn set_waker(&self, thread: usize, waker: &Arc<ThreadWaker>) {
        let _ = self.mailboxes[thread].waker.set(Arc::clone(waker));
    }

    /// Sets the waker of the hub's thread.
    pub(crate) fn set_hub_waker(&self, waker: &Arc<ThreadWaker>) {
        let _ = self.hub.set(Arc::clone(waker));
    }

    /// Gives the hub a request.
    pub(crate) fn request(&self, request: HubRequest) {
        self.requests.lock().push(request);
        self.has_requests.store(true, Ordering::Release);
        self.wake_hub();
    }

    /// Ends one use of each of these names.
    pub(crate) fn end_uses(&self, of: &OpenSubscription) {
        for name in &*of.names {
            self.request(HubRequest::Unsubscribe(of.kind, Arc::clone(name)));
        }
    }

    /// Returns `true` if there are requests to the hub.
    pub(crate) fn has_requests(&self) -> bool {
        self.has_requests.load(Ordering::Acquire)
    }

    /// Takes the requests to the hub.
    pub(crate) fn take_requests(&self) -> Vec<HubRequest> {
        match self.has_requests.swap(false, Ordering::AcqRel) {
            true => std::mem::take(&mut self.requests.lock()),
            false => Vec::new(),
        }
    }

    /// Gives an event to a thread with clients.
    pub(crate) fn send(&self, thread: usize, event: SubscriptionEvent) {
        let mailbox = &self.mailboxes[thread];
        mailbox.bytes.fetch_add(event.bytes(), Ordering::Relaxed);
        mailbox.events.lock().push_back(event);
        mailbox.has_some.store(true, Ordering::Release);
        if let Some(waker) = mailbox.waker.get() {
            waker.wake();
        }
    }

    /// Returns `true` if a thread has so many messages that it must take some before there are more.
    pub(crate) fn is_full(&self) -> bool {
        self.mailboxes
            .iter()
            .any(|mailbox| mailbox.bytes.load(Ordering::Relaxed) > MOST_WAITING)
    }

    /// Returns `true` if a thread has events.
    pub(crate) fn has_events(&self, thread: u16) -> bool {
        self.mailboxes[usize::from(thread)]
            .has_some
            .load(Ordering::Acquire)
    }

    /// Takes the next event of a thread.
    pub(crate) fn take_event(&self, thread: u16) -> Option<SubscriptionEvent> {
        let mailbox = &self.mailboxes[usize::from(thread)];
        let mut events = mailbox.events.lock();
        let event = events.pop_front();
        mailbox
            .has_some
            .store(!events.is_empty(), Ordering::Release);
        let bytes = event.as_ref().map_or(0, SubscriptionEvent::bytes);
        mailbox.bytes.fetch_sub(bytes, Ordering::Relaxed);
        event
    }

    /// Records that a node has confirmed a subscription.
    pub(crate) fn note_confirmed(
        &self,
        node: NodeIndex,
        kind: SubscriptionKind,
        name: ChannelName,
    ) {
        let mut confirmed = self.confirmed.write();
        confirmed.entry(node).or_default()[kind as usize].insert(name);
    }

    /// Records that a subscription at a node has ended.
    pub(crate) fn note_ended(&self, node: NodeIndex, kind: SubscriptionKind, name: &[u8]) {
        if let Some(names) = self.confirmed.write().get_mut(&node) {
            names[kind as usize].remove(name);
        }
    }

    /// Returns the number of clients that get a message which was published at `node`, where it has
    /// `at_node` subscribers: the clients of this proxy stand in the place of its own subscriptions.
    pub(crate) fn receivers(
        &self,
        node: NodeIndex,
        (sharded, channel): (bool, &[u8]),
        at_node: i64,
    ) -> i64 {
        let kind = match sharded {
            true => SubscriptionKind::ShardChannel,
            false => SubscriptionKind::Channel,
        };
        let confirmed = self.confirmed.read();
        let mut own = 0;
        let mut names: HashSet<(SubscriptionKind, &[u8])> = HashSet::new();
        for (&at, confirmed) in &*confirmed {
            let patterns = confirmed[SubscriptionKind::Pattern as usize].iter();
            let patterns = patterns
                .filter(|pattern| !sharded && glob::matches(pattern, channel, false))
                .map(|pattern| (SubscriptionKind::Pattern, &**pattern));
            let named = confirmed[kind as usize].contains(channel);
            let found = patterns.chain(named.then_some((kind, channel)));
            for name in found {
                own += i64::from(at == node);
                if at == node || self.pass_on && !sharded {
                    names.insert(name);
                }
            }
        }
        if at_node < own {
            // The node has confirmed some of them after the message.
            return at_node;
        }
        let clients = names.into_iter();
        let clients = clients.map(|(kind, name)| self.registry.subscribers(kind, name) as i64);
        at_node - own + clients.sum::<i64>()
    }

    /// Ends the hub.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_hub();
    }

    /// Returns `true` if the hub must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Wakes the hub's thread.
    pub(crate) fn wake_hub(&self) {
        if let Some(hub) = self.hub.get() {
            hub.wake();
        }
    }
}
