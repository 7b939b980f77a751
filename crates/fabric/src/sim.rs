//! Links over a simulated network: virtual time, and faults, all from one seed.
//!
//! A [`Network`] is used by one thread. The caller lets time pass with [`Network::step`] or
//! [`Network::advance`]; then endpoints may have something to
//! [`receive`](crate::Messages::receive). The same seed and the same calls give the same schedule:
//! there is no other clock and no other randomness.
//!
//! | event | caused by |
//! |---|---|
//! | messages take time, each link's its own: links overtake each other | [`Options::delay`], [`Options::slow_delay`] |
//! | a connection breaks: a prefix of the messages in transit arrives, in each direction | [`Options::breaks`], [`Network::break_link`], [`Network::break_links`] |
//! | a direction between two places is blocked; messages in transit wait | [`Network::partition`], [`Network::partition_one_way`] |
//! | … for so long that both ends give up | [`Options::dead_after`] |
//! | an endpoint crashes: messages that it had not flushed are lost, and a prefix of those in transit arrives | [`Network::crash`] |
//! | … with its machine: the others notice by silence | [`Options::silent_crashes`] |
//! | no node is there: connecting is refused, or there is no answer | after a crash |
//! | a direction is slow, a receiver does not receive: senders meet [`SendError::Full`](crate::SendError::Full) | [`Network::slow`], [`Options::queue`] |
//!
//! Messages leave when they are flushed, not when they are sent: this reveals callers that forget
//! to flush.

mod endpoint;
mod exchange;
mod fault;
mod wire;
mod world;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::NodeId;

pub use endpoint::Endpoint;

use crate::messages::{Link, Peer};
use world::World;

/// A place in the network: faults happen between places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// The place of a node.
    Node(NodeId),
    /// The place of a client, which has a number of its own.
    Client(u32),
}

impl From<NodeId> for Place {
    fn from(node: NodeId) -> Place {
        Place::Node(node)
    }
}

impl Place {
    fn peer(self) -> Peer {
        match self {
            Place::Node(id) => Peer::Node(id),
            Place::Client(_) => Peer::Client,
        }
    }
}

/// The behaviour of the network by itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// The delay of a message.
    pub delay: Range<Duration>,
    /// The share of messages that take `slow_delay` instead.
    pub slow_share: f64,
    /// The delay of those messages.
    pub slow_delay: Range<Duration>,
    /// The share of messages at which the connection breaks.
    pub breaks: f64,
    /// The share of crashes that take the machine with them: the peers are not informed.
    pub silent_crashes: f64,
    /// The silence of a peer after which a link goes down: between this and 1.2 times as long.
    pub dead_after: Duration,
    /// The greatest time for connecting.
    pub connect_limit: Duration,
    /// Bytes that may wait to be sent on a link, or be in transit; a single message may be longer.
    pub queue: usize,
    /// Bytes of the longest message.
    pub message: usize,
}

impl Default for Options {
    /// Returns the options of a calm network: messages take 20 to 200 µs, nothing breaks.
    fn default() -> Options {
        Options {
            delay: Duration::from_micros(20)..Duration::from_micros(200),
            slow_share: 0.0,
            slow_delay: Duration::from_millis(1)..Duration::from_millis(50),
            breaks: 0.0,
            silent_crashes: 0.0,
            dead_after: Duration::from_secs(10),
            connect_limit: Duration::from_secs(5),
            queue: 1 << 20,
            message: 1 << 30,
        }
    }
}

/// See the module's description. A clone is the same network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<World>>);

impl Network {
    /// Makes a network without endpoints.
    #[must_use]
    pub fn new(seed: u64, options: Options) -> Network {
        Network(Rc::new(RefCell::new(World::new(seed, options))))
    }

    /// Makes the endpoint of a node, to which others can connect from now on.
    ///
    /// # Panics
    /// Panics if the node has one; after a crash, use [`Network::restart`].
    #[must_use]
    pub fn endpoint(&self, node: NodeId) -> Endpoint {
        self.settle(Place::Node(node))
    }

    /// Makes the endpoint of a new client.
    #[must_use]
    pub fn client(&self) -> Endpoint {
        let place = self.0.borrow_mut().next_client();
        self.settle(place)
    }

    fn settle(&self, place: Place) -> Endpoint {
        let number = self.0.borrow_mut().settle(place);
        Endpoint::new(Rc::clone(&self.0), place, number)
    }

    /// Returns the time since the network began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.borrow().now()
    }

    /// Returns the time of the next event, if there will be one.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Duration> {
        self.0.borrow().next_event_at()
    }

    /// Lets time pass until the next event, which then happens. Returns `true` if there was one.
    pub fn step(&self) -> bool {
        self.0.borrow_mut().step()
    }

    /// Lets time pass until `to`, with all events until then.
    pub fn advance(&self, to: Duration) {
        self.0.borrow_mut().advance(to);
    }

    /// Blocks both directions between two places.
    pub fn partition(&self, a: impl Into<Place>, b: impl Into<Place>) {
        let (a, b) = (a.into(), b.into());
        self.partition_one_way(a, b);
        self.partition_one_way(b, a);
    }

    /// Blocks the direction from one place to another.
    pub fn partition_one_way(&self, from: impl Into<Place>, to: impl Into<Place>) {
        self.0.borrow_mut().block(from.into(), to.into());
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        self.0.borrow_mut().heal(|_, _| true);
    }

    /// Ends the partitions between two places.
    pub fn heal_between(&self, a: impl Into<Place>, b: impl Into<Place>) {
        let (a, b) = (a.into(), b.into());
        let is_meant = |from, to| (from, to) == (a, b) || (from, to) == (b, a);
        self.0.borrow_mut().heal(is_meant);
    }

    /// Ends a place's endpoint: nothing arrives there any more, and what it has not flushed is
    /// lost. Its handle is of no use any more.
    pub fn crash(&self, place: impl Into<Place>) {
        self.0.borrow_mut().crash(place.into());
    }

    /// Makes a new endpoint of a node that has crashed.
    ///
    /// # Panics
    /// Panics if the node has not crashed.
    #[must_use]
    pub fn restart(&self, node: NodeId) -> Endpoint {
        self.settle(Place::Node(node))
    }

    /// Returns `true` if a place has an endpoint.
    #[must_use]
    pub fn is_alive(&self, place: impl Into<Place>) -> bool {
        self.0.borrow().is_alive(place.into())
    }

    /// Breaks the connection of a link, if it exists.
    pub fn break_link(&self, link: Link) {
        self.0
            .borrow_mut()
            .break_where(|ends, _| ends.contains(&link));
    }

    /// Breaks all connections between two places.
    pub fn break_links(&self, a: impl Into<Place>, b: impl Into<Place>) {
        let (a, b) = (a.into(), b.into());
        self.0
            .borrow_mut()
            .break_where(|_, places| places == [a, b] || places == [b, a]);
    }

    /// Limits the rate of one direction from now on; `None` ends the limit.
    pub fn slow(&self, from: impl Into<Place>, to: impl Into<Place>, bytes_per_s: Option<u64>) {
        self.0
            .borrow_mut()
            .slow(from.into(), to.into(), bytes_per_s);
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Network at {:?}", self.now())
    }
}
