//! A protocol with one client and simulated nodes.

use std::time::Duration;

use cql::request::{Execute, Parameters, Prepare, Request};
use cql::response::{
    Columns, ErrorBody, ErrorKind, INVALID, PROTOCOL_ERROR, Prepared as PreparedResult,
    PreparedMetadata, RowsMetadata, UNPREPARED,
};
use cql::ring::{Replication, Ring, RingNode};
use cql::token::Token;
use cql::{
    Bound, Compression, Consistency, DataType, Direction, Envelope, EventKind, Framing, HEADER_LEN,
    Packer, Response, ResponseMessage, ResultBody, Unpacker, ValueList, Version,
};

use std::sync::Arc;

use bytes::Bytes;
use cql::Limits;

use super::super::connection_key::KeyMeaning;
use super::super::frames::header_of;
use super::super::lock_table::LockTables;
use super::super::node_connection::{Options, plain_query};
use super::super::protocol::Task;
use super::super::read_atomic::ReadAtomicTables;
use super::super::shared_state::{CassandraOptions, CassandraState};
use super::super::token_ring::TokenRing;
use super::super::topology::{CassandraTopology, ClusterProperties};
use super::super::{connection_key, frames};
use super::*;
use crate::nodes::Nodes;
use crate::runtime::inflight_budget::InflightBudget;
use crate::runtime::query::{
    BackendAnswer, BackendCommand, BackendQuery, NodeError, NodeIndex, QueryFailure,
};

const ID: ClientId = ClientId {
    place: 0,
    thread: 0,
    number: 1,
};

/// A client of a proxy with three nodes, each of which has all keys of `app`.
struct Stage {
    protocol: CqlProtocol,
    client: CqlClient,
    out: OutBatch,
    orders: Vec<BackendCommand>,
    later: Vec<(Duration, BackendQuery)>,
    inflight: InflightBudget,
    under_way: u32,
    now: Duration,
    version: Version,
    unpacker: Unpacker,
    framing: Framing,
}

pub(super) fn state(authenticator: Option<&str>, newest: Version) -> Arc<CassandraState> {
    let nodes = Arc::new(Nodes::default());
    let places: Vec<NodeIndex> = (1..4)
        .map(|host| nodes.place(SocketAddr::from(([127, 0, 0, host], 9042))))
        .collect();
    let ring = (0..3).map(|node| RingNode {
        datacenter: "dc".to_owned(),
        rack: "rack".to_owned(),
        tokens: vec![Token(node * 1000)],
    });
    let keyspaces = [("app".to_owned(), Replication::Simple(3))];
    let map = TokenRing::new(&Ring::new(ring.collect()), places, keyspaces);
    let setting = CassandraOptions {
        nodes,
        options: Arc::new(Options::default()),
        limits: crate::config::Limits::default(),
        connections: 1,
        patience: Duration::from_secs(3),
        address: SocketAddr::from(([127, 0, 0, 1], 9043)),
        others: Vec::new(),
        lock_tables: LockTables::default(),
        read_atomic: ReadAtomicTables::default(),
        merge_writes: false,
    };
    let nature = ClusterProperties {
        authenticator: authenticator.map(str::to_owned),
        newest,
    };
    let known = CassandraTopology {
        map,
        ..CassandraTopology::default()
    };
    Arc::new(CassandraState::new(setting, nature, known))
}

impl Stage {
    fn new(state: Arc<CassandraState>, version: Version) -> Stage {
        let mut protocol = CqlProtocol::new(state);
        let client = protocol.admit(ID, SocketAddr::from(([127, 0, 0, 1], 1)));
        Stage {
            protocol,
            client,
            out: OutBatch::default(),
            orders: Vec::new(),
            later: Vec::new(),
            inflight: InflightBudget::new(100),
            under_way: 0,
            now: Duration::from_secs(10),
            version,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            framing: Framing::Plain,
        }
    }

    /// Returns a stage whose client has begun.
    fn begun(version: Version) -> Stage {
        let mut stage = Stage::new(state(None, Version::V5), version);
        let startup = Request::Startup(vec![("CQL_VERSION", "3.0.0")]);
        assert_eq!(stage.send(0, startup), InputProgress::Done);
        assert_eq!(stage.told()[0].1, Opcode::Ready);
        stage.switch_to_frames();
        stage
    }

