//! The node side of a protocol.

use std::time::Duration;

use bytes::BytesMut;

use super::out_batch::OutBatch;
use super::query::{BackendAnswer, BackendQuery, ConnectionKey, NodeError};

/// Why a connection is of no use any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WireError {
    /// The node sent bytes that are not of the protocol.
    Nonsense(String),
    /// The node refuses the proxy, for example its password. So will any other node.
    Refused(String),
    /// The node cannot serve the proxy now. Another node may.
    Unready(String),
    /// The node does not know the thing that the connection is for. Another node may.
    Lacks(String),
    /// The node lives, but this connection is in a wrong state.
    Spoilt(String),
}

/// Remembers the queries that are under way on one connection to a node, puts them into batches, and
/// finds their replies in the input. It makes no system calls.
pub(crate) trait Wire: Send + 'static {
    /// The settings of all connections to nodes.
    type Options: Send + Sync + 'static;

    /// `true` if connections are shared by clients: a lost connection is made again without a query for
    /// it, so that the proxy notices when its node is back, and a connection that no client needs is
    /// closed.
    const SHARED: bool = false;

    /// Sets up a connection that has just been made. Puts its first bytes to the node into `pack`.
    fn open(
        options: &Self::Options,
        connection_key: ConnectionKey,
        pack: &mut OutBatch,
        now: Duration,
    ) -> Self;

    /// Returns `true` if a query can be put: the node has accepted the proxy, and there is room for one
    /// more.
    fn has_room(&self) -> bool;

    /// Returns `true` if the node has accepted the proxy.
    fn is_welcome(&self) -> bool {
        true
    }

    /// Puts a query after the others.
    fn put(&mut self, query: BackendQuery, pack: &mut OutBatch, now: Duration);

    /// Ends the part of the batch that was put since the last call, and adds what the wire itself has
    /// to send. The batch is about to be written, if it is not empty.
    fn seal(&mut self, pack: &mut OutBatch);

    /// Returns `true` if a request that shows if the node lives may be sent to a node that has been
    /// silent for long.
    fn may_ask(&self) -> bool {
        self.under_way() == 0 && self.oldest().is_none()
    }

    /// Puts a request of the proxy's own that shows if the node answers.
    fn probe(&mut self, pack: &mut OutBatch, now: Duration);

    /// Takes whole replies from the start of `input` and passes each on with its query.
    ///
    /// # Errors
    /// Returns an error if the connection is of no use any more; the queries that are under way are
    /// lost.
    fn receive(
        &mut self,
        input: &mut BytesMut,
        told: &mut dyn FnMut(BackendQuery, BackendAnswer),
    ) -> Result<(), WireError>;

    /// Returns how many queries are under way.
    fn under_way(&self) -> usize;

    /// Returns the time, since the proxy's start, at which the oldest request was put that is under way
    /// and must be answered soon.
    fn oldest(&self) -> Option<Duration>;

    /// Gives up queries to which a node that lives has not replied for too long, as measured by
    /// `timeout`. A reply that still comes is dropped. Called regularly.
    fn give_up_late(
        &mut self,
        _now: Duration,
        _timeout: Duration,
        _given_up: &mut dyn FnMut(BackendQuery, NodeError),
    ) {
    }

    /// Gives up all queries that are under way.
    fn abandon(&mut self, given_up: &mut dyn FnMut(BackendQuery));
}
