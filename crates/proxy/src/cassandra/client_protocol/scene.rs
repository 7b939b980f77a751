//! Two clients, a protocol, wires, and simulated nodes that answer in any order and at any time.

use std::collections::{HashMap, VecDeque};

use cql::request::{Request, RequestMessage};
use cql::response::{
    AUTHENTICATION_ERROR, Columns, ErrorBody, ErrorKind, Prepared, PreparedMetadata, RowsBuilder,
    RowsMetadata,
};
use cql::{
    Bound, CqlValue, DataType, Direction, Envelope, Framing, HEADER_LEN, Limits, Packer, Response,
    ResponseMessage, ResultBody, Unpacker, Version,
};

use std::sync::Arc;

use bytes::Bytes;

use super::super::frames;
use super::super::node_connection::Options;
use super::super::shared_state::CassandraState;
use super::super::wire::CqlWire;
use super::tests::state;
use super::*;
use crate::runtime::inflight_budget::InflightBudget;
use crate::runtime::query::{
    BackendCommand, BackendQuery, ConnectionKey, NodeError, NodeIndex, QueryFailure,
};
use crate::runtime::wire::Wire;

/// The credential that the nodes accept, if they require authentication.
pub(super) const TOKEN: &[u8] = b"\0user\0secret";

pub(super) struct Person {
    pub(super) id: ClientId,
    pub(super) client: CqlClient,
    pub(super) input: BytesMut,
    pub(super) out: OutBatch,
    pub(super) under_way: u32,
    pub(super) version: Version,
    pub(super) framing: Framing,
    pub(super) unpacker: Unpacker,
    pub(super) heard: BytesMut,
    pub(super) closed: bool,
    /// The replies that it has got: streams, opcodes, envelopes.
    pub(super) told: Vec<(StreamId, Opcode, Bytes)>,
}

impl Person {
    pub(super) fn new(protocol: &mut CqlProtocol, number: u32, version: Version) -> Person {
        let id = ClientId {
            place: number,
            thread: 0,
            number,
        };
        Person {
            id,
            client: protocol.admit(id, SocketAddr::from(([127, 0, 0, 1], 1))),
            input: BytesMut::new(),
            out: OutBatch::default(),
            under_way: 0,
            version,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            heard: BytesMut::new(),
            closed: false,
            told: Vec::new(),
        }
    }

    pub(super) fn packed(&self, stream: i16, request: Request<'_>) -> Vec<u8> {
        let (mut envelope, mut out) = (Vec::new(), Vec::new());
        let message = request.into_message();
        let none = Flags::default();
        message.write(&mut envelope, self.version, StreamId(stream), none);
        Packer::new(&mut out, self.framing).push(&envelope);
        out
    }

    pub(super) fn say(&mut self, stream: i16, request: Request<'_>) {
        let bytes = self.packed(stream, request);
        self.input.extend_from_slice(&bytes);
    }

    fn switch_to_frames(&mut self) {
        if self.version == Version::V5 {
            self.framing = Framing::Frames;
            self.unpacker.expect_frames();
        }
    }

    /// Takes the client's replies, which must be CQL for any input.
    fn hear(&mut self) {
        self.heard.extend_from_slice(&self.out.bytes());
        self.out.clear();
        // Frames follow the answer to its STARTUP, which is not in a frame.
        while self.client.stage == HandshakeStage::New || self.framing == Framing::Plain {
            let envelope = Envelope::split(&self.heard, Direction::Response, &Limits::default());
            let Some(envelope) = envelope.expect("CQL") else {
                return;
            };
            let header = envelope.header;
            ResponseMessage::decode(envelope).expect("CQL");
            let bytes = self.heard.split_to(header.envelope_len()).freeze();
            self.told.push((header.stream, header.opcode, bytes));
            let begins = matches!(header.opcode, Opcode::Ready | Opcode::Authenticate);
            if begins && header.version == Version::V5 {
                self.version = Version::V5;
                self.switch_to_frames();
            }
        }
        while let Some(mut some) = frames::take(&mut self.unpacker, &mut self.heard).expect("CQL") {
            while let Some((header, bytes)) = frames::next(&mut some, Direction::Response) {
                let body = &bytes[HEADER_LEN..];
                ResponseMessage::decode(Envelope { header, body }).expect("CQL");
                self.told.push((header.stream, header.opcode, bytes));
            }
        }
    }
}

/// A connection to a node, and the node's end of it.
pub(super) struct Link {
    wire: CqlWire,
    waiting: VecDeque<BackendQuery>,
    version: Version,
    framing: Framing,
    unpacker: Unpacker,
    asked: Vec<(StreamId, Bytes)>,
    knows: bool,
}

pub(super) struct Scene {
    pub(super) protocol: CqlProtocol,
    pub(super) state: Arc<CassandraState>,
    pub(super) options: Arc<Options>,
    pub(super) asks_who: bool,
    pub(super) people: Vec<Person>,
    pub(super) links: HashMap<(NodeIndex, ConnectionKey), Link>,
    pub(super) orders: Vec<BackendCommand>,
    pub(super) later: Vec<(Duration, BackendQuery)>,
    pub(super) inflight: InflightBudget,
    pub(super) now: Duration,
    pub(super) random: fastrand::Rng,
    pub(super) faults: bool,
}