    fn switch_to_frames(&mut self) {
        if self.version == Version::V5 {
            self.framing = Framing::Frames;
            self.unpacker.expect_frames();
        }
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(&mut CqlProtocol, &mut CqlClient, &mut RequestContext<'_>) -> T,
    ) -> T {
        let mut context = RequestContext {
            id: ID,
            now: self.now,
            out: &mut self.out,
            orders: &mut self.orders,
            later: &mut self.later,
            inflight: &mut self.inflight,
            under_way: &mut self.under_way,
        };
        act(&mut self.protocol, &mut self.client, &mut context)
    }

    fn send(&mut self, stream: i16, request: Request<'_>) -> InputProgress {
        let mut envelope = Vec::new();
        let message = request.into_message();
        message.write(
            &mut envelope,
            self.version,
            StreamId(stream),
            Flags::default(),
        );
        let mut bytes = Vec::new();
        Packer::new(&mut bytes, self.framing).push(&envelope);
        self.send_bytes(&bytes)
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> InputProgress {
        let mut input = BytesMut::from(bytes);
        self.with(|protocol, client, context| protocol.read(client, &mut input, context))
    }

    /// Takes the client's replies: streams, opcodes, bodies.
    fn told(&mut self) -> Vec<(StreamId, Opcode, Bytes)> {
        self.protocol.seal(&mut self.client, &mut self.out);
        let mut input = BytesMut::from(&self.out.bytes()[..]);
        self.out.clear();
        let mut told = Vec::new();
        while let Some(mut some) = frames::take(&mut self.unpacker, &mut input).expect("CQL") {
            while let Some((header, bytes)) = frames::next(&mut some, Direction::Response) {
                told.push((header.stream, header.opcode, bytes));
            }
        }
        told
    }

    /// Takes the client's only reply, which must be an error: its stream and code.
    fn error(&mut self) -> (StreamId, i32) {
        let told = self.told();
        let [(stream, Opcode::Error, bytes)] = &told[..] else {
            panic!("{told:?}");
        };
        let code = bytes.slice(HEADER_LEN..HEADER_LEN + 4);
        (*stream, i32::from_be_bytes(code[..].try_into().expect("4")))
    }

    /// Takes the only query that nodes have got since the last call.
    fn order(&mut self) -> BackendQuery {
        match self.orders.pop().expect("a query") {
            BackendCommand::Send(query) => {
                assert!(self.orders.is_empty());
                query
            }
            other => panic!("{other:?}"),
        }
    }

    fn give(&mut self, query: BackendQuery, result: Result<BackendAnswer, QueryFailure>) {
        self.inflight.give_back(&query);
        self.under_way -= 1;
        let reply = BackendReply {
            query,
            connection: 1,
            result,
        };
        self.with(|protocol, client, context| protocol.reply(client, reply, context));
    }

    fn answer(&mut self, query: BackendQuery, response: Response<'_>) {
        let mut bytes = Vec::new();
        response.write(&mut bytes, self.version, StreamId(4321));
        let answer = BackendAnswer {
            bytes: bytes.into(),
            earlier_error: None,
        };
        self.give(query, Ok(answer));
    }

    /// Prepares a text; its id is `id`.
    fn prepare(&mut self, text: &str) {
        let keyspace = None;
        self.send(1, Request::Prepare(Prepare { text, keyspace }));
        let query = self.order();
        let version = self.version;
        self.answer(query, prepared(version, b"metadata"));
        assert_eq!(self.told()[0].1, Opcode::Result);
    }

    fn execute(&mut self, stream: i16) -> BackendQuery {
        let mut values = ValueList::new();
        values.push(Bound::Bytes(b"key"));
        let values = values.values(self.version);
        let execute = Execute {
            id: b"id",
            result_metadata_id: (self.version == Version::V5).then_some(b"metadata"),
            parameters: Parameters::new(Consistency::Quorum, values),
        };
        assert_eq!(
            self.send(stream, Request::Execute(execute)),
            InputProgress::Done
        );
        self.order()
    }
}

fn prepared(version: Version, metadata: &'static [u8]) -> Response<'static> {
    let columns = Columns::of_table("app", "t", &[("k", DataType::Text)]);
    Response::Result(ResultBody::Prepared(PreparedResult {
        id: b"id",
        result_metadata_id: (version == Version::V5).then_some(metadata),
        bind: PreparedMetadata {
            partition_key: vec![0],
            columns: columns.clone(),
        },
        result: match metadata {
            b"metadata" => RowsMetadata::new(columns),
            _ => RowsMetadata::none(),
        },
    }))
}

fn unprepared() -> Response<'static> {
    Response::Error(ErrorBody {
        message: "not known",
        kind: ErrorKind::Unprepared { id: b"id" },
    })
}

fn lost() -> QueryFailure {
    QueryFailure::Lost(NodeError::Closed("end".to_owned()))
}

fn unsent() -> QueryFailure {
    QueryFailure::Unsent(NodeError::Unreachable("no".to_owned()))
}

#[test]
fn numbers_of_queries_say_what_they_are_for() {
    for task in [
        Task::Request,
        Task::Prepare,
        Task::PrepareAgain,
        Task::Use,
        Task::Login,
        Task::ReadAtomic,
    ] {
        for stream in [0, 1, -1, i16::MAX, i16::MIN].map(StreamId) {
            assert_eq!(Task::of(task.sequence(stream)), (task, stream));
        }
    }
}

#[test]
fn a_reply_has_the_stream_of_its_request() {
    for version in [Version::V4, Version::V5] {
        let mut stage = Stage::begun(version);
        stage.prepare("SELECT * FROM app.t WHERE k = ?");
        let first = stage.execute(100);
        let second = stage.execute(101);
        assert!(first.safe);
        assert_ne!(first.node, second.node, "the one with fewer queries");
        stage.answer(second, Response::Result(ResultBody::Void));
        stage.answer(first, Response::Result(ResultBody::Void));
        let streams: Vec<i16> = stage.told().iter().map(|(stream, ..)| stream.0).collect();
        assert_eq!(streams, [101, 100]);
        assert_eq!(stage.under_way, 0);
    }
}

#[test]
fn a_node_that_does_not_know_a_statement_is_told() {
    for version in [Version::V4, Version::V5] {
        let mut stage = Stage::begun(version);
        stage.prepare("INSERT INTO app.t (k) VALUES (?)");
        let query = stage.execute(100);
        let (node, bytes) = (query.node, query.bytes.clone());
        stage.answer(query, unprepared());
        let prepare = stage.order();
        assert_eq!(
            (prepare.node, prepare.bytes[4]),
            (node, Opcode::Prepare as u8)
        );
        stage.answer(prepare, prepared(version, b"metadata"));
        let again = stage.order();
        assert_eq!((again.node, &again.bytes), (node, &bytes));
        stage.answer(again, Response::Result(ResultBody::Void));
        let told = stage.told();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0, told[0].1), (StreamId(100), Opcode::Result));
    }
}

