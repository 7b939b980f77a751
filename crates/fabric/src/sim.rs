//! Links over a simulated network: virtual time, and faults, all from one seed.
//!
//! A [`Network`] is used by one thread. The caller lets time pass with [`Network::step`] or
//! [`Network::advance`]; then endpoints may have something to
//! [`receive`](Endpoint::receive). The same seed and the same calls give the same schedule:
//! there is no other clock and no other randomness.
//!
//! | event | caused by |
//! |---|---|
//! | messages take time, each link's its own: links overtake each other | [`Options::delay`], [`Options::slow_delay`] |
//! | a connection breaks: a prefix of the messages in transit arrives, in each direction | [`Options::breaks`], [`Network::break_link`], [`Network::break_links`] |
//! | a direction between two hosts is blocked; messages in transit wait | [`Network::partition`], [`Network::partition_one_way`] |
//! | … for so long that both ends give up | [`Options::dead_after`] |
//! | an endpoint crashes: messages that it had not flushed are lost, and a prefix of those in transit arrives | [`Network::crash`] |
//! | … with its machine: the others notice by silence | [`Options::silent_crashes`] |
//! | no node is there: connecting is refused, or there is no answer | after a crash |
//! | a direction is slow, a receiver does not receive: senders meet [`SendError::Full`](crate::SendError::Full) | [`Network::slow`], [`Options::queue`] |
//!
//! Messages leave when they are flushed, not when they are sent: this reveals callers that forget
//! to flush.

mod connection;
mod endpoint;
mod exchange;
mod fault;
mod host;
mod network_state;
mod options;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base::NodeId;

pub use endpoint::Endpoint;
pub use host::NetworkHost;
pub use options::Options;

use crate::link::Link;
use network_state::NetworkState;

/// See the module's description. A clone is the same network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<NetworkState>>);

impl Network {
    /// Makes a network without endpoints.
    #[must_use]
    pub fn new(seed: u64, options: Options) -> Network {
        Network(Rc::new(RefCell::new(NetworkState::new(seed, options))))
    }

    /// Makes the endpoint of a node, to which others can connect from now on.
    ///
    /// # Panics
    /// Panics if the node has one; after a crash, use [`Network::restart`].
    #[must_use]
    pub fn endpoint(&self, node: NodeId) -> Endpoint {
        self.add_endpoint(NetworkHost::Node(node))
    }

    /// Makes the endpoint of a new client.
    #[must_use]
    pub fn client(&self) -> Endpoint {
        let host = self.0.borrow_mut().next_client();
        self.add_endpoint(host)
    }

    fn add_endpoint(&self, host: NetworkHost) -> Endpoint {
        let number = self.0.borrow_mut().add_endpoint(host);
        Endpoint::new(Rc::clone(&self.0), host, number)
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

    /// Blocks both directions between two hosts.
    pub fn partition(&self, a: impl Into<NetworkHost>, b: impl Into<NetworkHost>) {
        let (a, b) = (a.into(), b.into());
        self.partition_one_way(a, b);
        self.partition_one_way(b, a);
    }

    /// Blocks the direction from one host to another.
    pub fn partition_one_way(&self, from: impl Into<NetworkHost>, to: impl Into<NetworkHost>) {
        self.0.borrow_mut().block(from.into(), to.into());
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        self.0.borrow_mut().heal(|_, _| true);
    }

    /// Ends the partitions between two hosts.
    pub fn heal_between(&self, a: impl Into<NetworkHost>, b: impl Into<NetworkHost>) {
        let (a, b) = (a.into(), b.into());
        let is_meant = |from, to| (from, to) == (a, b) || (from, to) == (b, a);
        self.0.borrow_mut().heal(is_meant);
    }

    /// Ends a host's endpoint: nothing arrives there any more, and what it has not flushed is
    /// lost. Its handle is of no use any more.
    pub fn crash(&self, host: impl Into<NetworkHost>) {
        self.0.borrow_mut().crash(host.into());
    }

    /// Makes a new endpoint of a node that has crashed.
    ///
    /// # Panics
    /// Panics if the node has not crashed.
    #[must_use]
    pub fn restart(&self, node: NodeId) -> Endpoint {
        self.add_endpoint(NetworkHost::Node(node))
    }

    /// Returns `true` if a host has an endpoint.
    #[must_use]
    pub fn is_alive(&self, host: impl Into<NetworkHost>) -> bool {
        self.0.borrow().is_alive(host.into())
    }

    /// Breaks the connection of a link, if it exists.
    pub fn break_link(&self, link: Link) {
        self.0
            .borrow_mut()
            .break_where(|ends, _| ends.contains(&link));
    }

    /// Breaks all connections between two hosts.
    pub fn break_links(&self, a: impl Into<NetworkHost>, b: impl Into<NetworkHost>) {
        let (a, b) = (a.into(), b.into());
        self.0
            .borrow_mut()
            .break_where(|_, hosts| hosts == [a, b] || hosts == [b, a]);
    }

    /// Limits the rate of one direction from now on; `None` ends the limit.
    pub fn slow(
        &self,
        from: impl Into<NetworkHost>,
        to: impl Into<NetworkHost>,
        bytes_per_s: Option<u64>,
    ) {
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
