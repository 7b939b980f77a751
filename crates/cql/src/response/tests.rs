//! Responses in the form that Cassandra sends, and in forms that must be refused.

use std::net::IpAddr;

use super::*;
use crate::consistency::Consistency;
use crate::envelope::{Direction, Limits};
use crate::event::{Change, SchemaChange, SchemaTarget, StatusChange};
use crate::types::DataType;
use crate::value::CqlValue;

fn envelope(bytes: &[u8]) -> Envelope<'_> {
    let envelope = Envelope::split(bytes, Direction::Response, &Limits::default());
    envelope.unwrap().expect("a whole envelope")
}

fn with_body(start: &[u8], body: &[u8]) -> Vec<u8> {
    [start, &(body.len() as u32).to_be_bytes(), body].concat()
}

/// Checks that bytes and message correspond in both directions.
fn check_message(bytes: &[u8], message: &ResponseMessage<'_>) {
    let envelope = envelope(bytes);
    assert_eq!(ResponseMessage::decode(envelope).as_ref(), Ok(message));
    let mut out = Vec::new();
    message.write(&mut out, envelope.header.version, envelope.header.stream);
    assert_eq!(out, bytes);
}

fn check(version: u8, opcode: u8, body: &[u8], response: Response<'_>) {
    let bytes = with_body(&[version | 0x80, 0, 0, 1, opcode], body);
    check_message(&bytes, &response.into_message());
}

fn check_error(version: u8, code: i32, rest: &[u8], kind: ErrorKind<'_>) {
    let body = [&code.to_be_bytes()[..], b"\0\x03why", rest].concat();
    let message = "why";
    check(
        version,
        0,
        &body,
        Response::Error(ErrorBody { message, kind }),
    );
    let bytes = with_body(&[version | 0x80, 0, 0, 1, 0], &body);
    assert_eq!(peek_error_code(&envelope(&bytes)), Ok(code));
}

#[test]
fn a_connection_begins() {
    check(4, 2, b"", Response::Ready);
    check(4, 3, b"\0\x03a.B", Response::Authenticate("a.B"));
    let options = vec![("CQL_VERSION", vec!["3.4.7"]), ("COMPRESSION", vec![])];
    let body = b"\0\x02\0\x0bCQL_VERSION\0\x01\0\x053.4.7\0\x0bCOMPRESSION\0\0";
    check(5, 6, body, Response::Supported(options));
    check(4, 14, b"\0\0\0\x01x", Response::AuthChallenge(Some(b"x")));
    check(4, 16, b"\xff\xff\xff\xff", Response::AuthSuccess(None));
}

#[test]
fn errors_have_what_belongs_to_their_codes() {
    let consistency = Consistency::Quorum;
    check_error(4, 0x2000, b"", ErrorKind::Plain(SYNTAX_ERROR));
    check_error(4, 0x7777, b"", ErrorKind::Plain(0x7777));
    check_error(
        4,
        0x1000,
        b"\0\x04\0\0\0\x02\0\0\0\x01",
        ErrorKind::Unavailable {
            consistency,
            required: 2,
            alive: 1,
        },
    );
    check_error(
        4,
        0x1200,
        b"\0\x04\0\0\0\x01\0\0\0\x02\x01",
        ErrorKind::ReadTimeout {
            consistency,
            received: 1,
            required: 2,
            data_present: true,
        },
    );
    check_error(
        5,
        0x1700,
        b"\0\x08\0\0\0\x01\0\0\0\x02",
        ErrorKind::CasWriteUnknown {
            consistency: Consistency::Serial,
            received: 1,
            required: 2,
        },
    );
    check_error(
        4,
        0x1400,
        b"\0\x01k\0\x01f\0\x01\0\x03int",
        ErrorKind::FunctionFailure {
            keyspace: "k",
            function: "f",
            arguments: vec!["int"],
        },
    );
    check_error(
        4,
        0x2400,
        b"\0\x01k\0\0",
        ErrorKind::AlreadyExists {
            keyspace: "k",
            table: "",
        },
    );
    check_error(4, 0x2500, b"\0\x02id", ErrorKind::Unprepared { id: b"id" });
}