#[test]
fn a_client_of_version_4_prepares_again_what_has_changed() {
    let mut stage = Stage::begun(Version::V4);
    stage.prepare("SELECT * FROM app.t WHERE k = ?");
    let query = stage.execute(100);
    stage.answer(query, unprepared());
    let prepare = stage.order();
    stage.answer(prepare, prepared(Version::V4, b"changed"));
    assert_eq!(stage.error(), (StreamId(100), UNPREPARED));
    let mut stage = Stage::begun(Version::V5);
    stage.prepare("SELECT * FROM app.t WHERE k = ?");
    let query = stage.execute(100);
    stage.answer(query, unprepared());
    let prepare = stage.order();
    stage.answer(prepare, prepared(Version::V5, b"changed"));
    assert_eq!(stage.order().bytes[4], Opcode::Execute as u8);
}

#[test]
fn a_write_whose_reply_is_lost_is_not_repeated() {
    let mut stage = Stage::begun(Version::V5);
    stage.prepare("INSERT INTO app.t (k) VALUES (?)");
    let query = stage.execute(100);
    stage.give(query, Err(lost()));
    assert_eq!(stage.error(), (StreamId(100), cql::response::WRITE_TIMEOUT));
    let query = stage.execute(101);
    let node = query.node;
    stage.give(query, Err(unsent()));
    let again = stage.order();
    assert_ne!(again.node, node, "another replica");
    assert_eq!(again.retries, 1);
}

