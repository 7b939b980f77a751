//! Messages of Cassandra 5.0.8, as the corpus keeps them, and how this crate decodes them.

use std::path::Path;

use kumiki_cql::response::{Columns, Rows, RowsBuilder};
use kumiki_cql::token::{Token, partition_key};
use kumiki_cql::{
    Bound, CqlValue, DataType, Direction, Envelope, ErrorKind, Limits, Response, ResponseMessage,
    ResultBody, ValueList, Version,
};

const VERSIONS: [(Version, &str); 2] = [(Version::V4, "app4"), (Version::V5, "app5")];

fn seen(version: Version, name: &str) -> Vec<u8> {
    let file = format!("seen_v{}_{name}", version.number());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/responses");
    std::fs::read(path.join(file)).unwrap()
}

fn decode(bytes: &[u8]) -> ResponseMessage<'_> {
    let envelope = Envelope::split(bytes, Direction::Response, &Limits::default());
    ResponseMessage::decode(envelope.unwrap().unwrap()).unwrap()
}

fn rows<'m>(message: &'m ResponseMessage<'_>) -> &'m Rows<'m> {
    match &message.response {
        Response::Result(ResultBody::Rows(rows)) => rows,
        other => panic!("no rows: {other:?}"),
    }
}

#[test]
fn tokens_are_those_that_cassandra_says() {
    for (version, _) in VERSIONS {
        let bytes = seen(version, "tok");
        let message = decode(&bytes);
        let rows = rows(&message);
        let column = |name| rows.column(name).unwrap().unwrap();
        let (first, second) = (&column("k1")[0], &column("k2")[0]);
        let (first, second) = (first.to_bytes().unwrap(), second.to_bytes().unwrap());
        // The statement `INSERT INTO t (k2, k1, b)` was prepared: its markers have another order.
        let mut values = ValueList::new();
        values.push(Bound::Bytes(&second));
        values.push(Bound::Bytes(&first));
        let prepared = seen(version, "prep_ins");
        let prepared = decode(&prepared);
        let Response::Result(ResultBody::Prepared(prepared)) = prepared.response else {
            panic!("{prepared:?}");
        };
        assert_eq!(prepared.bind.partition_key, [1, 0]);
        let mut scratch = Vec::new();
        let values = values.values(version);
        let key = partition_key(&values, &prepared.bind.partition_key, &mut scratch).unwrap();
        let Token(token) = Token::of_key(key);
        assert_eq!(column("system.token(k1, k2)"), [CqlValue::Bigint(token)]);
    }
}

#[test]
fn rows_of_locks_are_built_byte_for_byte() {
    let applied = || ("[applied]", DataType::Boolean);
    let name = || ("name", DataType::Text);
    let owner = || ("owner", DataType::Text);
    let (yes, no) = (CqlValue::Boolean(true), CqlValue::Boolean(false));
    let (fix, me, other) = (
        CqlValue::text("fix"),
        CqlValue::text("me"),
        CqlValue::text("x"),
    );
    for (version, keyspace) in VERSIONS {
        let check = |file: &str, columns: &[(&str, DataType)], row: Option<&[CqlValue]>| {
            let mut builder = RowsBuilder::new(Columns::of_table(keyspace, "locks", columns));
            row.iter().for_each(|row| builder.push(row));
            let mut written = Vec::new();
            let result = Response::Result(ResultBody::Rows(builder.rows(false)));
            result.write(&mut written, version, kumiki_cql::StreamId(1));
            assert_eq!(written, seen(version, file), "{file}");
        };
        check("lock2", &[applied()], Some(std::slice::from_ref(&yes)));
        // A client that did not get the lock receives the whole row; if its condition fails, the
        // columns of the condition.
        let held = [no.clone(), fix.clone(), me.clone()];
        check("lock2b", &[applied(), name(), owner()], Some(&held));
        check(
            "upd_no",
            &[applied(), owner()],
            Some(&[no.clone(), me.clone()]),
        );
        check("upd_none", &[applied()], Some(std::slice::from_ref(&no)));
        check(
            "del_no",
            &[applied(), owner()],
            Some(&[no.clone(), other.clone()]),
        );
        check("sellock", &[name(), owner()], None);
    }
}

#[test]
fn every_value_of_a_row_is_read() {
    for (version, _) in VERSIONS {
        let bytes = seen(version, "sel");
        let message = decode(&bytes);
        let rows = rows(&message);
        let column = |name| rows.column(name).unwrap().unwrap().remove(0);
        assert_eq!(column("k1"), CqlValue::text("a"));
        assert_eq!(column("b"), CqlValue::Blob(vec![0xca, 0xfe]));
        assert_eq!(column("i"), CqlValue::Inet([127, 0, 0, 1].into()));
        assert_eq!(column("ts"), CqlValue::Timestamp(5));
        let pair = (CqlValue::text("x"), CqlValue::Int(1));
        assert_eq!(column("m"), CqlValue::Map(vec![pair]));
        assert_eq!(column("s"), CqlValue::text_set(["p", "q"]));
        assert_eq!(
            column("v"),
            CqlValue::List(vec![CqlValue::Int(1), CqlValue::Int(2)])
        );
    }
}

#[test]
fn a_node_describes_itself() {
    for (version, _) in VERSIONS {
        let bytes = seen(version, "local");
        let message = decode(&bytes);
        let rows = rows(&message);
        let text = |name| match rows.column(name).unwrap().unwrap().remove(0) {
            CqlValue::Text(text) => text,
            other => panic!("{name} is {other:?}"),
        };
        assert_eq!(
            text("partitioner"),
            "org.apache.cassandra.dht.Murmur3Partitioner"
        );
        assert_eq!(text("data_center"), "datacenter1");
        let CqlValue::Set(tokens) = rows.column("tokens").unwrap().unwrap().remove(0) else {
            panic!("tokens are a set");
        };
        assert_eq!(tokens.len(), 4);
        for token in tokens {
            let CqlValue::Text(token) = token else {
                panic!("tokens are texts");
            };
            assert!(token.parse::<Token>().is_ok(), "{token}");
        }
    }
}

#[test]
fn errors_say_what_programs_need() {
    for (version, keyspace) in VERSIONS {
        let kind = |name: &str| {
            let bytes = seen(version, name);
            match decode(&bytes).response {
                Response::Error(error) => format!("{:?}", error.kind),
                other => panic!("no error: {other:?}"),
            }
        };
        let table = "t";
        let exists = ErrorKind::AlreadyExists { keyspace, table };
        assert_eq!(kind("exists"), format!("{exists:?}"));
        let id = [b'x'; 16].as_slice();
        assert_eq!(
            kind("unprepared"),
            format!("{:?}", ErrorKind::Unprepared { id })
        );
        assert!(kind("unavail").contains("required: 3, alive: 1"));
        let warned = seen(version, "warned");
        assert_eq!(decode(&warned).warnings.map(|list| list.len()), Some(2));
        let traced = seen(version, "traced");
        assert!(decode(&traced).tracing_id.is_some());
    }
}
