//! The proxy's subscriptions at the nodes: one for each name, however many clients subscribe to it. This
//! is a machine without I/O; its [thread](super::subscription_thread) has the connections.
//!
//! | nodes | a channel, a pattern | a shard channel |
//! |---|---|---|
//! | Kumiki, Redis Cluster | any node passes on the messages of all: the node of the name's slot, as long as it is there | the node of its slot |
//! | separate Redis servers | a channel: the server of its slot; a pattern: all servers | the server of its slot |
//!
//! Invariants:
//! 1. A name has subscriptions exactly while it has uses ([`HubRequest`]). All changes of one name at one
//!    node go over one connection, in their order.
//! 2. A request is confirmed when all nodes of all its names have confirmed. It is refused when a node
//!    refuses a name, or when that has taken longer than the limit; its uses end then.
//! 3. A subscription that is lost is made again. While a node cannot be reached, one request at a time
//!    shows if it is back.

mod placement;
mod state;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use channels::frames::SubscriptionChange;
use channels::{ChannelName, SubscriptionKind};
use cluster::slot;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use self::state::{NodeReach, NodeState, OpenRequest, Place, PlaceState, Subscription};
use super::retry_policy::{self, RetryHint};
use super::slot_map::SlotMap;
use super::subscription_service::{
    HubRequest, IncomingMessage, SubscribeRequest, SubscriptionEvent, SubscriptionService,
};
use super::subscription_wire::{NodePush, connection_key, encode};
use crate::node_kind::NodeKind;
use crate::nodes::Nodes;
use crate::runtime::query::{
    BackendAnswer, BackendCommand, BackendQuery, BackendReply, ClientId, NodeIndex, QueryFailure,
};

/// The pause before a name is tried again that a node has refused for now, or a node that failed.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before a name is tried again that a node refuses, and that clients have subscribed to before.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The hub is the only sender of its queries.
pub(crate) const HUB: ClientId = ClientId {
    place: 0,
    thread: 0,
    number: 0,
};

/// See the module documentation.
pub(crate) struct SubscriptionHub {
    kind: NodeKind,
    map: Arc<SlotMap>,
    nodes: Arc<Nodes>,
    service: Arc<SubscriptionService>,
    /// How long a request may wait for confirmations.
    patience: Duration,
    names: HashMap<(SubscriptionKind, ChannelName), u64, RandomState>,
    subscriptions: HashMap<u64, Subscription, RandomState>,
    next: u64,
    requests: HashMap<u64, OpenRequest, RandomState>,
    /// The requests in the order of their deadlines.
    deadlines: VecDeque<(Duration, u64)>,
    links: HashMap<NodeIndex, NodeState, RandomState>,
    /// Commands for the connections.
    pub(crate) orders: VecDeque<BackendCommand>,
}