#[test]
fn a_read_goes_to_one_replica_after_the_other() {
    let mut stage = Stage::begun(Version::V4);
    stage.prepare("SELECT * FROM app.t WHERE k = ?");
    let mut query = stage.execute(100);
    let mut nodes = vec![query.node];
    for _ in 0..2 {
        stage.give(query, Err(lost()));
        query = stage.order();
        nodes.push(query.node);
    }
    nodes.sort_unstable();
    assert_eq!(nodes, [0, 1, 2].map(NodeIndex));
    // All nodes have failed: from now on there are pauses, and an end.
    stage.give(query, Err(unsent()));
    let (due, mut query) = stage.later.pop().expect("a query");
    assert!(due > stage.now && stage.orders.is_empty());
    query.since = Duration::ZERO;
    stage.inflight.take(&query);
    stage.give(query, Err(unsent()));
    assert_eq!(stage.error(), (StreamId(100), cql::response::UNAVAILABLE));
    assert_eq!(stage.under_way, 0);
}

#[test]
fn a_keyspace_is_used_by_one_client_alone() {
    let mut stage = Stage::begun(Version::V4);
    let lane_before = stage
        .client
        .connection_key(&stage.protocol.state.options.connection_keys, 1);
    let text = plain_query("USE app", Version::V4);
    assert_eq!(stage.send(5, text), InputProgress::AwaitsReply);
    let query = stage.order();
    let columns = Columns::of_table(
        "system_schema",
        "keyspaces",
        &[("keyspace_name", DataType::Text)],
    );
    let mut rows = cql::response::RowsBuilder::new(columns);
    rows.push(&[cql::CqlValue::text("app")]);
    let rows = ResultBody::Rows(rows.rows(false));
    stage.answer(query, Response::Result(rows));
    let told = stage.told();
    assert!(told[0].2.ends_with(b"\0\0\0\x03\0\x03app"));
    let connection_key = stage
        .client
        .connection_key(&stage.protocol.state.options.connection_keys, 1);
    assert_ne!(connection_key, lane_before);
    let KeyMeaning::Shared(name) = stage
        .protocol
        .state
        .options
        .connection_keys
        .meaning(connection_key)
    else {
        panic!("a lane of one client");
    };
    assert_eq!(name.keyspace.as_deref(), Some("app"));
}

#[test]
fn a_change_of_the_schema_is_answered_when_nodes_agree() {
    let mut stage = Stage::begun(Version::V5);
    stage.send(2, Request::Register(vec![EventKind::Schema]));
    stage.send(
        5,
        plain_query("CREATE TABLE app.t (k text PRIMARY KEY)", Version::V5),
    );
    assert_eq!(stage.told().len(), 1, "READY");
    let query = stage.order();
    let change = cql::event::SchemaChange {
        change: cql::event::Change::Created,
        keyspace: "app",
        target: cql::event::SchemaTarget::Table("t"),
    };
    let body = ResultBody::SchemaChange(change);
    stage.answer(query, Response::Result(body));
    assert!(stage.told().is_empty());
    assert_eq!(stage.under_way, 1, "the client is not idle");
    stage
        .protocol
        .state
        .record_agreement(1, vec![Bytes::from_static(b"an event")]);
    assert!(stage.protocol.has_notices());
    stage.protocol.refresh(stage.now);
    stage.with(|protocol, client, context| protocol.deliver_notices(client, context));
    let told = stage.told();
    let streams: Vec<(i16, Opcode)> = told.iter().map(|one| (one.0.0, one.1)).collect();
    assert_eq!(streams, [(-1, Opcode::Event), (5, Opcode::Result)]);
    assert_eq!((stage.under_way, stage.protocol.has_notices()), (0, false));
}