#[test]
fn a_contended_write_counts_in_version_5() {
    let kind = |write, contentions| ErrorKind::WriteTimeout {
        consistency: Consistency::Serial,
        received: 1,
        required: 2,
        write,
        contentions,
    };
    let counts = b"\0\x08\0\0\0\x01\0\0\0\x02";
    let body = |rest: &[u8]| [&counts[..], rest].concat();
    check_error(4, 0x1100, &body(b"\0\x03CAS"), kind("CAS", None));
    check_error(5, 0x1100, &body(b"\0\x03CAS\0\x07"), kind("CAS", Some(7)));
    check_error(5, 0x1100, &body(b"\0\x06SIMPLE"), kind("SIMPLE", None));
}

#[test]
fn version_5_says_who_failed() {
    let kind = |failures| ErrorKind::WriteFailure {
        consistency: Consistency::One,
        received: 0,
        required: 1,
        failures,
        write: "SIMPLE",
    };
    let counts = b"\0\x01\0\0\0\0\0\0\0\x01";
    let old = Failures {
        count: 1,
        reasons: vec![],
    };
    let body = [&counts[..], b"\0\0\0\x01\0\x06SIMPLE"].concat();
    check_error(4, 0x1500, &body, kind(old));
    let new = Failures {
        count: 1,
        reasons: vec![(IpAddr::from([127, 0, 0, 3]), 2)],
    };
    let body = [&counts[..], b"\0\0\0\x01\x04\x7f\0\0\x03\0\x02\0\x06SIMPLE"].concat();
    check_error(5, 0x1500, &body, kind(new.clone()));
    let read = ErrorKind::ReadFailure {
        consistency: Consistency::One,
        received: 0,
        required: 1,
        failures: new,
        data_present: false,
    };
    let body = [&counts[..], b"\0\0\0\x01\x04\x7f\0\0\x03\0\x02\0"].concat();
    check_error(5, 0x1300, &body, read);
}

#[test]
fn a_message_that_is_too_long_is_cut() {
    let message = "é".repeat(40_000);
    let mut out = Vec::new();
    let error = ErrorBody::plain(INVALID, &message);
    Response::Error(error).write(&mut out, Version::V4, StreamId(1));
    let decoded = ResponseMessage::decode(envelope(&out)).unwrap().response;
    let Response::Error(error) = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(error.message, "é".repeat(32_767));
}

#[test]
#[should_panic(expected = "more belongs to 0x2500")]
fn a_code_with_more_is_not_plain() {
    drop(ErrorBody::plain(UNPREPARED, ""));
}

#[test]
fn results_of_every_kind() {
    let result = |body: &[u8], result| check(4, 8, body, Response::Result(result));
    result(b"\0\0\0\x01", ResultBody::Void);
    result(b"\0\0\0\x03\0\x03app", ResultBody::SetKeyspace("app"));
    let change = SchemaChange {
        change: Change::Created,
        keyspace: "app",
        target: SchemaTarget::Table("t"),
    };
    result(
        b"\0\0\0\x05\0\x07CREATED\0\x05TABLE\0\x03app\0\x01t",
        ResultBody::SchemaChange(change),
    );
    let event = Event::Status(StatusChange::Up, "127.0.0.1:9042".parse().unwrap());
    let bytes = with_body(
        &[0x84, 0, 0xff, 0xff, 12],
        b"\0\x0dSTATUS_CHANGE\0\x02UP\x04\x7f\0\0\x01\0\0\x23\x52",
    );
    check_message(&bytes, &Response::Event(event).into_message());
}

