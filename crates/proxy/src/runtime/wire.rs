//! A protocol as a connection to a node speaks it.

use std::time::Duration;

use bytes::BytesMut;

use super::out_batch::OutBatch;
use super::query::{Answer, ConnectionKey, NodeError, Query};

/// The connection is of no use any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WireError {
    /// The node sent what is not of the protocol.
    Nonsense(String),
    /// The node refuses the proxy, for example its password. So will any other.
    Refused(String),
    /// The node cannot serve the proxy now. Another may.
    Unready(String),
    /// The node does not know what the connection is for. Another may.
    Lacks(String),
    /// The node lives, but this connection is not what it should be any more.
    Spoilt(String),
}

/// Remembers which queries are under way on one connection to a node, puts them into batches, and
/// finds their replies in what comes. It makes no system calls.
pub(crate) trait Wire: Send + 'static {
    /// How all connections to nodes are set up.
    type Options: Send + Sync + 'static;

    /// Whether connections belong to nobody: one that is lost is made again by itself, so that it is
    /// known when its node is back, and one that nobody needs is closed.
    const SHARED: bool = false;

    /// A connection that has just been made. What it has to say first is put into `pack`.
    fn open(
        options: &Self::Options,
        connection_key: ConnectionKey,
        pack: &mut OutBatch,
        now: Duration,
    ) -> Self;

    /// Whether queries can be put: the node has accepted the proxy, and there is room for one more.
    fn has_room(&self) -> bool;

    /// Whether the node has accepted the proxy.
    fn is_welcome(&self) -> bool {
        true
    }

    /// Puts a query behind the others.
    fn put(&mut self, query: Query, pack: &mut OutBatch, now: Duration);

    /// Ends what was put since the last time, and puts what the wire has to say itself: the batch is
    /// about to be written, if there is anything in it.
    fn seal(&mut self, pack: &mut OutBatch);

    /// Whether a node that has been silent for long may be asked whether it lives.
    fn may_ask(&self) -> bool {
        self.under_way() == 0 && self.oldest().is_none()
    }

    /// Puts a request of the proxy's own that shows whether the node answers.
    fn ask_for_life(&mut self, pack: &mut OutBatch, now: Duration);

    /// Takes whole replies from the start of `input` and tells them, each with its query.
    ///
    /// # Errors
    /// The connection is of no use any more; what is under way is lost.
    fn receive(
        &mut self,
        input: &mut BytesMut,
        told: &mut dyn FnMut(Query, Answer),
    ) -> Result<(), WireError>;

    /// How many queries are under way.
    fn under_way(&self) -> usize;

    /// When the oldest request that is under way and must be answered soon was put, in time since
    /// the proxy's start.
    fn oldest(&self) -> Option<Duration>;

    /// Gives up queries to which a node that lives has not replied for too long, as measured by its
    /// `timeout`. The reply may still come; it is nobody's then. To be called now and then.
    fn give_up_late(
        &mut self,
        _now: Duration,
        _timeout: Duration,
        _given_up: &mut dyn FnMut(Query, NodeError),
    ) {
    }

    /// Gives up all queries that are under way.
    fn abandon(&mut self, given_up: &mut dyn FnMut(Query));
}
