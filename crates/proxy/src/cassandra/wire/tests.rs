//! A wire, and a simulated node.

use cql::response::{ErrorBody, INVALID};
use cql::{Packer, RequestMessage};

use super::super::connection_key::{CassandraConnectionProperties, login};
use super::*;
use crate::cassandra::credentials::Credential;
use crate::runtime::query::{ClientId, NodeIndex};
use cql::request::Parameters;
use cql::{BoundValues, Consistency};

const CLIENT: ClientId = ClientId {
    place: 0,
    thread: 0,
    number: 1,
};

/// A node: reads the batches, and answers them in any order and in any pieces.
struct Node {
    version: Version,
    unpacker: Unpacker,
    framing: Framing,
    /// Requests that are not answered: their streams, opcodes and bodies.
    asked: Vec<(StreamId, Opcode, Bytes)>,
}

impl Node {
    fn new(version: Version) -> Node {
        Node {
            version,
            unpacker: Unpacker::new(Direction::Request, Limits::default()),
            framing: Framing::Plain,
            asked: Vec::new(),
        }
    }

    /// Takes the wire's output.
    fn hear(&mut self, wire: &mut CqlWire) {
        let mut pack = OutBatch::default();
        wire.seal(&mut pack);
        let mut input = BytesMut::from(&pack.bytes()[..]);
        while let Some(mut some) = frames::take(&mut self.unpacker, &mut input).expect("CQL") {
            while let Some((header, bytes)) = frames::next(&mut some, Direction::Request) {
                assert_eq!(header.version, self.version);
                self.asked.push((header.stream, header.opcode, bytes));
            }
        }
        assert!(input.is_empty(), "whole envelopes");
    }