/// `[applied]`: false, and the holder of the lock.
const NOT_APPLIED: &[u8] = b"\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x03app\0\x05locks\
    \0\x09[applied]\0\x04\0\x05owner\0\x0d\0\0\0\x01\0\0\0\x01\0\0\0\0\x02me";

#[test]
fn rows_are_built_as_cassandra_builds_them() {
    let columns = [("[applied]", DataType::Boolean), ("owner", DataType::Text)];
    let mut builder = RowsBuilder::new(Columns::of_table("app", "locks", &columns));
    builder.push(&[CqlValue::Boolean(false), CqlValue::text("me")]);
    let rows = builder.rows(false);
    assert_eq!(rows.column("owner"), Some(Ok(vec![CqlValue::text("me")])));
    assert_eq!(rows.column("other"), None);
    assert_eq!(rows.iter().next(), Some(vec![Some(&[0][..]), Some(b"me")]));
    check(4, 8, NOT_APPLIED, Response::Result(ResultBody::Rows(rows)));
    let body = b"\0\0\0\x02\0\0\0\x05\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\0\x02me";
    let rows = ResultBody::Rows(builder.rows(true));
    check(4, 8, body, Response::Result(rows));
}

#[test]
#[should_panic(expected = "in column owner")]
fn a_row_of_other_types_is_a_bug() {
    let columns = [("owner", DataType::Text)];
    let mut builder = RowsBuilder::new(Columns::of_table("app", "locks", &columns));
    builder.push(&[CqlValue::Int(1)]);
}

#[test]
fn pages_and_changed_descriptions() {
    let body =
        b"\0\0\0\x02\0\0\0\x0f\0\0\0\x01\0\0\0\x05state\0\x02id\0\0\0\x02\xff\xff\xff\xff\0\0\0\0";
    let bytes = with_body(&[0x85, 0, 0, 1, 8], body);
    let message = ResponseMessage::decode(envelope(&bytes)).unwrap();
    let Response::Result(ResultBody::Rows(rows)) = &message.response else {
        panic!("{message:?}");
    };
    assert_eq!(rows.metadata.paging_state.as_deref(), Some(&b"state"[..]));
    assert_eq!(rows.metadata.new_metadata_id.as_deref(), Some(&b"id"[..]));
    let all: Vec<_> = rows.iter().collect();
    assert_eq!(all, [vec![None], vec![Some(&b""[..])]]);
    check_message(&bytes, &message);
}

#[test]
fn columns_of_several_tables_name_theirs() {
    let column = |table: &str| ColumnSpec {
        keyspace: "k".into(),
        table: table.into(),
        name: "c".into(),
        data_type: DataType::Int,
    };
    let metadata = RowsMetadata::new(Columns(vec![column("a"), column("b")]));
    let mut out = Vec::new();
    metadata.write(&mut out, Version::V4);
    let expected = b"\0\0\0\0\0\0\0\x02\0\x01k\0\x01a\0\x01c\0\x09\0\x01k\0\x01b\0\x01c\0\x09";
    assert_eq!(out, expected);
    let read = RowsMetadata::read(&mut NotationReader::new(&out), Version::V4);
    assert_eq!(read, Ok(metadata));
}

#[test]
fn prepared_statements_say_where_their_key_is() {
    let columns = [("v", DataType::Int), ("k", DataType::Text)];
    let bind = |partition_key| PreparedMetadata {
        partition_key,
        columns: Columns::of_table("app", "t", &columns),
    };
    let specs = b"\0\x03app\0\x01t\0\x01v\0\x09\0\x01k\0\x0d";
    let none = b"\0\0\0\x04\0\0\0\0";
    let v4 = Prepared {
        id: b"id",
        result_metadata_id: None,
        bind: bind(vec![1]),
        result: RowsMetadata::none(),
    };
    let head = b"\0\0\0\x04\0\x02id";
    let counts = b"\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\x01";
    let body = [&head[..], counts, specs, none].concat();
    check(
        4,
        8,
        &body,
        Response::Result(ResultBody::Prepared(v4.clone())),
    );
    let v5 = Prepared {
        result_metadata_id: Some(b"meta"),
        ..v4.clone()
    };
    let body = [&head[..], b"\0\x04meta", counts, specs, none].concat();
    check(5, 8, &body, Response::Result(ResultBody::Prepared(v5)));
    let v3 = Prepared {
        bind: bind(vec![]),
        ..v4
    };
    let body = [&head[..], &counts[..8], specs, none].concat();
    check(3, 8, &body, Response::Result(ResultBody::Prepared(v3)));
}

