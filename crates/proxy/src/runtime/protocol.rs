//! The client side of a protocol.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::inflight_budget::InflightBudget;
use super::out_batch::OutBatch;
use super::query::{
    BackendCommand, BackendQuery, BackendReply, ClientId, ConnectionKey, NodeIndex,
};

/// How far a client's input was worked off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InputProgress {
    /// All whole requests were worked off; the rest is an incomplete request, or empty.
    Done,
    /// The next request waits until one of the client's earlier requests has its reply.
    AwaitsReply,
    /// The next request waits until its node has room for more queries.
    AwaitsRoom,
    /// The connection is to be closed once its replies are written.
    Close,
}

/// A reply that no node gives: a service of the proxy itself does, some time after the request. Or a message
/// for the client.
pub(crate) struct DeferredReply<T> {
    pub(crate) client: ClientId,
    /// The request of the client that it answers.
    pub(crate) sequence: u64,
    /// [`RequestContext::await_deferred_reply`] was called for it. Otherwise no request asked for it.
    pub(crate) is_awaited: bool,
    pub(crate) outcome: T,
}

impl<T> DeferredReply<T> {
    /// Returns the reply to a request that waits for it.
    pub(crate) fn awaited(client: ClientId, sequence: u64, outcome: T) -> DeferredReply<T> {
        DeferredReply {
            client,
            sequence,
            is_awaited: true,
            outcome,
        }
    }
}

/// Why a client no longer waits for its replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndReason {
    /// The client will send nothing more; most often it is gone.
    Client,
    /// The proxy is stopping.
    Proxy,
}

/// Reads requests, turns them into queries, and makes replies of the nodes' answers. It makes no system
/// calls. Each thread with clients has one.
pub(crate) trait ClientProtocol: Send + 'static {
    /// The state of one client.
    type Client: Send;

    /// The outcome that a [`DeferredReply`] carries.
    type Outcome: Send;

    /// Creates the state of a client that has connected.
    fn admit(&mut self, id: ClientId, address: SocketAddr) -> Self::Client;

    /// Returns how long a client may take until [`ClientProtocol::has_begun`]; `None`: there is no
    /// limit.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Returns `true` if a client has sent all that it must send before its first request. From then on
    /// it has unlimited time.
    fn has_begun(&self, _: &Self::Client) -> bool {
        true
    }

    /// Returns `true` if a part of a request has come, with more to follow. `rest` is what is left when
    /// all whole requests have been worked off.
    fn is_midway(&self, _: &Self::Client, rest: &BytesMut) -> bool {
        !rest.is_empty()
    }

    /// Works off the client's input.
    fn read(
        &mut self,
        client: &mut Self::Client,
        input: &mut BytesMut,
        context: &mut RequestContext<'_>,
    ) -> InputProgress;

    /// Handles the answer to a query of the client.
    fn reply(
        &mut self,
        client: &mut Self::Client,
        reply: BackendReply,
        context: &mut RequestContext<'_>,
    );

    /// Returns `true` if the client waits for a reply that may never come: then its connection is
    /// closed at once when the client goes.
    fn may_wait_for_ever(&self, _: &Self::Client) -> bool {
        false
    }

    /// Returns `true` if the connection is to be closed as soon as the client's output is written. The client's other
    /// commands get no replies then.
    fn is_over(&self, _: &Self::Client) -> bool {
        false
    }

    /// Handles that the client is gone; queries with its own connection keys can be given up.
    fn gone(&mut self, client: &mut Self::Client, context: &mut RequestContext<'_>);

    /// Appends the deferred replies for this thread's clients that are there at `now`.
    fn collect(&mut self, _now: Duration, _into: &mut Vec<DeferredReply<Self::Outcome>>) {}

    /// Returns `true` if there are deferred replies. Called before the thread sleeps.
    fn has_deferred_replies(&self) -> bool {
        false
    }

    /// Returns the time at which the next deferred reply comes that only time brings.
    fn next_deferred_reply(&self) -> Option<Duration> {
        None
    }

    /// Gives the client a deferred reply.
    fn deliver(
        &mut self,
        _client: &mut Self::Client,
        _reply: DeferredReply<Self::Outcome>,
        _context: &mut RequestContext<'_>,
    ) {
    }

    /// Gives up the requests of the client that may wait without end. It may be called several times.
    /// Returns `true` if there were any.
    fn ended(
        &mut self,
        _client: &mut Self::Client,
        _why: EndReason,
        _context: &mut RequestContext<'_>,
    ) -> bool {
        false
    }

    /// Takes over changes from other threads. Called regularly, and before anything is read.
    fn refresh(&mut self, now: Duration);

    /// Returns `true` if there is news that clients get without having asked, or for which they wait
    /// besides replies. Called before [`ClientProtocol::refresh`], which takes the news.
    fn has_notices(&self) -> bool {
        false
    }

    /// Tells a client the news that [`ClientProtocol::refresh`] has taken.
    fn deliver_notices(&mut self, _: &mut Self::Client, _: &mut RequestContext<'_>) {}

    /// Puts the output that has been gathered for the client into its batch, which is about to be
    /// written.
    fn seal(&mut self, _: &mut Self::Client, _: &mut OutBatch) {}

    /// Returns the memory, in bytes, that the protocol holds for the client for as long as it is connected.
    fn held_bytes(&self, _: &Self::Client) -> usize {
        0
    }

    /// Returns `true` if the client gets messages that it has not asked for one by one: then it has
    /// another limit of output.
    fn gets_messages(&self, _: &Self::Client) -> bool {
        false
    }

    /// Returns the limit, in bytes, of replies that a client has not taken; beyond it the client is not
    /// read from.
    fn unread(&self) -> usize {
        usize::MAX
    }

    /// Returns the reply to a client that is refused because there is no room for it.
    fn refusal(&self) -> &'static [u8];
}

/// Where a protocol puts the replies and queries that it makes of one client's requests.
pub(crate) struct RequestContext<'a> {
    pub(crate) id: ClientId,
    /// Time since the proxy's start.
    pub(crate) now: Duration,
    /// Output to the client.
    pub(crate) out: &'a mut OutBatch,
    /// Commands to the threads with nodes.
    pub(crate) orders: &'a mut Vec<BackendCommand>,
    /// Queries to be sent at a later time, counted from the proxy's start.
    pub(crate) later: &'a mut Vec<(Duration, BackendQuery)>,
    pub(crate) inflight: &'a mut InflightBudget,
    /// Queries of this client that are with nodes, or are to be sent later.
    pub(crate) under_way: &'a mut u32,
}

