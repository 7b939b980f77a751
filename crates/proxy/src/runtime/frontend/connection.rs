//! A client's connection.

use std::time::Duration;

use bytes::BytesMut;
use reactor::budget::Share;
use reactor::newcomers::AdmissionTicket;

use crate::config::Limits;
use crate::runtime::out_batch::OutBatch;
use crate::runtime::outbox::Outbox;
use crate::runtime::protocol::{ClientProtocol, InputProgress, RequestContext};
use crate::runtime::query::ClientId;

/// See the module documentation.
pub(super) struct Connection<S, C> {
    pub(super) id: ClientId,
    pub(super) stream: S,
    pub(super) client: C,
    pub(super) input: BytesMut,
    pub(super) out: OutBatch,
    pub(super) under_way: u32,
    /// The time at which it was accepted.
    pub(super) since: Duration,
    /// The time at which the last piece of an unfinished request came.
    pub(super) midway: Option<Duration>,
    /// The socket has more to read.
    pub(super) readable: bool,
    /// The client will send nothing more. This is reported once, and read after the rest of the input.
    pub(super) ended: bool,
    /// Everything that it sent has been read.
    pub(super) finished: bool,
    /// The socket takes no more for now.
    pub(super) full: bool,
    pub(super) progress: InputProgress,
    /// Broken: to be closed at once.
    pub(super) dead: bool,
    pub(super) in_ready: bool,
    pub(super) in_touched: bool,
    /// Its place among the clients that have not authenticated, while it is one of them.
    pub(super) newcomer: Option<AdmissionTicket>,
    /// Its share of the memory that all connections share.
    pub(super) share: Share,
}

impl<S, C> Connection<S, C> {
    /// Creates a connection that has just been accepted. Input that came before it was watched may not
    /// be reported, so it starts on the list of connections to be read.
    pub(super) fn new(
        id: ClientId,
        stream: S,
        client: C,
        now: Duration,
        share: Share,
    ) -> Connection<S, C> {
        Connection {
            id,
            stream,
            client,
            input: BytesMut::new(),
            out: OutBatch::default(),
            under_way: 0,
            since: now,
            midway: None,
            readable: true,
            ended: false,
            finished: false,
            full: false,
            progress: InputProgress::Done,
            dead: false,
            in_ready: true,
            in_touched: false,
            newcomer: None,
            share,
        }
    }

    /// Returns the client, its input, and the context in which its requests are worked off.
    pub(super) fn with_context<'a>(
        &'a mut self,
        outbox: &'a mut Outbox,
        now: Duration,
    ) -> (&'a mut C, &'a mut BytesMut, RequestContext<'a>) {
        let context = RequestContext {
            id: self.id,
            now,
            out: &mut self.out,
            orders: &mut outbox.orders,
            later: &mut outbox.later,
            inflight: &mut outbox.inflight,
            under_way: &mut self.under_way,
        };
        (&mut self.client, &mut self.input, context)
    }
}

/// Puts a connection on a list, unless it is on it already.
pub(super) fn list(list: &mut Vec<usize>, listed: &mut bool, place: usize) {
    if !std::mem::replace(listed, true) {
        list.push(place);
    }
}

/// Returns the time by which a client must have gone on; `None`: there is no limit.
pub(super) fn due<F: ClientProtocol, S>(
    protocol: &F,
    limits: &Limits,
    connection: &Connection<S, F::Client>,
) -> Option<Duration> {
    match protocol.has_begun(&connection.client) {
        true => connection.midway.map(|since| since + limits.stall),
        false => protocol
            .patience()
            .map(|patience| connection.since + patience),
    }
}