#[test]
fn what_the_flags_say_comes_first() {
    let message = ResponseMessage {
        tracing_id: Some([9; 16]),
        warnings: Some(vec!["careful"]),
        custom_payload: Some(vec![("k", None)]),
        response: Response::Result(ResultBody::Void),
    };
    let body = [
        &[9; 16][..],
        b"\0\x01\0\x07careful\0\x01\0\x01k\xff\xff\xff\xff\0\0\0\x01",
    ];
    let bytes = with_body(&[0x84, 0x0e, 0, 1, 8], &body.concat());
    check_message(&bytes, &message);
    let error = ResponseMessage {
        response: Response::Error(ErrorBody::plain(OVERLOADED, "busy")),
        ..message
    };
    let mut out = Vec::new();
    error.write(&mut out, Version::V4, StreamId(1));
    assert_eq!(peek_error_code(&envelope(&out)), Ok(OVERLOADED));
}

#[test]
fn the_kind_of_a_result_is_known_without_the_rest() {
    let kind = |flags: u8, body: &[u8]| {
        let bytes = with_body(&[0x84, flags, 0, 1, 8], body);
        peek_result_kind(&envelope(&bytes)).map_err(|error| error.what)
    };
    for (number, expected) in [
        (1, ResultKind::Void),
        (2, ResultKind::Rows),
        (3, ResultKind::SetKeyspace),
        (4, ResultKind::Prepared),
        (5, ResultKind::SchemaChange),
    ] {
        assert_eq!(kind(0, &[0, 0, 0, number]), Ok(expected));
    }
    // Behind the id of a trace and a warning.
    let body = [&[9; 16][..], b"\0\x01\0\x01w", b"\0\0\0\x05"].concat();
    assert_eq!(kind(0x0a, &body), Ok(ResultKind::SchemaChange));
    let none = "a result of a kind that there is not";
    assert_eq!(kind(0, b"\0\0\0\x06"), Err(none));
    assert!(kind(0, b"\0\0").is_err());
}

#[test]
fn what_is_malformed_is_named() {
    let error = |opcode: u8, body: &[u8]| {
        let bytes = with_body(&[0x84, 0, 0, 1, opcode], body);
        ResponseMessage::decode(envelope(&bytes)).unwrap_err().what
    };
    assert_eq!(
        error(8, b"\0\0\0\x06"),
        "a result of a kind that there is not"
    );
    assert_eq!(
        error(8, b"\0\0\0\x02\0\0\0\x04\0\0\0\0\x7f\xff\xff\xff"),
        "rows without columns"
    );
    assert_eq!(
        error(8, b"\0\0\0\x02\0\0\0\x04\xff\xff\xff\xff"),
        "a negative number of columns"
    );
    // Announced columns and rows take no memory and no time.
    let many = b"\0\0\0\x02\0\0\0\x04\x7f\xff\xff\xff\x7f\xff\xff\xff";
    assert_eq!(error(8, many), "it ends too early");
    assert_eq!(error(8, &NOT_APPLIED[..40]), "it ends too early");
    let compressed = with_body(&[0x84, 1, 0, 1, 2], b"");
    assert!(ResponseMessage::decode(envelope(&compressed)).is_err());
}
