//! A protocol as clients speak it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::inflight_budget::InflightBudget;
use super::out_batch::OutBatch;
use super::query::{BackendCommand, ClientId, ConnectionKey, NodeIndex, Query, Reply};
use crate::locks::Outcome;

/// How far a client's input was worked off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// All whole requests; what is left needs more behind it.
    Done,
    /// The next request waits until one of the client's earlier requests has its reply.
    AwaitsReply,
    /// The next request waits until its node has room for more queries.
    AwaitsRoom,
    /// The connection is to be closed once its replies are written.
    Close,
}

/// An answer that no node gave: from the locks.
pub(crate) struct LockReply {
    pub(crate) client: ClientId,
    /// Which request of the client it answers.
    pub(crate) sequence: u64,
    pub(crate) outcome: Outcome,
}

/// Why nobody waits any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The client will send nothing more; most often it is gone.
    Client,
    /// The proxy is stopping.
    Proxy,
}

/// Reads requests, has them become queries, and makes replies of what comes back. It makes no system
/// calls. Each thread with clients has one.
pub(crate) trait ClientProtocol: Send + 'static {
    /// What is remembered of a client.
    type Client: Send;

    /// A client has connected.
    fn admit(&mut self, id: ClientId, address: SocketAddr) -> Self::Client;

    /// How long a client may take until [`ClientProtocol::has_begun`]; `None`: as long as it wants.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Whether a client has said all that it must say before it can ask anything. One that has, has
    /// for ever.
    fn has_begun(&self, _: &Self::Client) -> bool {
        true
    }

    /// Whether a part of a request has come whose rest is to come, when all whole ones have been worked
    /// off and this is what is left.
    fn is_midway(&self, _: &Self::Client, rest: &BytesMut) -> bool {
        !rest.is_empty()
    }

    /// Works off what the client has sent.
    fn read(
        &mut self,
        client: &mut Self::Client,
        input: &mut BytesMut,
        context: &mut RequestContext<'_>,
    ) -> Progress;

    /// A query of the client has come back.
    fn reply(&mut self, client: &mut Self::Client, reply: Reply, context: &mut RequestContext<'_>);

    /// Whether a reply that the client waits for may never come: if the client goes, so does its
    /// connection, at once.
    fn may_wait_for_ever(&self, _: &Self::Client) -> bool {
        false
    }

    /// The client is gone; queries of its own connection keys can be given up.
    fn gone(&mut self, client: &mut Self::Client, context: &mut RequestContext<'_>);

    /// Answers that have come for this thread's clients from elsewhere than nodes. Each belongs to a
    /// request for which [`RequestContext::wait_for_letter`] was called.
    fn collect(&mut self, _into: &mut Vec<LockReply>) {}

    /// Whether there are such: asked before sleeping.
    fn has_lock_replies(&self) -> bool {
        false
    }

    /// An answer from elsewhere than a node.
    fn deliver(
        &mut self,
        _client: &mut Self::Client,
        _letter: LockReply,
        _desk: &mut RequestContext<'_>,
    ) {
    }

    /// Whatever the client waits for without end is to be given up. May be told several times.
    /// Whether there was anything.
    fn ended(
        &mut self,
        _client: &mut Self::Client,
        _why: Ended,
        _desk: &mut RequestContext<'_>,
    ) -> bool {
        false
    }

    /// To be called now and then, and before anything is read.
    fn refresh(&mut self, now: Duration);

    /// Whether there is something that clients are to be told without having asked, or that they
    /// wait for besides replies. It is asked before [`ClientProtocol::refresh`], which takes it.
    fn has_news(&self) -> bool {
        false
    }

    /// Tells a client what [`ClientProtocol::refresh`] has taken.
    fn tell(&mut self, _: &mut Self::Client, _: &mut RequestContext<'_>) {}

    /// Puts what has been gathered for the client: it is about to be written.
    fn seal(&mut self, _: &mut Self::Client, _: &mut OutBatch) {}

    /// Replies that a client has not taken, in bytes, beyond which nothing more is read of it.
    fn unread(&self) -> usize {
        usize::MAX
    }

    /// What a client is told that there is no room for.
    fn refusal(&self) -> &'static [u8];
}

/// Where a protocol leaves what it makes of one client's requests and replies.
pub(crate) struct RequestContext<'a> {
    pub(crate) id: ClientId,
    /// Time since the proxy's start.
    pub(crate) now: Duration,
    /// To the client.
    pub(crate) out: &'a mut OutBatch,
    /// To the nodes.
    pub(crate) orders: &'a mut Vec<BackendCommand>,
    /// To the nodes, at a later time since the proxy's start.
    pub(crate) later: &'a mut Vec<(Duration, Query)>,
    pub(crate) inflight: &'a mut InflightBudget,
    /// Queries of this client that are with nodes, or are to be sent later.
    pub(crate) under_way: &'a mut u32,
}

/// What a query asks for, besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub(crate) sequence: u64,
    pub(crate) part: u32,
    pub(crate) node: NodeIndex,
    pub(crate) connection_key: ConnectionKey,
    pub(crate) replies: u32,
    pub(crate) safe: bool,
    pub(crate) route: u32,
    pub(crate) connection: Option<u64>,
}