impl Scene {
    pub(super) fn new(seed: u64) -> Scene {
        let mut random = fastrand::Rng::with_seed(seed);
        let asks_who = random.u8(..4) == 0;
        let class = asks_who.then_some("PasswordAuthenticator");
        let state = state(class, Version::V5);
        let mut protocol = CqlProtocol::new(Arc::clone(&state));
        let versions = [Version::V4, Version::V5];
        let people = (0..2).map(|number| {
            let version = versions[random.usize(..2)];
            Person::new(&mut protocol, number, version)
        });
        Scene {
            people: people.collect(),
            protocol,
            options: Arc::clone(&state.options),
            state,
            asks_who,
            links: HashMap::new(),
            orders: Vec::new(),
            later: Vec::new(),
            inflight: InflightBudget::new(30),
            now: Duration::from_secs(10),
            faults: random.u8(..4) == 0,
            random,
        }
    }

    pub(super) fn with<T>(
        &mut self,
        person: usize,
        act: impl FnOnce(&mut CqlProtocol, &mut CqlClient, &mut BytesMut, &mut RequestContext<'_>) -> T,
    ) -> T {
        let person = &mut self.people[person];
        let mut context = RequestContext {
            id: person.id,
            now: self.now,
            out: &mut person.out,
            orders: &mut self.orders,
            later: &mut self.later,
            inflight: &mut self.inflight,
            under_way: &mut person.under_way,
        };
        act(
            &mut self.protocol,
            &mut person.client,
            &mut person.input,
            &mut context,
        )
    }

    /// Runs one turn of all parts. Returns `true` if something was done.
    pub(super) fn turn(&mut self) -> bool {
        let mut busy = false;
        if self.protocol.has_notices() {
            self.protocol.refresh(self.now);
            for person in 0..self.people.len() {
                self.with(person, |protocol, client, _, context| {
                    protocol.deliver_notices(client, context)
                });
            }
        }
        for person in 0..self.people.len() {
            if !self.people[person].closed {
                let progress = self.with(person, |protocol, client, input, context| {
                    protocol.read(client, input, context)
                });
                self.people[person].closed = progress == InputProgress::Close;
            }
            let Person { client, out, .. } = &mut self.people[person];
            self.protocol.seal(client, out);
            self.people[person].hear();
        }
        for (due, query) in std::mem::take(&mut self.later) {
            self.now = self.now.max(due);
            self.inflight.take(&query);
            self.orders.push(BackendCommand::Send(query));
        }
        for order in std::mem::take(&mut self.orders) {
            busy = true;
            match order {
                BackendCommand::Send(query) => self.link(&query).waiting.push_back(query),
                BackendCommand::HangUp(node, connection_key)
                | BackendCommand::Release(node, connection_key) => {
                    self.lose((node, connection_key), NodeError::HungUp)
                }
            }
        }
        let mut keys: Vec<_> = self.links.keys().copied().collect();
        keys.sort_unstable_by_key(|(node, connection_key)| (node.0, connection_key.0));
        for key in keys {
            busy |= self.go_on(key);
        }
        busy
    }

    fn link(&mut self, query: &BackendQuery) -> &mut Link {
        let now = self.now;
        let (options, key) = (&self.options, (query.node, query.connection_key));
        self.links.entry(key).or_insert_with(|| Link {
            wire: CqlWire::open(options, key.1, &mut OutBatch::default(), now),
            waiting: VecDeque::new(),
            version: Version::V4,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Request, Limits { body: usize::MAX }),
            asked: Vec::new(),
            knows: false,
        })
    }

    /// Loses a connection to a node.
    fn lose(&mut self, key: (NodeIndex, ConnectionKey), why: NodeError) {
        let Some(mut link) = self.links.remove(&key) else {
            return;
        };
        let mut failed = Vec::new();
        link.wire
            .abandon(&mut |query| failed.push((query, QueryFailure::Lost(why.clone()))));
        let waiting = link.waiting.into_iter();
        failed.extend(waiting.map(|query| (query, QueryFailure::Unsent(why.clone()))));
        for (query, failure) in failed {
            self.give(BackendReply {
                query,
                connection: 0,
                result: Err(failure),
            });
        }
    }

    fn give(&mut self, reply: BackendReply) {
        self.inflight.give_back(&reply.query);
        let person = reply.query.client.place as usize;
        assert_eq!(reply.query.client, self.people[person].id);
        self.people[person].under_way -= 1;
        self.with(person, |protocol, client, _, context| {
            protocol.reply(client, reply, context)
        });
    }

