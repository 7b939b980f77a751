//! What passes between client threads and aggregation threads, and where it is put.

use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use mio::event::Source;
use parking_lot::Mutex;

use super::doorbell::Doorbell;
use super::lock_table::TableRequest;
use super::shared_queue::SharedQueue;

/// A connection, by TCP or between processes.
pub(super) trait ByteStream: Read + Write + Source + Send {}

impl<S: Read + Write + Source + Send> ByteStream for S {}

/// A connection of a client thread. A place is used again with a new number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientConnectionId {
    pub(super) place: usize,
    /// How many connections the thread had accepted before.
    pub(super) number: u64,
}

/// Where the reply to a query goes.
pub(super) struct ResultAddress {
    pub(super) client: Arc<ClientMailbox>,
    pub(super) connection: ClientConnectionId,
    /// How many requests of the connection came before.
    pub(super) sequence: u64,
}

/// A query on its way to an aggregation thread.
pub(super) struct QueuedQuery {
    pub(super) reply_to: ResultAddress,
    pub(super) work: QueryWork,
}

/// What an aggregation thread does with a query.
pub(super) enum QueryWork {
    /// Sends these bytes to the node.
    Forward(Bytes),
    /// Asks the lock table.
    Lock(TableRequest),
}

/// A reply on its way to a client thread.
pub(super) struct QueuedReply {
    pub(super) connection: ClientConnectionId,
    pub(super) sequence: u64,
    pub(super) bytes: Bytes,
}

/// What other threads give a client thread.
pub(super) struct ClientMailbox {
    /// The result queue (paper 3, section 5.2).
    pub(super) results: Box<dyn SharedQueue<QueuedReply>>,
    /// Connections that were accepted for it.
    pub(super) arrivals: Mutex<Vec<Box<dyn ByteStream>>>,
    pub(super) doorbell: Doorbell,
}

/// What client threads give the aggregation threads of a node.
pub(super) struct NodeMailbox {
    /// The query queue (paper 3, section 5.2).
    pub(super) queries: Box<dyn SharedQueue<QueuedQuery>>,
    /// Those of the threads that take from it.
    pub(super) doorbells: Vec<Arc<Doorbell>>,
}