impl SubscriptionHub {
    pub(crate) fn new(
        kind: NodeKind,
        map: Arc<SlotMap>,
        nodes: Arc<Nodes>,
        service: Arc<SubscriptionService>,
        patience: Duration,
    ) -> SubscriptionHub {
        SubscriptionHub {
            kind,
            map,
            nodes,
            service,
            patience,
            names: HashMap::default(),
            subscriptions: HashMap::default(),
            next: 0,
            requests: HashMap::default(),
            deadlines: VecDeque::new(),
            links: HashMap::default(),
            orders: VecDeque::new(),
        }
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Handles a request of a thread with clients.
    pub(crate) fn handle(&mut self, request: HubRequest, now: Duration) {
        match request {
            HubRequest::Subscribe(request) => self.subscribe(request, now),
            HubRequest::Unsubscribe(kind, name) => self.end_use(kind, &name),
        }
    }

    fn subscribe(&mut self, request: SubscribeRequest, now: Duration) {
        let number = self.next_number();
        let mut missing = 0;
        for name in &*request.wanted.names {
            let subscription = self.subscription(request.wanted.kind, name, now);
            subscription.uses += 1;
            if !subscription.is_confirmed() {
                subscription.waiters.push(number);
                missing += 1;
            }
        }
        if missing == 0 {
            return self.confirm(&request);
        }
        self.deadlines.push_back((now + self.patience, number));
        self.requests
            .insert(number, OpenRequest { request, missing });
    }

    fn confirm(&self, request: &SubscribeRequest) {
        let event = SubscriptionEvent::Subscribed {
            client: request.client,
            sequence: request.sequence,
        };
        self.service.send(request.client.thread.into(), event);
    }

    /// Returns the subscription to a name, which is made if there is none.
    fn subscription(
        &mut self,
        kind: SubscriptionKind,
        name: &ChannelName,
        now: Duration,
    ) -> &mut Subscription {
        let id = match self.names.get(&(kind, Arc::clone(name))) {
            Some(&id) => id,
            None => {
                let id = self.next_number();
                self.names.insert((kind, Arc::clone(name)), id);
                let nodes = self.nodes_of(kind, name);
                let subscription = Subscription {
                    kind,
                    name: Arc::clone(name),
                    uses: 0,
                    places: SmallVec::new(),
                    waiters: Vec::new(),
                };
                self.subscriptions.insert(id, subscription);
                for node in nodes {
                    self.add_place(id, node, now);
                }
                id
            }
        };
        self.subscriptions.get_mut(&id).expect("it has a name")
    }

    fn add_place(&mut self, id: u64, node: NodeIndex, now: Duration) {
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return;
        };
        subscription.places.push(Place {
            node,
            state: PlaceState::Wanted { due: now },
        });
        let link = self.links.entry(node).or_default();
        link.places += 1;
        link.wanted.insert((now, id));
    }

    /// Ends one use of a name.
    fn end_use(&mut self, kind: SubscriptionKind, name: &ChannelName) {
        let Some(&id) = self.names.get(&(kind, Arc::clone(name))) else {
            return;
        };
        let subscription = self.subscriptions.get_mut(&id).expect("it has a name");
        subscription.uses -= 1;
        if subscription.uses > 0 {
            return;
        }
        self.names.remove(&(kind, Arc::clone(name)));
        let mut subscription = self.subscriptions.remove(&id).expect("just seen");
        for place in std::mem::take(&mut subscription.places) {
            self.end_place(id, &subscription, &place);
        }
    }

    /// Ends the subscription at one node.
    fn end_place(&mut self, id: u64, subscription: &Subscription, place: &Place) {
        let Subscription { kind, name, .. } = subscription;
        self.service.note_ended(place.node, *kind, name);
        let link = self.links.get_mut(&place.node).expect("it has the place");
        link.places -= 1;
        let is_unused = link.places == 0;
        match place.state {
            PlaceState::Wanted { due } => drop(link.wanted.remove(&(due, id))),
            PlaceState::Sent | PlaceState::Confirmed => {
                let ends = (SubscriptionChange::Ends, *kind);
                // Its answer is of no interest.
                self.send(0, place.node, encode(ends, name), Duration::ZERO);
            }
        }
        if is_unused {
            let key = connection_key(place.node);
            self.orders
                .push_back(BackendCommand::Release(place.node, key));
        }
    }

    fn send(&mut self, id: u64, node: NodeIndex, bytes: Bytes, now: Duration) {
        self.orders.push_back(BackendCommand::Send(BackendQuery {
            client: HUB,
            sequence: id,
            part: 0,
            node,
            connection_key: connection_key(node),
            bytes,
            connection: None,
            replies: 1,
            safe: true,
            waits: false,
            route: 0,
            since: now,
            retries: 0,
        }));
    }

    /// Makes the subscriptions that are due, and refuses the requests that have waited for too long.
    pub(crate) fn tick(&mut self, now: Duration) {
        let nodes: Vec<NodeIndex> = self.links.keys().copied().collect();
        for node in nodes {
            self.make_due(node, now);
        }
        while let Some(&(due, number)) = self.deadlines.front()
            && due <= now
        {
            self.deadlines.pop_front();
            if let Some(open) = self.requests.get(&number) {
                let error = self.unconfirmed(&open.request);
                self.refuse(number, &error);
            }
        }
    }

