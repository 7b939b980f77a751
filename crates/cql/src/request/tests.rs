//! Requests in the form that drivers send, and in forms that must be refused.

use super::*;
use crate::bound::{Bound, BoundValues, ValueList};
use crate::consistency::Consistency;
use crate::envelope::{Direction, Limits};

fn envelope(bytes: &[u8]) -> Envelope<'_> {
    let envelope = Envelope::split(bytes, Direction::Request, &Limits::default());
    envelope.unwrap().expect("a whole envelope")
}

fn with_body(start: &[u8], body: &[u8]) -> Vec<u8> {
    [start, &(body.len() as u32).to_be_bytes(), body].concat()
}

/// Checks that bytes and message correspond in both directions.
fn check(bytes: &[u8], message: &RequestMessage<'_>) {
    let envelope = envelope(bytes);
    assert_eq!(RequestMessage::decode(envelope).as_ref(), Ok(message));
    let mut out = Vec::new();
    let header = envelope.header;
    message.write(&mut out, header.version, header.stream, Flags::default());
    assert_eq!(out, bytes);
}

#[test]
fn a_connection_begins() {
    let options = vec![("CQL_VERSION", "3.0.0")];
    let body = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
    let bytes = with_body(&[4, 0, 0, 0, 1], body);
    check(&bytes, &Request::Startup(options).into_message());
    check(
        &[5, 0, 0, 1, 5, 0, 0, 0, 0],
        &Request::Options.into_message(),
    );
    let token = Request::AuthResponse(Some(b"\0user\0secret"));
    let bytes = with_body(&[4, 0, 0, 1, 0x0f], b"\0\0\0\x0c\0user\0secret");
    check(&bytes, &token.into_message());
    let events = Request::Register(vec![EventKind::Status, EventKind::Schema]);
    let body = b"\0\x02\0\x0dSTATUS_CHANGE\0\x0dSCHEMA_CHANGE";
    check(
        &with_body(&[4, 0, 0, 2, 0x0b], body),
        &events.into_message(),
    );
}

#[test]
fn flags_are_wider_in_version_5() {
    let parameters = Parameters::new(Consistency::One, BoundValues::none(Version::V4));
    let text = "SELECT 1";
    let v4 = with_body(&[4, 0, 0, 1, 7], b"\0\0\0\x08SELECT 1\0\x01\0");
    check(
        &v4,
        &Request::Query(Query { text, parameters }).into_message(),
    );
    let parameters = Parameters::new(Consistency::One, BoundValues::none(Version::V5));
    let v5 = with_body(&[5, 0, 0, 1, 7], b"\0\0\0\x08SELECT 1\0\x01\0\0\0\0");
    check(
        &v5,
        &Request::Query(Query { text, parameters }).into_message(),
    );
}

#[test]
fn all_parameters_have_their_order() {
    let mut list = ValueList::new();
    list.push_named("k", Bound::Bytes(b"v"));
    let parameters = Parameters {
        skip_metadata: true,
        page_size: Some(5000),
        paging_state: Some(b"state"),
        serial_consistency: Some(Consistency::LocalSerial),
        timestamp: Some(-1),
        keyspace: Some("app"),
        now_in_seconds: Some(7),
        ..Parameters::new(Consistency::LocalQuorum, list.values(Version::V5))
    };
    let mut body = b"\0\0\0\x01q\0\x06\0\0\x01\xff\0\x01\0\x01k\0\0\0\x01v".to_vec();
    body.extend_from_slice(b"\0\0\x13\x88\0\0\0\x05state\0\x09");
    body.extend_from_slice(b"\xff\xff\xff\xff\xff\xff\xff\xff\0\x03app\0\0\0\x07");
    let query = Query {
        text: "q",
        parameters,
    };
    let bytes = with_body(&[5, 0, 0, 1, 7], &body);
    check(&bytes, &Request::Query(query).into_message());
    assert_eq!(Query::decode(&envelope(&bytes)), Ok(query));
}

