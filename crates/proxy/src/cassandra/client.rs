//! The state of a client.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use cql::response::ErrorBody;
use cql::{Compression, Direction, Framing, Header, Limits, Response, StreamId, Unpacker, Version};

use super::connection_key::{self, CassandraConnectionProperties, ConnectionKeys};
use super::credentials::Credential;
use super::frames::EnvelopeBatch;
use super::lock_table::PendingLockRequest;
use super::read_atomic::request_under_way::AtomicRequest;
use crate::locks::pending_requests::{MOST_ASKED, PendingRequest};
use crate::runtime::query::{BackendQuery, ClientId, ConnectionKey, NodeIndex};

/// The stage of a client's handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeStage {
    /// No version has been agreed on.
    New,
    /// It must authenticate.
    Authenticating,
    /// It can send requests.
    Ready,
}

/// A reply that is held back until the nodes agree on the schema.
#[derive(Debug)]
pub(crate) struct HeldReply {
    /// The number that
    /// [`CassandraState::want_agreement`](super::shared_state::CassandraState::want_agreement) has
    /// returned.
    pub(crate) number: u64,
    pub(crate) stream: StreamId,
    pub(crate) envelope: Bytes,
}

/// A request that waits for its statement to be prepared.
#[derive(Debug)]
pub(crate) struct ParkedRequest {
    pub(crate) query: BackendQuery,
    /// The statement's id.
    pub(crate) id: Bytes,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct CqlClient {
    pub(crate) id: ClientId,
    pub(crate) stage: HandshakeStage,
    pub(crate) version: Version,
    pub(crate) keyspace: Option<Arc<str>>,
    /// The keyspace that it wants to use; a node is being asked if it exists.
    pub(crate) wanted_keyspace: String,
    pub(crate) credential: Option<Credential>,
    pub(crate) unpacker: Unpacker,
    /// Envelopes that have come in one frame or in one read.
    pub(crate) envelopes: Bytes,
    /// A request that could not be sent.
    pub(crate) put_back: Option<(Header, Bytes)>,
    /// The next request may depend on the reply that is awaited.
    pub(crate) awaits_reply: bool,
    /// It receives events about changes of the schema.
    pub(crate) registered: bool,
    /// Requests that wait for their statements, by their numbers.
    pub(crate) parked: HashMap<u32, ParkedRequest>,
    parked_ever: u32,
    pub(crate) held: Vec<HeldReply>,
    /// Its requests to the lock service, by their numbers.
    pub(crate) asked: BTreeMap<u64, PendingRequest<PendingLockRequest>>,
    asked_ever: u64,
    /// Its requests about read-atomic tables, by their numbers.
    pub(crate) atomic: HashMap<u32, AtomicRequest>,
    atomic_ever: u32,
    /// The connection on which it authenticates.
    pub(crate) login: Option<(NodeIndex, ConnectionKey)>,
    pub(crate) framing: Framing,
    /// The compression that it has requested; later bodies and frames may be compressed with it.
    pub(crate) compression: Option<Compression>,
    pub(crate) gathered: EnvelopeBatch,
    quarantined: bool,
    connection_key: Option<ConnectionKey>,
}

impl CqlClient {
    pub(crate) fn new(id: ClientId, limits: Limits) -> CqlClient {
        CqlClient {
            id,
            stage: HandshakeStage::New,
            version: Version::V4,
            keyspace: None,
            wanted_keyspace: String::new(),
            credential: None,
            unpacker: Unpacker::new(Direction::Request, limits),
            envelopes: Bytes::new(),
            put_back: None,
            awaits_reply: false,
            registered: false,
            parked: HashMap::new(),
            parked_ever: 0,
            held: Vec::new(),
            asked: BTreeMap::new(),
            asked_ever: 0,
            atomic: HashMap::new(),
            atomic_ever: 0,
            login: None,
            framing: Framing::Plain,
            compression: None,
            gathered: EnvelopeBatch::default(),
            quarantined: false,
            connection_key: None,
        }
    }

    /// Returns the connection key that it shares with the clients that have the same properties.
    pub(crate) fn connection_key(
        &mut self,
        connection_keys: &ConnectionKeys,
        connections: u8,
    ) -> ConnectionKey {
        if let Some(connection_key) = self.connection_key {
            return connection_key;
        }
        let connection_key = connection_keys
            .connection_key(&self.connection_properties(self.keyspace.clone(), connections));
        self.connection_key = Some(connection_key);
        connection_key
    }

    /// Returns the properties of its connection key for this keyspace.
    pub(crate) fn connection_properties(
        &self,
        keyspace: Option<Arc<str>>,
        connections: u8,
    ) -> CassandraConnectionProperties {
        CassandraConnectionProperties {
            version: self.version,
            index: match self.quarantined {
                true => connection_key::QUARANTINE,
                false => (self.id.number % u32::from(connections.max(1))) as u8,
            },
            keyspace,
            credential: self.credential.clone(),
        }
    }

    /// Sets the keyspace that it uses from now on.
    pub(crate) fn set_keyspace(&mut self, keyspace: &str) {
        self.keyspace = Some(keyspace.into());
        self.connection_key = None;
    }

    /// Sets the credential with which it has authenticated.
    pub(crate) fn set_credential(&mut self, credential: Credential) {
        self.credential = Some(credential);
        self.connection_key = None;
    }

    /// Records that it can send requests from now on, within these limits.
    pub(crate) fn set_ready(&mut self, limits: Limits) {
        self.stage = HandshakeStage::Ready;
        self.unpacker.limit(limits);
    }

    /// Records that nodes could not read a request of this client, or may not be able to. From now on
    /// it shares connections only with other such clients: a node closes a connection on which it
    /// cannot read two requests in a row.
    pub(crate) fn quarantine(&mut self) {
        self.quarantined = true;
        self.connection_key = None;
    }

    /// Returns `true` if [`CqlClient::quarantine`] was called. The loss of connections that it shares
    /// says nothing about their nodes.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.quarantined
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, stream: StreamId, response: Response<'_>) {
        let mut envelope = Vec::new();
        response.write(&mut envelope, self.version, stream);
        self.gathered.put(stream, envelope.into());
    }

    /// Answers a request with an error that has nothing after its message.
    pub(crate) fn refuse(&mut self, stream: StreamId, code: i32, message: &str) {
        self.answer(stream, Response::Error(ErrorBody::plain(code, message)));
    }

    /// Returns `true` if it waits for as many answers of the locks as it may.
    pub(crate) fn has_asked_most(&self) -> bool {
        self.asked.len() >= MOST_ASKED
    }

    /// Returns the number of its next request to the locks.
    pub(crate) fn next_question(&mut self) -> u64 {
        self.asked_ever += 1;
        self.asked_ever
    }

    /// Returns the number of its next request about read-atomic tables.
    pub(crate) fn next_atomic(&mut self) -> u32 {
        self.atomic_ever = self.atomic_ever.wrapping_add(1);
        self.atomic_ever
    }

    /// Parks a request and returns its number.
    pub(crate) fn park(&mut self, parked: ParkedRequest) -> u32 {
        self.parked_ever = self.parked_ever.wrapping_add(1);
        self.parked.insert(self.parked_ever, parked);
        self.parked_ever
    }
}