    fn make_due(&mut self, node: NodeIndex, now: Duration) {
        let link = self.links.get_mut(&node).expect("it is known");
        let most = match link.reach {
            NodeReach::Good => usize::MAX,
            NodeReach::Failed { again } if again <= now => 1,
            NodeReach::Failed { .. } | NodeReach::Trying => return,
        };
        let mut ids = Vec::new();
        while ids.len() < most
            && let Some(&(due, id)) = link.wanted.first()
            && due <= now
        {
            link.wanted.pop_first();
            ids.push(id);
        }
        if link.reach != NodeReach::Good && !ids.is_empty() {
            link.reach = NodeReach::Trying;
        }
        for id in ids {
            let Some(subscription) = self.subscriptions.get_mut(&id) else {
                continue;
            };
            let begins = (SubscriptionChange::Begins, subscription.kind);
            let bytes = encode(begins, &subscription.name);
            if let Some(place) = subscription.place(node) {
                place.state = PlaceState::Sent;
            }
            self.send(id, node, bytes, now);
        }
    }

    /// Returns how long the hub may wait for events; `None`: for ever.
    pub(crate) fn timeout(&self, now: Duration) -> Option<Duration> {
        let wanted = self.links.values().filter_map(|link| {
            let &(due, _) = link.wanted.first()?;
            match link.reach {
                NodeReach::Good => Some(due),
                NodeReach::Failed { again } => Some(due.max(again)),
                NodeReach::Trying => None,
            }
        });
        let deadline = self.deadlines.front().map(|&(due, _)| due);
        let due = wanted.chain(deadline).min()?;
        Some(due.saturating_sub(now))
    }

