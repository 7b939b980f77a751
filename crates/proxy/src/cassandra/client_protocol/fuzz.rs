//! Conversations with a protocol and wires over simulated nodes: one client behaves, the other sends
//! mutations of a corpus, or noise. Replies to the first client must answer its own requests.
//!
//! For any input of the second client: it is answered in CQL, no request of it is left over when nodes
//! have answered, and nodes get nothing but CQL.

use std::path::Path;

use bytes::Bytes;

use cql::request::{Execute, Parameters, Prepare, Query as CqlQuery, Request};
use cql::{
    Bound, BoundValues, Consistency, Direction, Envelope, Framing, HEADER_LEN, Packer, Response,
    ResponseMessage, ResultBody, ValueList, Version,
};

use super::super::frames;
use super::scene::{Person, Scene, TOKEN};
use super::*;
use crate::runtime::query::NodeIndex;

/// The number of conversations.
const ROUNDS: u64 = 1500;
/// Turns after which everything must have been answered.
const TURNS: usize = 500;
/// The statement that the client prepares.
const TEXT: &str = "SELECT * FROM app.t WHERE k = ?";

/// Returns envelopes of requests, and whole streams, from the corpus with which the parsers are fuzzed.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cql/corpus");
    let mut paths: Vec<_> = ["requests", "frames"]
        .into_iter()
        .flat_map(|name| std::fs::read_dir(folder.join(name)).expect("a corpus"))
        .map(|entry| entry.expect("a file").path())
        .collect();
    paths.sort();
    let mut corpus: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| std::fs::read(path).expect("a file"))
        .collect();
    for version in [Version::V4, Version::V5] {
        for text in [
            "USE app",
            "CREATE TABLE t (k int)",
            "SELECT * FROM system.local",
            TEXT,
        ] {
            let mut bytes = Vec::new();
            let parameters = Parameters::new(Consistency::One, BoundValues::none(version));
            let message = Request::Query(CqlQuery { text, parameters }).into_message();
            message.write(&mut bytes, version, StreamId(3), Flags::default());
            corpus.push(bytes);
            let mut bytes = Vec::new();
            let keyspace = None;
            let message = Request::Prepare(Prepare { text, keyspace }).into_message();
            message.write(&mut bytes, version, StreamId(4), Flags::default());
            corpus.push(bytes);
            let mut bytes = Vec::new();
            let key = key("hostile");
            let message = execute(version, text, &key).into_message();
            message.write(&mut bytes, version, StreamId(5), Flags::default());
            corpus.push(bytes);
        }
        let mut bytes = Vec::new();
        let message = Request::AuthResponse(Some(TOKEN)).into_message();
        message.write(&mut bytes, version, StreamId(6), Flags::default());
        corpus.push(bytes);
    }
    corpus
}

fn key(key: &str) -> ValueList {
    let mut values = ValueList::new();
    values.push(Bound::Bytes(key.as_bytes()));
    values
}

fn execute<'a>(version: Version, text: &'a str, key: &'a ValueList) -> Request<'a> {
    Request::Execute(Execute {
        id: text.as_bytes(),
        result_metadata_id: (version == Version::V5).then_some(b"metadata"),
        parameters: Parameters::new(Consistency::Quorum, key.values(version)),
    })
}

fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.usize(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(..bytes.len());
        match random.u8(..5) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(..8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, [0, 1, 0x7f, 0x80, 0xff][random.usize(..5)]),
            _ => drop(bytes.remove(at)),
        }
    }
}

/// Returns everything that the misbehaving client sends.
fn hostile(random: &mut fastrand::Rng, person: &Person, corpus: &[Vec<u8>]) -> Vec<u8> {
    if random.u8(..8) == 0 {
        return (0..random.usize(..300)).map(|_| random.u8(..)).collect();
    }
    let mut all = person.packed(0, Request::Startup(vec![("CQL_VERSION", "3.0.0")]));
    let framing = match person.version {
        Version::V5 => Framing::Frames,
        _ => Framing::Plain,
    };
    let mut rest = Vec::new();
    for _ in 0..random.usize(1..6) {
        let mut bytes = corpus[random.usize(..corpus.len())].clone();
        if bytes.len() < HEADER_LEN || random.u8(..20) == 0 {
            rest.extend(bytes);
            continue;
        }
        if random.u8(..10) > 0 {
            bytes[0] = person.version.number();
        }
        if random.bool() {
            mutate(random, &mut bytes);
            // The header gets the actual length, so that the body is read.
            if bytes.len() >= HEADER_LEN && random.u8(..5) > 0 {
                let len = (bytes.len() - HEADER_LEN) as u32;
                bytes[5..9].copy_from_slice(&len.to_be_bytes());
            }
        }
        match bytes.len() >= HEADER_LEN {
            true => Packer::new(&mut rest, framing).push(&bytes),
            false => rest.extend(bytes),
        }
    }
    if random.u8(..6) == 0 {
        mutate(random, &mut rest);
    }
    all.extend(rest);
    all
}

