//! The state of a thread for its clients.
//!
//! The modules of the requests and replies are its methods; [`client_protocol`](super::client_protocol)
//! calls them for the runtime.

use std::sync::Arc;

use bytes::Bytes;
use cql::{Header, Limits, StreamId};

use super::client::HandshakeStage;
use super::shared_state::CassandraState;
use super::suspect_nodes::SuspectNodes;
use super::topology::CassandraTopology;
use crate::locks::pending_requests::PendingRequests;
use crate::runtime::protocol::InputProgress;
use crate::runtime::query::NodeIndex;

/// The longest body of a request in the handshake.
const STRANGERS: usize = 16 * 1024;

/// See the module documentation.
pub(crate) struct CqlProtocol {
    pub(crate) state: Arc<CassandraState>,
    pub(crate) known: Arc<CassandraTopology>,
    pub(super) version: u64,
    /// The agreements and the changes of the schema that this thread has seen.
    pub(super) agreements: u64,
    pub(super) seen: u64,
    /// Changes of the schema that clients are to be told.
    pub(super) changes: Vec<Bytes>,
    pub(super) agreed: u64,
    pub(crate) suspects: SuspectNodes,
    /// Clients that are authenticating with a node, on connections of their own.
    pub(crate) logins: usize,
    /// Chooses nodes in turn.
    pub(crate) turn: usize,
    /// The nodes for the current request; empty: any node.
    pub(crate) replicas: Vec<NodeIndex>,
    /// Requests that wait for the locks.
    pub(crate) lock_replies: PendingRequests,
}

/// The result of one request.
pub(crate) enum RequestProgress {
    /// It is answered, or on its way.
    Handled,
    /// It is put back, and read again later.
    PutBack(Header, Bytes, InputProgress),
    /// It is answered, and later requests are not.
    Close,
}

/// The purpose of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Its reply is the client's reply.
    Request,
    /// Its reply is the client's reply, and the statement is to be remembered.
    Prepare,
    /// It prepares the statement of a parked request with a node.
    PrepareAgain,
    /// It checks if a keyspace exists.
    Use,
    /// The client authenticates.
    Login,
    /// It belongs to a request about read-atomic tables, whose number is in the upper half.
    ReadAtomic,
}

impl Task {
    /// Returns the number of a query with this task whose reply has this stream.
    pub(crate) fn sequence(self, stream: StreamId) -> u64 {
        u64::from(stream.0.cast_unsigned()) | (self as u64) << 16
    }

    /// Returns the task and the stream of a number.
    pub(crate) fn of(sequence: u64) -> (Task, StreamId) {
        let tasks = [
            Task::Request,
            Task::Prepare,
            Task::PrepareAgain,
            Task::Use,
            Task::Login,
            Task::ReadAtomic,
        ];
        let task = tasks[usize::from((sequence >> 16) as u16)];
        (task, StreamId((sequence as u16).cast_signed()))
    }
}

impl CqlProtocol {
    pub(crate) fn new(state: Arc<CassandraState>) -> CqlProtocol {
        let agreements = state.agreements();
        CqlProtocol {
            version: state.version.load(std::sync::atomic::Ordering::Acquire),
            known: state.known(),
            agreements,
            seen: state.changes_since(u64::MAX).0,
            changes: Vec::new(),
            agreed: state.agreed(),
            suspects: SuspectNodes::new(Arc::clone(&state.setting.nodes)),
            logins: 0,
            turn: 0,
            replicas: Vec::new(),
            lock_replies: PendingRequests::default(),
            state,
        }
    }

    /// Returns how long a request may be in this stage of the handshake.
    pub(crate) fn limits_of(&self, stage: HandshakeStage) -> Limits {
        let most = self.state.setting.limits.envelope;
        let body = match stage {
            HandshakeStage::Ready => most,
            HandshakeStage::New | HandshakeStage::Authenticating => most.min(STRANGERS),
        };
        Limits { body }
    }
}