    /// Returns the bytes of responses.
    fn say(&self, responses: Vec<(StreamId, Response<'_>)>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut packer = Packer::new(&mut out, self.framing);
        for (stream, response) in responses {
            let mut envelope = Vec::new();
            response.write(&mut envelope, self.version, stream);
            packer.push(&envelope);
        }
        drop(packer);
        out
    }

    /// Answers the only pending request.
    fn answer(&mut self, wire: &mut CqlWire, response: Response<'_>) -> Result<(), WireError> {
        let (stream, ..) = self.asked.pop().expect("a request");
        let bytes = self.say(vec![(stream, response)]);
        wire.receive(&mut BytesMut::from(&bytes[..]), &mut |_, _| {
            panic!("it was the proxy's own")
        })
    }

    fn switch_to_frames(&mut self) {
        if self.version == Version::V5 {
            self.framing = Framing::Frames;
            self.unpacker.expect_frames();
        }
    }
}

fn open(name: &CassandraConnectionProperties) -> CqlWire {
    let options = Options::default();
    let connection_key = options.connection_keys.connection_key(name);
    CqlWire::open(
        &options,
        connection_key,
        &mut OutBatch::default(),
        Duration::ZERO,
    )
}

fn name(version: Version) -> CassandraConnectionProperties {
    CassandraConnectionProperties {
        version,
        index: 0,
        keyspace: None,
        credential: None,
    }
}

/// Returns a wire that has been accepted, and its node.
fn welcome(version: Version) -> (CqlWire, Node) {
    let (mut wire, mut node) = (open(&name(version)), Node::new(version));
    node.hear(&mut wire);
    assert!(!wire.has_room());
    node.answer(&mut wire, Response::Ready).expect("accepted");
    node.switch_to_frames();
    assert!(wire.has_room() && wire.oldest().is_none());
    (wire, node)
}

fn query(number: u64, version: Version, text: &str) -> BackendQuery {
    let mut bytes = Vec::new();
    let message = plain_query(text, version).into_message();
    message.write(&mut bytes, version, StreamId(77), Flags::default());
    BackendQuery {
        client: CLIENT,
        sequence: number,
        part: 0,
        node: NodeIndex(0),
        connection_key: ConnectionKey(0),
        bytes: bytes.into(),
        connection: None,
        replies: 1,
        waits: false,
        safe: true,
        route: 3,
        since: Duration::ZERO,
        retries: 0,
    }
}

/// Returns the text of a QUERY.
fn text(opcode: Opcode, bytes: &Bytes) -> String {
    assert_eq!(opcode, Opcode::Query);
    let header = Header::parse(bytes, Direction::Request, &Limits::default());
    let header = header.expect("CQL").expect("a header");
    let body = &bytes[HEADER_LEN..];
    let message = RequestMessage::decode(Envelope { header, body });
    match message.expect("CQL").request {
        Request::Query(query) => query.text.to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn replies_find_their_queries_in_any_order_and_any_pieces() {
    for version in [Version::V4, Version::V5] {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut wire, mut node) = welcome(version);
            let (mut put, mut told) = (0, Vec::new());
            while told.len() < 200 {
                for _ in 0..random.usize(..20) {
                    if put < 200 {
                        let most = [10, 200_000][random.usize(..50) / 49];
                        let filling = "x".repeat(random.usize(..most));
                        let text = format!("{put} {filling}");
                        let query = query(put, version, &text);
                        wire.put(query, &mut OutBatch::default(), Duration::ZERO);
                        put += 1;
                    }
                }
                node.hear(&mut wire);
                random.shuffle(&mut node.asked);
                let left = random.usize(..=node.asked.len());
                let answered = node.asked.split_off(left);
                let texts: Vec<(StreamId, String)> = answered
                    .iter()
                    .map(|(stream, opcode, bytes)| (*stream, text(*opcode, bytes)))
                    .collect();
                let said = texts.iter().map(|(stream, text)| {
                    (
                        *stream,
                        Response::Error(ErrorBody::plain(INVALID, &text[..text.len().min(50)])),
                    )
                });
                let mut rest = &node.say(said.collect())[..];
                let mut input = BytesMut::new();
                while !rest.is_empty() {
                    let (piece, more) = rest.split_at(random.usize(1..=rest.len()));
                    input.extend_from_slice(piece);
                    rest = more;
                    let received = wire.receive(&mut input, &mut |query, answer| {
                        let words = answer.bytes.slice(HEADER_LEN + 6..);
                        let words = String::from_utf8(words.to_vec()).expect("text");
                        let number = words.split(' ').next().expect("a number");
                        assert_eq!(number, query.sequence.to_string());
                        told.push(query.sequence);
                    });
                    assert_eq!(received, Ok(()));
                }
                assert!(input.is_empty());
                assert_eq!(wire.under_way(), node.asked.len());
            }
            told.sort_unstable();
            assert_eq!(told, (0..200).collect::<Vec<u64>>(), "seed {seed}");
        }
    }
}

#[test]
fn streams_run_out_and_come_back() {
    let (mut wire, mut node) = welcome(Version::V4);
    for number in 0..StreamId::COUNT as u64 {
        while !wire.has_room() {
            node.hear(&mut wire);
        }
        let query = query(number, Version::V4, "x");
        wire.put(query, &mut OutBatch::default(), Duration::ZERO);
    }
    node.hear(&mut wire);
    assert!(!wire.has_room() && !wire.may_ask());
    let mut streams: Vec<i16> = node.asked.iter().map(|(stream, ..)| stream.0).collect();
    streams.sort_unstable();
    assert!(streams.iter().copied().eq(0..=i16::MAX), "each stream once");
    let (stream, ..) = node.asked[1000];
    let bytes = node.say(vec![(stream, Response::Ready)]);
    let mut told = 0;
    let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |_, _| told += 1);
    assert_eq!((received, told), (Ok(()), 1));
    assert!(wire.has_room());
    wire.put(
        query(1, Version::V4, "y"),
        &mut OutBatch::default(),
        Duration::ZERO,
    );
    node.hear(&mut wire);
    assert_eq!(node.asked.last().expect("a request").0, stream);
}