#[test]
fn versions_are_agreed_on() {
    for (version, newest, refused) in [
        (Version::V3, Version::V5, true),
        (Version::V5, Version::V4, true),
        (Version::V4, Version::V4, false),
        (Version::V5, Version::V5, false),
    ] {
        let mut stage = Stage::new(state(None, newest), version);
        let progress = stage.send(3, Request::Startup(vec![("CQL_VERSION", "3.0.0")]));
        if refused {
            assert_eq!(progress, InputProgress::Close);
            assert_eq!(stage.error(), (StreamId(3), PROTOCOL_ERROR));
        } else {
            assert_eq!(progress, InputProgress::Done);
            assert_eq!(stage.told()[0].1, Opcode::Ready);
        }
    }
    for (version, compression) in [(Version::V4, "zstd"), (Version::V5, "snappy")] {
        let mut stage = Stage::new(state(None, Version::V5), version);
        let startup = vec![("CQL_VERSION", "3.0.0"), ("COMPRESSION", compression)];
        assert_eq!(
            stage.send(3, Request::Startup(startup)),
            InputProgress::Close
        );
        assert_eq!(stage.error(), (StreamId(3), PROTOCOL_ERROR));
    }
}

/// Input that a client compresses goes to the node uncompressed, and long replies are compressed for
/// the client.
#[test]
fn bodies_and_frames_are_compressed_as_a_client_asks() {
    let long = format!("SELECT * FROM app.t WHERE k = '{}'", "kumiki ".repeat(100));
    let text = "a value that repeats itself ".repeat(100);
    for (version, name) in [
        (Version::V4, "lz4"),
        (Version::V4, "snappy"),
        (Version::V4, "LZ4"),
        (Version::V5, "lz4"),
    ] {
        let mut plain = Stage::begun(version);
        plain.send(2, plain_query(&long, version));
        let expected = plain.order();

        let mut stage = Stage::new(state(None, Version::V5), version);
        let startup = vec![("CQL_VERSION", "3.0.0"), ("COMPRESSION", name)];
        assert_eq!(
            stage.send(0, Request::Startup(startup)),
            InputProgress::Done
        );
        assert_eq!(stage.told()[0].1, Opcode::Ready);
        let compression = Compression::of_name(&name.to_lowercase()).expect("its name");
        if version == Version::V5 {
            stage.framing = Framing::CompressedFrames;
            stage.unpacker.expect(Framing::CompressedFrames);
        }
        let mut envelope = Vec::new();
        let message = plain_query(&long, version).into_message();
        message.write(&mut envelope, version, StreamId(2), Flags::default());
        let mut bytes = Vec::new();
        match version {
            Version::V5 => Packer::new(&mut bytes, stage.framing).push(&envelope),
            _ => bytes = compression.shorten(&envelope).expect("it repeats itself"),
        }
        assert!(bytes.len() * 2 < envelope.len());
        stage.send_bytes(&bytes);
        let query = stage.order();
        assert_eq!(query.bytes, expected.bytes, "{version:?}, {name}");

        let error = ErrorBody::plain(INVALID, &text);
        stage.answer(query, Response::Error(error));
        stage.protocol.seal(&mut stage.client, &mut stage.out);
        let sent = stage.out.bytes().len();
        assert!(sent * 2 < text.len(), "{sent} bytes");
        let (_, _, bytes) = stage.told().remove(0);
        let bytes = match version {
            Version::V5 => bytes.to_vec(),
            _ => compression
                .expand(&bytes, &Limits::default())
                .expect("a compressed body"),
        };
        let header = header_of(&bytes.clone().into(), Direction::Response).expect("a header");
        let body = &bytes[HEADER_LEN..];
        let message = ResponseMessage::decode(Envelope { header, body }).expect("CQL");
        assert!(matches!(message.response, Response::Error(error) if error.message == text));
    }
}