    /// Handles the answer to a request to a node. `known` returns the node at an address, if there is
    /// one. Returns `true` if the knowledge of the nodes may be old.
    pub(crate) fn answered(
        &mut self,
        reply: BackendReply,
        known: impl Fn(SocketAddr) -> Option<NodeIndex>,
        now: Duration,
    ) -> bool {
        let (id, node) = (reply.query.sequence, reply.query.node);
        let answer = match reply.result {
            Ok(answer) => answer,
            Err(failure) => {
                self.fail_place(id, node, &failure, now);
                return true;
            }
        };
        if let Some(link) = self.links.get_mut(&node) {
            link.reach = NodeReach::Good;
        }
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return false;
        };
        let Some(place) = subscription.place(node) else {
            return false;
        };
        if answer.bytes.first() != Some(&b'-') {
            place.state = PlaceState::Confirmed;
            self.note_confirmed(id, node);
            return false;
        }
        match retry_policy::hint(&answer) {
            Some(hint) => {
                let other = match hint {
                    RetryHint::Moved { to, .. } | RetryHint::Ask { to, .. } => to.and_then(known),
                    RetryHint::Later | RetryHint::Unknown => None,
                };
                self.move_place(id, node, other.unwrap_or(node), now + PAUSE);
                true
            }
            None => {
                self.refused_by_node(id, node, &answer, now);
                false
            }
        }
    }

    fn note_confirmed(&mut self, id: u64, node: NodeIndex) {
        let subscription = self.subscriptions.get_mut(&id).expect("just seen");
        let (kind, name) = (subscription.kind, Arc::clone(&subscription.name));
        self.service.note_confirmed(node, kind, name);
        if !subscription.is_confirmed() {
            return;
        }
        for number in std::mem::take(&mut subscription.waiters) {
            let Some(open) = self.requests.get_mut(&number) else {
                continue;
            };
            open.missing -= 1;
            if open.missing == 0
                && let Some(open) = self.requests.remove(&number)
            {
                self.confirm(&open.request);
            }
        }
    }

    /// Has a subscription made again after a request or its connection has failed.
    fn fail_place(&mut self, id: u64, node: NodeIndex, why: &QueryFailure, now: Duration) {
        let Some(link) = self.links.get_mut(&node) else {
            return;
        };
        if link.reach != NodeReach::Good || matches!(why, QueryFailure::Unsent(_)) {
            link.reach = NodeReach::Failed { again: now + PAUSE };
        }
        self.want_again(id, node, now);
    }

    fn want_again(&mut self, id: u64, node: NodeIndex, due: Duration) {
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return;
        };
        let Some(place) = subscription.place(node) else {
            return;
        };
        if matches!(place.state, PlaceState::Wanted { .. }) {
            return;
        }
        place.state = PlaceState::Wanted { due };
        let (kind, name) = (subscription.kind, Arc::clone(&subscription.name));
        self.service.note_ended(node, kind, &name);
        let link = self.links.get_mut(&node).expect("it has the place");
        link.wanted.insert((due, id));
    }

    /// Handles that a node refuses a name for good.
    fn refused_by_node(&mut self, id: u64, node: NodeIndex, answer: &BackendAnswer, now: Duration) {
        let address = self.nodes.address(node);
        let error = String::from_utf8_lossy(&answer.bytes);
        self.want_again(id, node, now + REFUSED_PAUSE);
        let waiters = self.subscriptions.get(&id).map(|one| one.waiters.clone());
        let waiters = waiters.unwrap_or_default();
        if waiters.is_empty() {
            tracing::warn!(node = %address, error = error.trim_end(), "a node refuses a subscription that it had");
        }
        for number in waiters {
            self.refuse(number, &answer.bytes);
        }
    }

    /// Refuses a request: its uses end.
    fn refuse(&mut self, number: u64, error: &Bytes) {
        let Some(open) = self.requests.remove(&number) else {
            return;
        };
        let SubscribeRequest {
            client,
            sequence,
            wanted,
        } = open.request;
        for name in &*wanted.names {
            self.end_use(wanted.kind, name);
        }
        let error = error.clone();
        let event = SubscriptionEvent::Refused {
            client,
            sequence,
            error,
        };
        self.service.send(client.thread.into(), event);
    }

    /// Returns the error of a request whose confirmations have not come in time.
    fn unconfirmed(&self, request: &SubscribeRequest) -> Bytes {
        let ids = request.wanted.names.iter().filter_map(|name| {
            let id = self.names.get(&(request.wanted.kind, Arc::clone(name)))?;
            self.subscriptions.get(id)
        });
        let mut missing = ids.flat_map(|one| &one.places);
        let missing = missing.find(|place| place.state != PlaceState::Confirmed);
        let node = missing.map_or_else(
            || "a node".to_owned(),
            |place| format!("node {}", self.nodes.address(place.node)),
        );
        let text = format!("-LOADING {node} does not confirm the subscription");
        format!("{text}{}\r\n", retry_policy::NOTHING).into()
    }

    /// Handles something that came without a request.
    pub(crate) fn pushed(&mut self, push: NodePush, now: Duration) {
        match push {
            NodePush::Message { message, pattern } => {
                let message = Arc::new(IncomingMessage::new(message, pattern));
                let (kind, name) = message.subscription();
                for thread in self.service.registry.runtimes_with(kind, name) {
                    let event = SubscriptionEvent::Message(Arc::clone(&message));
                    self.service.send(thread, event);
                }
            }
            NodePush::Ended { node, name } => {
                let key = (SubscriptionKind::ShardChannel, ChannelName::from(name));
                if let Some(&id) = self.names.get(&key) {
                    let there = self.map.of_slot(slot::of(&key.1));
                    self.move_place(id, node, there, now + PAUSE);
                }
            }
            NodePush::Lost { node } => self.lost(node, now),
            // They are for the other hub.
            NodePush::Changed { .. } | NodePush::NewsLost { .. } => {}
        }
    }

    /// Has the subscriptions made again that were on a connection.
    fn lost(&mut self, node: NodeIndex, now: Duration) {
        let confirmed = self.subscriptions.iter_mut().filter_map(|(&id, one)| {
            let place = one.place(node)?;
            (place.state == PlaceState::Confirmed).then_some(id)
        });
        let confirmed: Vec<u64> = confirmed.collect();
        if confirmed.is_empty() {
            return;
        }
        let (address, count) = (self.nodes.address(node), confirmed.len());
        tracing::warn!(node = %address, subscriptions = count,
            "the connection with the subscriptions at a node is lost: they are made again, and messages are missing");
        for id in confirmed {
            self.want_again(id, node, now);
        }
        if let Some(link) = self.links.get_mut(&node) {
            link.reach = NodeReach::Failed { again: now };
        }
    }
}

#[cfg(test)]
mod tests;