#[test]
fn a_connection_authenticates_and_uses_its_keyspace_first() {
    for version in [Version::V4, Version::V5] {
        let mut name = name(version);
        name.keyspace = Some("My \"App\"".into());
        name.credential = Some(Credential::of_password("user", "secret"));
        let (mut wire, mut node) = (open(&name), Node::new(version));
        node.hear(&mut wire);
        let class = "org.apache.cassandra.auth.PasswordAuthenticator";
        let accepted = node.answer(&mut wire, Response::Authenticate(class));
        assert_eq!(accepted, Ok(()));
        node.switch_to_frames();
        node.hear(&mut wire);
        let (_, opcode, bytes) = node.asked.last().expect("a request");
        assert_eq!(*opcode, Opcode::AuthResponse);
        assert!(bytes.ends_with(b"\0user\0secret"));
        let accepted = node.answer(&mut wire, Response::AuthSuccess(None));
        assert_eq!(accepted, Ok(()));
        assert!(!wire.has_room());
        node.hear(&mut wire);
        let (_, opcode, bytes) = node.asked.last().expect("a request");
        assert_eq!(text(*opcode, bytes), "USE \"My \"\"App\"\"\"");
        let used = Response::Result(cql::ResultBody::SetKeyspace("My \"App\""));
        assert_eq!(node.answer(&mut wire, used), Ok(()));
        assert!(wire.has_room());
    }
}

#[test]
fn errors_in_the_greeting_are_told_apart() {
    let error = |code, text| Response::Error(ErrorBody::plain(code, text));
    let greeted = |steps: usize, code: i32, text: &'static str| {
        let name = CassandraConnectionProperties {
            keyspace: Some("app".into()),
            credential: Some(Credential::of_password("user", "secret")),
            ..name(Version::V4)
        };
        let (mut wire, mut node) = (open(&name), Node::new(Version::V4));
        for step in [Response::Authenticate("x"), Response::AuthSuccess(None)]
            .into_iter()
            .take(steps)
        {
            node.hear(&mut wire);
            node.answer(&mut wire, step).expect("it goes on");
        }
        node.hear(&mut wire);
        node.answer(&mut wire, error(code, text))
            .expect_err("it is broken")
    };
    let wrong = "Provided username user and/or password are incorrect";
    let cannot = "Unable to perform authentication: Operation timed out";
    let (overloaded, starting) = (cql::response::OVERLOADED, cql::response::IS_BOOTSTRAPPING);
    for (steps, code, text, refused, lacks) in [
        (0, overloaded, "Request rate limit reached", false, false),
        (0, cql::response::SERVER_ERROR, "oops", false, false),
        (1, AUTHENTICATION_ERROR, wrong, true, false),
        (1, AUTHENTICATION_ERROR, cannot, false, false),
        (1, cql::response::SERVER_ERROR, "oops", false, false),
        (2, INVALID, "Keyspace 'app' does not exist", false, true),
        (2, starting, "later", false, false),
    ] {
        let broken = greeted(steps, code, text);
        let unready = matches!(broken, WireError::Unready(_));
        assert_eq!(
            matches!(broken, WireError::Refused(_)),
            refused,
            "{broken:?}"
        );
        assert_eq!(matches!(broken, WireError::Lacks(_)), lacks, "{broken:?}");
        assert_eq!(unready, !refused && !lacks, "{broken:?}");
    }
}

#[test]
fn a_node_that_refuses_the_proxy_is_believed() {
    let (mut wire, mut node) = (open(&name(Version::V4)), Node::new(Version::V4));
    node.hear(&mut wire);
    let refused = node.answer(&mut wire, Response::Authenticate("x"));
    assert_eq!(
        refused,
        Err(WireError::Unready("it asks for a password".to_owned()))
    );
    let connection_key = login(Version::V5, CLIENT);
    let mut wire = CqlWire::open(
        &Options::default(),
        connection_key,
        &mut OutBatch::default(),
        Duration::ZERO,
    );
    let mut node = Node::new(Version::V5);
    node.hear(&mut wire);
    assert_eq!(node.answer(&mut wire, Response::Authenticate("x")), Ok(()));
    assert!(wire.has_room(), "the client says who it is");
}