#[test]
fn nodes_are_asked_who_a_client_is() {
    let class = "org.apache.cassandra.auth.PasswordAuthenticator";
    let mut stage = Stage::new(state(Some(class), Version::V5), Version::V5);
    stage.send(0, Request::Startup(vec![("CQL_VERSION", "3.0.0")]));
    assert_eq!(stage.told()[0].1, Opcode::Authenticate);
    stage.switch_to_frames();
    let answer = Request::AuthResponse(Some(b"\0user\0secret"));
    assert_eq!(stage.send(1, answer), InputProgress::AwaitsReply);
    let query = stage.order();
    assert_eq!(query.connection_key, connection_key::login(Version::V5, ID));
    stage.answer(query, Response::AuthSuccess(None));
    assert_eq!(stage.told()[0].1, Opcode::AuthSuccess);
    assert!(matches!(
        stage.orders.pop(),
        Some(BackendCommand::HangUp(..))
    ));
    stage.send(2, plain_query("SELECT * FROM app.t", Version::V5));
    let query = stage.order();
    let KeyMeaning::Shared(name) = stage
        .protocol
        .state
        .options
        .connection_keys
        .meaning(query.connection_key)
    else {
        panic!("a lane of one client");
    };
    let credential = name.credential.expect("one that was accepted");
    assert_eq!(credential.token(), b"\0user\0secret");
}

#[test]
fn what_is_not_of_the_protocol_ends_the_connection() {
    for version in [Version::V4, Version::V5] {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut stage = Stage::begun(version);
            let mut envelope = Vec::new();
            let message = plain_query("SELECT * FROM app.t", version).into_message();
            message.write(&mut envelope, version, StreamId(9), Flags::default());
            // A body that ends too early, in a whole envelope.
            let body = random.usize(..envelope.len() - HEADER_LEN - 1);
            envelope.truncate(HEADER_LEN + body);
            envelope[5..9].copy_from_slice(&(body as u32).to_be_bytes());
            let mut bytes = Vec::new();
            Packer::new(&mut bytes, stage.framing).push(&envelope);
            assert_eq!(stage.send_bytes(&bytes), InputProgress::Close, "{body}");
            assert_eq!(stage.error(), (StreamId(9), PROTOCOL_ERROR));
        }
    }
    let mut stage = Stage::begun(Version::V4);
    assert_eq!(
        stage.send_bytes(b"GET / HTTP/1.1\r\n\r\n"),
        InputProgress::Close
    );
    assert_eq!(stage.error(), (StreamId(0), PROTOCOL_ERROR));
    let mut stage = Stage::begun(Version::V4);
    let mut long = vec![4, 0, 0, 8, Opcode::Query as u8];
    long.extend_from_slice(&(65u32 << 20).to_be_bytes());
    assert_eq!(stage.send_bytes(&long), InputProgress::Close);
    assert_eq!(stage.error(), (StreamId(8), PROTOCOL_ERROR));
}

#[test]
fn the_refusal_is_an_error_that_drivers_understand() {
    let protocol = CqlProtocol::new(state(None, Version::V5));
    let bytes = Bytes::from_static(protocol.refusal());
    let header = header_of(&bytes, Direction::Response).expect("a header");
    let body = &bytes[HEADER_LEN..];
    let message = ResponseMessage::decode(Envelope { header, body }).expect("CQL");
    assert_eq!(header.envelope_len(), bytes.len());
    assert!(matches!(message.response, Response::Error(error)
        if error.kind.code() == cql::response::OVERLOADED));
}

#[test]
fn a_keyspace_is_missing_when_all_nodes_say_so() {
    let mut stage = Stage::begun(Version::V5);
    let lacks =
        || QueryFailure::Unsent(NodeError::Lacks("Keyspace 'app' does not exist".to_owned()));
    let text = "SELECT * FROM t";
    stage.send(7, plain_query(text, Version::V5));
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..3 {
        assert_eq!(stage.told(), []);
        let query = stage.order();
        asked.insert(query.node.0);
        stage.give(query, Err(lacks()));
    }
    assert_eq!(asked.len(), 3);
    assert_eq!(stage.error(), (StreamId(7), cql::response::INVALID));
    assert_eq!(stage.orders.len() + stage.later.len(), 0);
}