impl RequestContext<'_> {
    /// Whether the node takes one more query.
    pub(crate) fn has_room(&mut self, node: NodeIndex) -> bool {
        self.inflight.has_one(node)
    }

    /// Whether all these nodes take so many queries at once.
    pub(crate) fn has_room_for_all(&mut self, wanted: &[(NodeIndex, u32)]) -> bool {
        self.inflight.has_all(wanted)
    }

    /// How many queries of this thread are with the node.
    pub(crate) fn load(&mut self, node: NodeIndex) -> u32 {
        self.inflight.taken(node)
    }

    /// Sends a query to its node.
    pub(crate) fn send(&mut self, dispatch: Dispatch, bytes: Bytes) {
        self.send_query(dispatch, bytes, false);
    }

    /// Sends a query that may wait for ever, on a connection key that only this client uses. It takes no room:
    /// however many wait, the node's other clients go on.
    pub(crate) fn send_waiting(&mut self, dispatch: Dispatch, bytes: Bytes) {
        self.send_query(dispatch, bytes, true);
    }

    fn send_query(&mut self, dispatch: Dispatch, bytes: Bytes, waits: bool) {
        let query = Query {
            client: self.id,
            sequence: dispatch.sequence,
            part: dispatch.part,
            node: dispatch.node,
            connection_key: dispatch.connection_key,
            bytes,
            replies: dispatch.replies,
            safe: dispatch.safe,
            waits,
            route: dispatch.route,
            connection: dispatch.connection,
            since: self.now,
            retries: 0,
        };
        self.inflight.take(&query);
        *self.under_way += 1;
        self.orders.push(BackendCommand::Send(query));
    }

    /// Sends a query that came back once more, to `node`, after `pause`.
    pub(crate) fn send_again(&mut self, mut query: Query, node: NodeIndex, pause: Duration) {
        *self.under_way += 1;
        query.node = node;
        query.retries += 1;
        if pause.is_zero() {
            self.inflight.take(&query);
            self.orders.push(BackendCommand::Send(query));
        } else {
            self.later.push((self.now + pause, query));
        }
    }

    /// The client waits for a lock reply.
    pub(crate) fn wait_for_lock_reply(&mut self) {
        *self.under_way += 1;
    }

    /// It does not wait any more.
    pub(crate) fn forget_lock_reply(&mut self) {
        *self.under_way -= 1;
    }

    /// Closes the connection of a connection key that only this client uses.
    pub(crate) fn hang_up(&mut self, node: NodeIndex, connection_key: ConnectionKey) {
        self.orders
            .push(BackendCommand::HangUp(node, connection_key));
    }

    /// Has it closed soon, if this client does not use it again.
    pub(crate) fn release(&mut self, node: NodeIndex, connection_key: ConnectionKey) {
        self.orders
            .push(BackendCommand::Release(node, connection_key));
    }
}
