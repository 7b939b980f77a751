//! Queries, replies and commands that pass between the threads with clients and the threads with nodes.

use std::time::Duration;

use bytes::Bytes;

/// A node of the proxy, by its place in [`Nodes`](crate::nodes::Nodes). A place is never given to
/// another node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct NodeIndex(pub(crate) u32);

/// Identifies one connection of a client for ever: a place among the thread's connections is used again
/// with a new number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClientId {
    /// The place among the thread's connections.
    pub(crate) place: u32,
    /// The thread.
    pub(crate) thread: u16,
    /// How many connections had been accepted before it.
    pub(crate) number: u32,
}

/// Selects the connection to a node that a query takes. The protocol and the wire agree on what it
/// means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ConnectionKey(pub(crate) u64);

/// A request on its way to a node, in bytes that the node understands. It comes back with the reply.
#[derive(Debug)]
pub(crate) struct BackendQuery {
    pub(crate) client: ClientId,
    /// The request of the client that it belongs to.
    pub(crate) sequence: u64,
    /// The part of that request that it is.
    pub(crate) part: u32,
    pub(crate) node: NodeIndex,
    pub(crate) connection_key: ConnectionKey,
    pub(crate) bytes: Bytes,
    /// For a connection key of the client's own: the number of the connection that must be used, as a
    /// reply on it gave it.
    pub(crate) connection: Option<u64>,
    /// How many replies the node gives to it; the last one is the answer.
    pub(crate) replies: u32,
    /// It may be sent twice: it changes nothing.
    pub(crate) safe: bool,
    /// Its answer may take any time: it waits for an event, with a connection key of the client's own.
    /// It takes no room from other queries.
    pub(crate) waits: bool,
    /// Data by which the protocol finds its node again.
    pub(crate) route: u32,
    /// The time at which it was first sent, since the proxy's start.
    pub(crate) since: Duration,
    /// How often it has been sent again.
    pub(crate) retries: u32,
}

/// A command to a thread with nodes.
#[derive(Debug)]
pub(crate) enum BackendCommand {
    /// Send this query.
    Send(BackendQuery),
    /// Close the connection with this connection key, which no other client uses.
    HangUp(NodeIndex, ConnectionKey),
    /// Close that connection if nothing is sent on it for a while.
    Release(NodeIndex, ConnectionKey),
}

/// The outcome of a query.
#[derive(Debug)]
pub(crate) struct BackendReply {
    pub(crate) query: BackendQuery,
    /// The number of the connection that it came by, among those of its connection key; see
    /// [`BackendQuery::connection`].
    pub(crate) connection: u64,
    pub(crate) result: Result<BackendAnswer, QueryFailure>,
}

/// A node's answer.
#[derive(Debug)]
pub(crate) struct BackendAnswer {
    /// The last reply.
    pub(crate) bytes: Bytes,
    /// The first of the other replies that was an error, if there was one.
    pub(crate) earlier_error: Option<Bytes>,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum QueryFailure {
    /// The query was not sent: it had no effect.
    Unsent(NodeError),
    /// The query was sent, and the connection was lost: it may have had its effect or not.
    Lost(NodeError),
}

/// The reason why a node, or a connection to it, failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// No connection can be made.
    #[error("cannot be reached ({0})")]
    Unreachable(String),
    /// It does not answer.
    #[error("has not answered for {} ms", .0.as_millis())]
    Silent(Duration),
    /// It lives, but has not answered this query.
    #[error("has not answered this request for {} ms", .0.as_millis())]
    Unanswered(Duration),
    /// It has closed the connection, or the connection broke.
    #[error("has closed the connection ({0})")]
    Closed(String),
    /// It refused the proxy.
    #[error("refuses the proxy: {0}")]
    Refused(String),
    /// It cannot serve the proxy now.
    #[error("cannot serve now: {0}")]
    Unready(String),
    /// It does not know the thing that the connection is for.
    #[error("does not know what is asked for: {0}")]
    Lacks(String),
    /// It lives; a connection to it was given up.
    #[error("was asked on a connection that had to be given up: {0}")]
    Spoilt(String),
    /// It sent bytes that are not of the protocol.
    #[error("does not speak the protocol: {0}")]
    Nonsense(String),
    /// The client that the connection was for has gone.
    #[error("is not waited for any more")]
    HungUp,
    /// The proxy is stopping.
    #[error("is given up, because the proxy stops")]
    Stopping,
}
