//! What travels between the threads that have clients and those that have nodes.

use std::time::Duration;

use bytes::Bytes;

/// A node that the proxy stands before, by its place in [`Nodes`](crate::nodes::Nodes). A place is
/// never given to another node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct NodeIndex(pub(crate) u32);

/// A connection of a client, and never another one: a place among the
/// thread's connections is used again with a new number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClientId {
    /// The place among the thread's connections.
    pub(crate) place: u32,
    /// The thread.
    pub(crate) thread: u16,
    /// How many connections had been accepted before it.
    pub(crate) number: u32,
}

/// Which of the connections to a node a query takes. The protocol and the wire agree on what it means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ConnectionKey(pub(crate) u64);

/// A request on its way to a node, as bytes that the node understands. It comes back with the reply.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) client: ClientId,
    /// Which request of the client it belongs to.
    pub(crate) sequence: u64,
    /// Which part of that request it is.
    pub(crate) part: u32,
    pub(crate) node: NodeIndex,
    pub(crate) connection_key: ConnectionKey,
    pub(crate) bytes: Bytes,
    /// Of a connection key of the client's own: which of its connections it must be, as a reply on it told.
    pub(crate) connection: Option<u64>,
    /// How many replies the node gives to it; the last one counts.
    pub(crate) replies: u32,
    /// Whether it may be given twice: it changes nothing.
    pub(crate) safe: bool,
    /// Whether its answer may take as long as it likes: it waits for something to happen, on a connection key
    /// of the client's own. It takes no room from others.
    pub(crate) waits: bool,
    /// What the protocol needs to find its node again.
    pub(crate) route: u32,
    /// When it was sent for the first time, since the proxy's start.
    pub(crate) since: Duration,
    /// How often it has been sent again.
    pub(crate) retries: u32,
}

/// What a thread with nodes is to do.
#[derive(Debug)]
pub(crate) enum BackendCommand {
    /// Send this.
    Send(Query),
    /// Close the connection of this connection key, which nobody else uses.
    HangUp(NodeIndex, ConnectionKey),
    /// The same, if nothing is sent on it for a while.
    Release(NodeIndex, ConnectionKey),
}

/// What became of a query.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) query: Query,
    /// Which of its connection key's connections it came by; see [`Query::connection`].
    pub(crate) connection: u64,
    pub(crate) result: Result<Answer, Failure>,
}

/// What a node answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The last reply.
    pub(crate) bytes: Bytes,
    /// The first of the other replies that was an error, if there was one.
    pub(crate) earlier_error: Option<Bytes>,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The query was not sent: nothing has happened.
    Unsent(NodeError),
    /// The query was sent, and the connection was lost: what has happened is not known.
    Lost(NodeError),
}

/// What is wrong with a node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// No connection can be made.
    #[error("cannot be reached ({0})")]
    Unreachable(String),
    /// It does not answer.
    #[error("has not answered for {} ms", .0.as_millis())]
    Silent(Duration),
    /// It lives, but has not answered this one query.
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
    /// It does not know what the connection is for.
    #[error("does not know what is asked for: {0}")]
    Lacks(String),
    /// It lives; a connection to it was given up.
    #[error("was asked on a connection that had to be given up: {0}")]
    Spoilt(String),
    /// It sent what is not of the protocol.
    #[error("does not speak the protocol: {0}")]
    Nonsense(String),
    /// Whom the connection was for has gone.
    #[error("is not waited for any more")]
    HungUp,
    /// The proxy is stopping.
    #[error("is given up, because the proxy stops")]
    Stopping,
}