/// The properties of a query besides its bytes.
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
    /// Returns `true` if the node takes one more query.
    pub(crate) fn has_room(&mut self, node: NodeIndex) -> bool {
        self.inflight.has_one(node)
    }

    /// Returns `true` if each of these nodes takes the wanted number of queries at once.
    pub(crate) fn has_room_for_all(&mut self, wanted: &[(NodeIndex, u32)]) -> bool {
        self.inflight.has_all(wanted)
    }

    /// Returns how many queries of this thread are with the node.
    pub(crate) fn load(&mut self, node: NodeIndex) -> u32 {
        self.inflight.taken(node)
    }

    /// Sends a query to its node.
    pub(crate) fn send(&mut self, dispatch: Dispatch, bytes: Bytes) {
        self.send_query(dispatch, bytes, false);
    }

    /// Sends a query that may wait for ever, with a connection key that only this client uses. It takes
    /// no room: however many such queries wait, the node's other clients go on.
    pub(crate) fn send_waiting(&mut self, dispatch: Dispatch, bytes: Bytes) {
        self.send_query(dispatch, bytes, true);
    }

    fn send_query(&mut self, dispatch: Dispatch, bytes: Bytes, waits: bool) {
        let query = BackendQuery {
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
    pub(crate) fn send_again(&mut self, mut query: BackendQuery, node: NodeIndex, pause: Duration) {
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

    /// Records that the client waits for a deferred reply.
    pub(crate) fn await_deferred_reply(&mut self) {
        *self.under_way += 1;
    }

    /// Records that the client no longer waits for a deferred reply.
    pub(crate) fn forget_deferred_reply(&mut self) {
        *self.under_way -= 1;
    }

    /// Closes the connection with a connection key that only this client uses.
    pub(crate) fn hang_up(&mut self, node: NodeIndex, connection_key: ConnectionKey) {
        self.orders
            .push(BackendCommand::HangUp(node, connection_key));
    }

    /// Lets that connection be closed soon, if this client does not use it again.
    pub(crate) fn release(&mut self, node: NodeIndex, connection_key: ConnectionKey) {
        self.orders
            .push(BackendCommand::Release(node, connection_key));
    }
}