#[test]
fn a_connection_with_another_keyspace_or_a_strange_reply_is_given_up() {
    let (mut wire, mut node) = welcome(Version::V5);
    wire.put(
        query(5, Version::V5, "x"),
        &mut OutBatch::default(),
        Duration::ZERO,
    );
    node.hear(&mut wire);
    let (stream, ..) = node.asked[0];
    let used = Response::Result(cql::ResultBody::SetKeyspace("other"));
    let bytes = node.say(vec![(stream, used)]);
    let mut told = Vec::new();
    let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |query, _| {
        told.push(query.sequence);
    });
    assert!(matches!(received, Err(WireError::Spoilt(_))));
    assert_eq!(told, [5]);
    let (mut wire, node) = welcome(Version::V4);
    let bytes = node.say(vec![(StreamId(9), Response::Ready)]);
    let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |_, _| {});
    assert!(matches!(received, Err(WireError::Nonsense(_))));
}

#[test]
fn a_node_is_asked_whether_it_lives_while_requests_take_their_time() {
    let (mut wire, mut node) = welcome(Version::V5);
    wire.put(
        query(1, Version::V5, "slow"),
        &mut OutBatch::default(),
        Duration::ZERO,
    );
    assert!(wire.may_ask() && wire.oldest().is_none());
    wire.probe(&mut OutBatch::default(), Duration::from_secs(3));
    assert_eq!(wire.oldest(), Some(Duration::from_secs(3)));
    assert!(!wire.may_ask());
    node.hear(&mut wire);
    let supported = node.answer(&mut wire, Response::Supported(Vec::new()));
    assert_eq!(supported, Ok(()));
    assert!(wire.oldest().is_none());
    let mut lost = Vec::new();
    wire.abandon(&mut |query| lost.push(query.sequence));
    assert_eq!(lost, [1]);
}

#[test]
fn a_late_reply_is_dropped_and_frees_its_stream() {
    let second = Duration::from_secs(1);
    for version in [Version::V4, Version::V5] {
        let (mut wire, mut node) = welcome(version);
        let put = |wire: &mut CqlWire, number, now| {
            wire.put(query(number, version, "x"), &mut OutBatch::default(), now);
        };
        put(&mut wire, 1, second);
        put(&mut wire, 2, 2 * second);
        node.hear(&mut wire);
        let late = node.asked.remove(0);
        let given_up = |wire: &mut CqlWire, now| {
            let mut told = Vec::new();
            wire.give_up_late(now, second, &mut |query, why| {
                told.push((query.sequence, why));
            });
            told
        };
        assert_eq!(
            given_up(&mut wire, 4 * second - Duration::from_nanos(1)),
            []
        );
        let told = given_up(&mut wire, 4 * second);
        assert_eq!(told, [(1, NodeError::Unanswered(3 * second))]);
        assert_eq!((wire.under_way(), wire.flights.len()), (1, 2));
        // The stream is not given to another request before its reply has come.
        put(&mut wire, 3, 4 * second);
        node.hear(&mut wire);
        assert_ne!(node.asked.last().expect("a request").0, late.0);
        let bytes = node.say(vec![(late.0, Response::Ready)]);
        let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |query, _| {
            panic!("given to {}", query.sequence)
        });
        assert_eq!((received, wire.under_way()), (Ok(()), 2));
        put(&mut wire, 4, 4 * second);
        node.hear(&mut wire);
        assert_eq!(node.asked.last().expect("a request").0, late.0);
        let mut lost = Vec::new();
        wire.abandon(&mut |query| lost.push(query.sequence));
        lost.sort_unstable();
        assert_eq!(lost, [2, 3, 4]);
    }
}

#[test]
fn a_connection_that_answers_too_little_is_given_up() {
    let (mut wire, mut node) = welcome(Version::V4);
    let second = Duration::from_secs(1);
    for number in 0..MOST_FORGOTTEN as u64 {
        while !wire.has_room() {
            node.hear(&mut wire);
        }
        let query = query(number, Version::V4, "x");
        wire.put(query, &mut OutBatch::default(), Duration::ZERO);
    }
    node.hear(&mut wire);
    let (stream, ..) = node.asked[0];
    wire.give_up_late(3 * second, second, &mut |_, _| {});
    assert_eq!((wire.under_way(), wire.oldest()), (0, Some(3 * second)));
    let bytes = node.say(vec![(stream, Response::Ready)]);
    let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |_, _| {});
    assert_eq!((received, wire.oldest()), (Ok(()), None));
}