/// Returns the text and the value of a row, if a reply has one.
fn told_row(bytes: &Bytes, header: Header) -> Option<(String, String)> {
    let body = &bytes[HEADER_LEN..];
    let message = ResponseMessage::decode(Envelope { header, body }).expect("CQL");
    let Response::Result(ResultBody::Rows(rows)) = message.response else {
        return None;
    };
    let row = rows.iter().next()?;
    let text = |at: usize| String::from_utf8_lossy(row[at].unwrap_or_default()).into_owned();
    Some((text(0), text(1)))
}

/// Runs one conversation. Returns how many replies the well-behaved client has had.
fn converse(seed: u64, corpus: &[Vec<u8>]) -> usize {
    let mut scene = Scene::new(seed);
    let mut random = fastrand::Rng::with_seed(!seed);
    let startup = Request::Startup(vec![("CQL_VERSION", "3.0.0")]);
    scene.people[0].say(0, startup);
    scene.turn();
    assert_eq!(scene.people[0].told.len(), 1);
    if scene.asks_who {
        scene.people[0].say(1, Request::AuthResponse(Some(TOKEN)));
        settle(&mut scene);
    }
    let keyspace = None;
    scene.people[0].say(
        2,
        Request::Prepare(Prepare {
            text: TEXT,
            keyspace,
        }),
    );
    settle(&mut scene);
    scene.people[0].told.clear();
    let bytes = hostile(&mut random, &scene.people[1], corpus);
    let mut rest = &bytes[..];
    let version = scene.people[0].version;
    let mut tags = Vec::new();
    while !rest.is_empty() || tags.len() < 20 {
        let (piece, more) = rest.split_at(random.usize(..=rest.len()));
        scene.people[1].input.extend_from_slice(piece);
        rest = more;
        let (stream, tag) = (tags.len() as i16, format!("{seed} {}", tags.len()));
        if random.bool() {
            scene.people[0].say(stream, execute(version, TEXT, &key(&tag)));
            tags.push((TEXT.to_owned(), tag));
        } else {
            let parameters = Parameters::new(Consistency::One, BoundValues::none(version));
            let text = &tag[..];
            scene.people[0].say(stream, Request::Query(CqlQuery { text, parameters }));
            tags.push((tag, String::new()));
        }
        scene.turn();
    }
    settle(&mut scene);
    let answered = check(&scene, &tags);
    for person in &scene.people {
        assert_eq!(person.under_way, 0, "a request is left behind");
        assert!(person.client.parked.is_empty() && person.client.held.is_empty());
        assert!(!person.client.awaits_reply);
    }
    for node in 0..3 {
        assert_eq!(
            scene.with(0, |_, _, _, context| context.load(NodeIndex(node))),
            0
        );
    }
    answered
}

/// Runs turns until nothing is left to do.
fn settle(scene: &mut Scene) {
    for _ in 0..TURNS {
        let wanted = scene.state.agreed() + 1;
        let held = |person: &Person| !person.client.held.is_empty();
        if scene.people.iter().any(held) {
            scene.state.record_agreement(wanted, Vec::new());
        }
        if !scene.turn() && !scene.turn() && !scene.people.iter().any(held) {
            return;
        }
    }
    panic!("it has no end");
}

/// Checks that each request of the well-behaved client has its own answer, or failed with its
/// connection.
fn check(scene: &Scene, tags: &[(String, String)]) -> usize {
    let told = &scene.people[0].told;
    let mut streams: Vec<i16> = told.iter().map(|(stream, ..)| stream.0).collect();
    streams.sort_unstable();
    assert!(
        streams.into_iter().eq(0..tags.len() as i16),
        "one reply each"
    );
    let mut answered = 0;
    for (stream, opcode, bytes) in told {
        let expected = &tags[stream.0 as usize];
        let header = frames::header_of(bytes, Direction::Response).expect("a header");
        match told_row(bytes, header) {
            Some(row) => {
                assert_eq!(row, *expected);
                answered += 1;
            }
            None => assert!(scene.faults && *opcode == Opcode::Error, "{opcode:?}"),
        }
    }
    answered
}

#[test]
fn what_a_client_sends_hurts_no_other() {
    let corpus = corpus();
    let answered: usize = (0..ROUNDS).map(|seed| converse(seed, &corpus)).sum();
    assert!(answered as u64 > 15 * ROUNDS, "{answered} replies");
}
