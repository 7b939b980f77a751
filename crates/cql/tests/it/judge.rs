//! The corpus, judged by another implementation: it must decode what this crate decodes, and write
//! what this crate writes. Responses whose names begin with `seen` were sent by Cassandra 5.0.8.

use std::path::Path;

use cassandra_protocol::compression::Compression;
use cassandra_protocol::frame::message_response::ResponseBody;
use cassandra_protocol::frame::{Envelope as TheirEnvelope, Serialize};
use kumiki_cql::{Direction, Envelope, Flags, HEADER_LEN, Limits, RequestMessage, ResponseMessage};

/// The differences of the other implementation, and why it is no judge there.
const NO_JUDGE: &[(&str, &str)] = &[
    (
        "execute_payload",
        "custom payloads are taken for the message",
    ),
    ("void_payload", "custom payloads are taken for the message"),
    ("error_cas_unknown", "the code is unknown"),
    (
        "error_read_failure",
        "nodes that failed are read in another format",
    ),
    (
        "error_write_failure",
        "nodes that failed are read in another format",
    ),
    ("prepared_v3", "key columns are expected in version 3"),
    ("seen_v4_supported", "options lose their order"),
    ("seen_v5_supported", "options lose their order"),
];

fn has_judge(name: &str) -> bool {
    NO_JUDGE.iter().all(|(other, _)| *other != name)
}

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let named = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    };
    paths.iter().map(named).collect()
}

fn envelopes(bytes: &[u8], direction: Direction) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut envelopes = Vec::new();
    while let Some(envelope) = Envelope::split(rest, direction, &Limits::default()).unwrap() {
        let (whole, behind) = rest.split_at(envelope.header.envelope_len());
        envelopes.push(whole);
        rest = behind;
    }
    assert!(rest.is_empty(), "a corpus of whole envelopes");
    envelopes
}

fn theirs(bytes: &[u8]) -> TheirEnvelope {
    TheirEnvelope::from_buffer(bytes, Compression::None)
        .unwrap()
        .envelope
}

#[test]
fn requests_are_what_another_implementation_makes_of_them() {
    for (name, bytes) in corpus("requests") {
        for bytes in envelopes(&bytes, Direction::Request) {
            let limits = Limits::default();
            let ours = Envelope::split(bytes, Direction::Request, &limits);
            let ours = ours.unwrap().unwrap();
            let message = RequestMessage::decode(ours).unwrap();
            let mut written = Vec::new();
            let header = ours.header;
            message.write(
                &mut written,
                header.version,
                header.stream,
                Flags::default(),
            );
            assert_eq!(written, bytes, "{name}");
            if !has_judge(&name) {
                continue;
            }
            let theirs = theirs(bytes);
            let body = theirs
                .request_body()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let body = body.serialize_to_vec(theirs.version);
            assert_eq!(body, &bytes[HEADER_LEN..], "{name}");
        }
    }
}

#[test]
fn responses_are_what_another_implementation_makes_of_them() {
    for (name, bytes) in corpus("responses") {
        for bytes in envelopes(&bytes, Direction::Response) {
            let limits = Limits::default();
            let ours = Envelope::split(bytes, Direction::Response, &limits);
            let ours = ours.unwrap().unwrap();
            let message = ResponseMessage::decode(ours).unwrap();
            let mut written = Vec::new();
            message.write(&mut written, ours.header.version, ours.header.stream);
            assert_eq!(written, bytes, "{name}");
            if !has_judge(&name) {
                continue;
            }
            let theirs = theirs(bytes);
            let body = theirs
                .response_body()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let version = theirs.version;
            let again = match body {
                ResponseBody::Error(body) => body.serialize_to_vec(version),
                ResponseBody::Ready => Vec::new(),
                ResponseBody::Authenticate(body) => body.serialize_to_vec(version),
                ResponseBody::Supported(body) => body.serialize_to_vec(version),
                ResponseBody::Result(body) => body.serialize_to_vec(version),
                ResponseBody::Event(body) => body.serialize_to_vec(version),
                ResponseBody::AuthChallenge(body) => body.serialize_to_vec(version),
                ResponseBody::AuthSuccess(body) => body.serialize_to_vec(version),
                _ => panic!("{name}: no such response"),
            };
            assert_eq!(again, theirs.body, "{name}");
        }
    }
}