/// Returns an EXECUTE of a key, which may be merged with those of other keys.
fn write(key: u32, version: Version) -> BackendQuery {
    let execute = cql::request::Execute {
        id: b"id",
        result_metadata_id: (version == Version::V5).then_some(b"columns"),
        parameters: Parameters::new(Consistency::One, BoundValues::none(version)),
    };
    let mut bytes = Vec::new();
    let message = Request::Execute(execute).into_message();
    message.write(&mut bytes, version, StreamId(77), Flags::default());
    BackendQuery {
        part: 1 << 20 | key,
        bytes: bytes.into(),
        safe: false,
        ..query(key.into(), version, "")
    }
}

/// Returns a wire with a batch of three under way, and the batch's stream.
fn with_a_batch(version: Version) -> (CqlWire, Node, StreamId) {
    let (mut wire, mut node) = welcome(version);
    for key in 0..3 {
        wire.put(
            write(key, version),
            &mut OutBatch::default(),
            Duration::ZERO,
        );
    }
    assert_eq!(wire.under_way(), 3);
    node.hear(&mut wire);
    let [(stream, Opcode::Batch, _)] = node.asked[..] else {
        panic!("{:?}", node.asked);
    };
    assert_eq!(wire.under_way(), 3);
    node.asked.clear();
    (wire, node, stream)
}

#[test]
fn merged_writes_have_the_answer_of_their_batch() {
    for version in [Version::V4, Version::V5] {
        let (mut wire, node, stream) = with_a_batch(version);
        let void = Response::Result(cql::ResultBody::Void);
        let bytes = node.say(vec![(stream, void)]);
        let mut told = Vec::new();
        let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |query, answer| {
            told.push((query.sequence, answer.bytes[4]));
        });
        assert_eq!(received, Ok(()));
        assert_eq!(told, [0, 1, 2].map(|key| (key, Opcode::Result as u8)));
        assert_eq!(wire.under_way(), 0);
    }
}

#[test]
fn writes_of_a_batch_that_is_refused_are_sent_one_by_one() {
    let (mut wire, mut node, stream) = with_a_batch(Version::V5);
    let refused = Response::Error(ErrorBody::plain(INVALID, "one of them"));
    let bytes = node.say(vec![(stream, refused)]);
    let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |query, _| {
        panic!("{} is told of the batch", query.sequence)
    });
    assert_eq!((received, wire.under_way()), (Ok(()), 3));
    node.hear(&mut wire);
    let opcodes: Vec<Opcode> = node.asked.iter().map(|asked| asked.1).collect();
    assert_eq!(opcodes, [Opcode::Execute; 3]);
    let mut told = 0;
    for (stream, ..) in std::mem::take(&mut node.asked) {
        let bytes = node.say(vec![(stream, Response::Result(cql::ResultBody::Void))]);
        let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |_, _| told += 1);
        assert_eq!(received, Ok(()));
    }
    assert_eq!((told, wire.under_way()), (3, 0));
}

#[test]
fn merged_writes_are_given_up_each() {
    let (mut wire, ..) = with_a_batch(Version::V4);
    wire.put(
        write(9, Version::V4),
        &mut OutBatch::default(),
        Duration::ZERO,
    );
    let mut given_up = Vec::new();
    wire.abandon(&mut |query| given_up.push(query.sequence));
    assert_eq!(given_up, [0, 1, 2, 9]);
    assert_eq!(wire.under_way(), 0);
    let (mut wire, node, stream) = with_a_batch(Version::V4);
    let mut late = Vec::new();
    let second = Duration::from_secs(1);
    wire.give_up_late(10 * second, second, &mut |query, _| {
        late.push(query.sequence)
    });
    assert_eq!((late, wire.under_way()), (vec![0, 1, 2], 0));
    // Its answer comes all the same, and is dropped.
    let bytes = node.say(vec![(stream, Response::Result(cql::ResultBody::Void))]);
    let received = wire.receive(&mut BytesMut::from(&bytes[..]), &mut |_, _| {
        panic!("whose?")
    });
    assert_eq!(received, Ok(()));
}