    /// Lets a link write, and its node answer some requests. Returns `true` if something was done.
    fn go_on(&mut self, key: (NodeIndex, ConnectionKey)) -> bool {
        if self.faults && self.random.u8(..60) == 0 {
            self.lose(key, NodeError::Closed("by the test".to_owned()));
            return true;
        }
        let now = self.now;
        let link = self.links.get_mut(&key).expect("it is there");
        while link.wire.has_room()
            && let Some(query) = link.waiting.pop_front()
        {
            link.wire.put(query, &mut OutBatch::default(), now);
        }
        let mut pack = OutBatch::default();
        link.wire.seal(&mut pack);
        let mut input = BytesMut::from(&pack.bytes()[..]);
        while let Some(mut some) = frames::take(&mut link.unpacker, &mut input).expect("CQL") {
            while let Some((header, bytes)) = frames::next(&mut some, Direction::Request) {
                link.version = header.version;
                link.asked.push((header.stream, bytes));
            }
        }
        if link.asked.is_empty() {
            return false;
        }
        self.random.shuffle(&mut link.asked);
        let some = self.random.usize(1..=link.asked.len());
        let mut said = Vec::new();
        let mut switch_to_frames = false;
        for (stream, bytes) in link.asked.drain(..some) {
            let envelope = answer(link.version, stream, &bytes, &mut link.knows, self.asks_who);
            Packer::new(&mut said, link.framing).push(&envelope);
            switch_to_frames |= bytes[4] == Opcode::Startup as u8 && link.version == Version::V5;
        }
        if switch_to_frames {
            link.framing = Framing::Frames;
            link.unpacker.expect_frames();
        }
        let mut replies = Vec::new();
        let mut said = BytesMut::from(&said[..]);
        let received = link.wire.receive(&mut said, &mut |query, answer| {
            replies.push(BackendReply {
                query,
                connection: 1,
                result: Ok(answer),
            });
        });
        for reply in replies {
            self.give(reply);
        }
        if let Err(broken) = received {
            self.lose(key, NodeError::Refused(format!("{broken:?}")));
        }
        true
    }
}

/// Returns a node's answer: a row with the statement and the value that it got.
fn answer(
    version: Version,
    stream: StreamId,
    bytes: &Bytes,
    knows: &mut bool,
    asks_who: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    let any = Limits { body: usize::MAX };
    let envelope = Envelope::split(bytes, Direction::Request, &any);
    let envelope = envelope.expect("CQL").expect("it is whole");
    let mut say = |response: Response<'_>| response.write(&mut out, version, stream);
    match RequestMessage::decode(envelope).expect("CQL").request {
        Request::Startup(_) if asks_who => say(Response::Authenticate("PasswordAuthenticator")),
        Request::Startup(_) | Request::Register(_) => say(Response::Ready),
        Request::Options => say(Response::Supported(Vec::new())),
        Request::AuthResponse(Some(token)) if token == TOKEN => say(Response::AuthSuccess(None)),
        Request::AuthResponse(_) => {
            let error = ErrorBody::plain(AUTHENTICATION_ERROR, "nobody knows you");
            say(Response::Error(error));
        }
        Request::Query(query) => match query.text {
            text if text.starts_with("USE") => {
                say(Response::Result(ResultBody::SetKeyspace("app")));
            }
            text if text.contains("system_schema.keyspaces") => say(echo("app", None).response()),
            text if text.starts_with("CREATE") => {
                say(Response::Result(ResultBody::SchemaChange(
                    cql::event::SchemaChange {
                        change: cql::event::Change::Created,
                        keyspace: "app",
                        target: cql::event::SchemaTarget::Table("t"),
                    },
                )));
            }
            text => say(echo(text, query.parameters.values.get(0)).response()),
        },
        Request::Prepare(prepare) => {
            *knows = true;
            let columns = Columns::of_table("app", "t", &[("k", DataType::Text)]);
            say(Response::Result(ResultBody::Prepared(Prepared {
                id: prepare.text.as_bytes(),
                result_metadata_id: (version == Version::V5).then_some(b"metadata"),
                bind: PreparedMetadata {
                    partition_key: vec![0],
                    columns: columns.clone(),
                },
                result: RowsMetadata::new(columns),
            })));
        }
        Request::Execute(execute) if !*knows => say(Response::Error(ErrorBody {
            message: "not known",
            kind: ErrorKind::Unprepared { id: execute.id },
        })),
        Request::Execute(execute) => {
            let text = String::from_utf8_lossy(execute.id);
            say(echo(&text, execute.parameters.values.get(0)).response());
        }
        Request::Batch(_) => say(Response::Result(ResultBody::Void)),
    }
    out
}

/// A result of one row.
struct Echo(RowsBuilder);

impl Echo {
    fn response(&self) -> Response<'_> {
        Response::Result(ResultBody::Rows(self.0.rows(false)))
    }
}

fn echo(text: &str, value: Option<Bound<'_>>) -> Echo {
    let value = value.and_then(Bound::bytes).unwrap_or_default();
    let columns = ["text", "value"].map(|name| (name, DataType::Text));
    let mut rows = RowsBuilder::new(Columns::of_table("app", "t", &columns));
    let value = String::from_utf8_lossy(value);
    rows.push(&[CqlValue::text(text), CqlValue::text(value)]);
    Echo(rows)
}