#[test]
fn a_read_on_a_connection_that_was_spoilt_is_repeated() {
    let mut stage = Stage::begun(Version::V4);
    stage.send(7, plain_query("SELECT * FROM t", Version::V4));
    let query = stage.order();
    let node = query.node;
    let spoilt = NodeError::Spoilt("it uses another keyspace".to_owned());
    stage.give(query, Err(QueryFailure::Lost(spoilt.clone())));
    assert_eq!(stage.told(), []);
    assert!(!stage.protocol.suspects.avoids(node, stage.now), "it lives");
    let query = stage.order();
    stage.answer(query, Response::Result(ResultBody::Void));
    assert_eq!(stage.told()[0].1, Opcode::Result);
    // A write is not repeated.
    stage.send(
        8,
        plain_query("UPDATE t SET v = 1 WHERE k = 1", Version::V4),
    );
    let query = stage.order();
    stage.give(query, Err(QueryFailure::Lost(spoilt)));
    assert_eq!(stage.error(), (StreamId(8), cql::response::WRITE_TIMEOUT));
}

#[test]
fn strangers_say_little_and_few_are_asked_about_at_a_time() {
    let state = state(Some("PasswordAuthenticator"), Version::V5);
    let startup = || Request::Startup(vec![("CQL_VERSION", "3.0.0")]);
    let token = vec![b'x'; 20_000];
    let mut stage = Stage::new(Arc::clone(&state), Version::V4);
    stage.send(0, startup());
    stage.told();
    let progress = stage.send(1, Request::AuthResponse(Some(&token)));
    assert_eq!(progress, InputProgress::Close);
    assert_eq!(stage.error().1, PROTOCOL_ERROR);
    let mut stage = Stage::new(Arc::clone(&state), Version::V4);
    let options = vec![
        ("CQL_VERSION", "3.0.0"),
        ("OTHER", {
            let long = std::str::from_utf8(&token);
            long.expect("letters")
        }),
    ];
    assert_eq!(
        stage.send(0, Request::Startup(options)),
        InputProgress::Close
    );
    assert_eq!(stage.error().1, PROTOCOL_ERROR);
    let mut stage = Stage::new(state, Version::V4);
    stage.send(0, startup());
    stage.told();
    stage.protocol.logins = handshake::MOST_LOGINS;
    let answer = || Request::AuthResponse(Some(b"\0user\0secret"));
    assert_eq!(stage.send(1, answer()), InputProgress::AwaitsRoom);
    assert!(stage.orders.is_empty() && stage.client.put_back.is_some());
    stage.protocol.logins -= 1;
    assert_eq!(stage.send_bytes(&[]), InputProgress::AwaitsReply);
    assert_eq!(stage.protocol.logins, handshake::MOST_LOGINS);
    let query = stage.order();
    stage.answer(query, Response::AuthSuccess(None));
    assert_eq!(stage.protocol.logins, handshake::MOST_LOGINS - 1);
    // Now it may send longer requests.
    stage.orders.clear();
    stage.told();
    let long = format!("SELECT * FROM t -- {}", "x".repeat(30_000));
    stage.send(2, plain_query(&long, Version::V4));
    assert_eq!(stage.order().bytes.len(), 30_019 + 9 + 4 + 3);
}

#[test]
fn a_keyspace_with_a_name_beyond_all_is_asked_of_no_node() {
    let mut stage = Stage::begun(Version::V5);
    let text = format!("USE {}", "k".repeat(70_000));
    stage.send(1, plain_query(&text, Version::V5));
    assert_eq!(stage.error(), (StreamId(1), cql::response::INVALID));
    assert!(stage.orders.is_empty());
}

/// Returns a client's connection that has begun.
fn begun(state: &Arc<CassandraState>, version: Version) -> Stage {
    let mut stage = Stage::new(Arc::clone(state), version);
    let startup = Request::Startup(vec![("CQL_VERSION", "3.0.0")]);
    assert_eq!(stage.send(0, startup), InputProgress::Done);
    assert_eq!(stage.told()[0].1, Opcode::Ready);
    stage.switch_to_frames();
    stage
}

mod locks;
mod quarantine;
mod read_atomic;