#[test]
fn prepare_and_execute() {
    let prepare = |keyspace| {
        Request::Prepare(Prepare {
            text: "q",
            keyspace,
        })
        .into_message()
    };
    check(&with_body(&[4, 0, 0, 1, 9], b"\0\0\0\x01q"), &prepare(None));
    check(
        &with_body(&[5, 0, 0, 1, 9], b"\0\0\0\x01q\0\0\0\0"),
        &prepare(None),
    );
    check(
        &with_body(&[5, 0, 0, 1, 9], b"\0\0\0\x01q\0\0\0\x01\0\x03app"),
        &prepare(Some("app")),
    );
    let mut list = ValueList::new();
    list.push(Bound::Bytes(b"\0\0\0\x07"));
    list.push(Bound::Unset);
    let execute = Execute {
        id: b"id",
        result_metadata_id: Some(b"meta"),
        parameters: Parameters::new(Consistency::One, list.values(Version::V5)),
    };
    let body =
        b"\0\x02id\0\x04meta\0\x01\0\0\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xfe".as_slice();
    let bytes = with_body(&[5, 0, 0, 1, 10], body);
    check(&bytes, &Request::Execute(execute).into_message());
    let peeked = Execute::decode(&envelope(&bytes)).unwrap();
    assert_eq!(peeked.id, b"id");
    assert_eq!(
        peeked.parameters.values.get(0),
        Some(Bound::Bytes(b"\0\0\0\x07"))
    );
}

#[test]
fn a_batch_holds_texts_and_prepared_statements() {
    let mut list = ValueList::new();
    list.push(Bound::Bytes(b"a"));
    let batch = Batch {
        kind: BatchKind::Unlogged,
        statements: vec![
            BatchStatement {
                statement: Statement::Text("q"),
                values: BoundValues::none(Version::V4),
            },
            BatchStatement {
                statement: Statement::Prepared(b"id"),
                values: list.values(Version::V4),
            },
        ],
        parameters: Parameters {
            timestamp: Some(1),
            ..Parameters::new(Consistency::Quorum, BoundValues::none(Version::V4))
        },
    };
    let body =
        b"\x01\0\x02\0\0\0\0\x01q\0\0\x01\0\x02id\0\x01\0\0\0\x01a\0\x04\x20\0\0\0\0\0\0\0\x01";
    let bytes = with_body(&[4, 0, 0, 1, 13], body);
    check(&bytes, &Request::Batch(batch).into_message());
}

#[test]
fn a_custom_payload_comes_first() {
    let body = b"\0\x01\0\x01k\0\0\0\x01v\0\x02id\0\x01\0";
    let bytes = with_body(&[4, 4, 0, 1, 10], body);
    let execute = Execute {
        id: b"id",
        result_metadata_id: None,
        parameters: Parameters::new(Consistency::One, BoundValues::none(Version::V4)),
    };
    assert_eq!(Execute::decode(&envelope(&bytes)), Ok(execute));
    let message = RequestMessage {
        custom_payload: Some(vec![("k", Some(b"v"))]),
        request: Request::Execute(execute),
    };
    check(&bytes, &message);
}

#[test]
fn what_is_malformed_is_named() {
    let error = |bytes: &[u8]| RequestMessage::decode(envelope(bytes)).unwrap_err().what;
    let compressed = with_body(&[4, 1, 0, 1, 7], b"xyz");
    let no_compression = "a compressed body, and no compression was agreed on";
    assert_eq!(error(&compressed), no_compression);
    assert_eq!(
        Query::decode(&envelope(&compressed)).unwrap_err().what,
        no_compression
    );
    let batch = with_body(&[4, 0, 0, 1, 13], b"\x03");
    assert_eq!(error(&batch), "a batch of a kind that there is not");
    let batch = with_body(&[4, 0, 0, 1, 13], b"\0\0\x01\x02");
    assert_eq!(
        error(&batch),
        "a statement that is neither text nor prepared"
    );
    let register = with_body(&[4, 0, 0, 1, 11], b"\0\x01\0\x01x");
    assert_eq!(error(&register), "a kind of events that there is not");
    let query = with_body(&[4, 0, 0, 1, 7], b"\0\0\0\x01q\0\x01\x01\xff\xff");
    assert_eq!(error(&query), "it ends too early");
}

#[test]
fn every_prefix_of_a_request_is_refused_or_another_request() {
    let body = b"\0\x02id\0\x04meta\0\x01\0\0\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xfe";
    for len in 0..body.len() {
        let bytes = with_body(&[5, 0, 0, 1, 10], &body[..len]);
        let error = RequestMessage::decode(envelope(&bytes)).unwrap_err();
        assert!(error.at <= len, "{error} of {len}");
    }
}
