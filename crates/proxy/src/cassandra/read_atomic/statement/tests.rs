use cql::{Bound, ValueList, Version};

use super::super::super::lock_table::schema::tests::schema_of;
use super::super::record::tests::key;
use super::*;

/// Returns a designated table `app.t` of one key column, and `app.pair` of two.
pub(crate) fn tables() -> Vec<KnownTable> {
    let tag = (TAG_COLUMN, DataType::Blob, "regular", -1);
    let one = schema_of(
        "app.t",
        &[
            ("k", DataType::Text, "partition_key", 0),
            ("a", DataType::Text, "regular", -1),
            ("b", DataType::Int, "regular", -1),
            tag.clone(),
        ],
    );
    let two = schema_of(
        "app.pair",
        &[
            ("p", DataType::Text, "partition_key", 0),
            ("c", DataType::Text, "clustering", 0),
            ("a", DataType::Text, "regular", -1),
            tag.clone(),
        ],
    );
    let other = schema_of(
        "other.t",
        &[
            ("k", DataType::Text, "partition_key", 0),
            ("id", DataType::Timeuuid, "regular", -1),
            tag,
        ],
    );
    let known = [one, two, other].into_iter().map(|schema| KnownTable {
        name: schema.name.clone(),
        schema: Ok(Arc::new(schema)),
    });
    known.collect()
}

fn statement(text: &str, values: &ValueList) -> Result<AtomicStatement, ProxyError> {
    let tables = tables();
    let context = StatementContext {
        tables: &tables,
        current: Some("app"),
    };
    context.statement(text, &values.values(Version::V4))
}

fn plain(text: &str) -> AtomicStatement {
    statement(text, &ValueList::new()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    let refused = statement(text, &ValueList::new()).map(drop);
    refused.expect_err(text).to_string()
}

#[test]
fn a_batch_writes_whole_rows() {
    let text = "BEGIN BATCH INSERT INTO t (k, a, b) VALUES ('x', 'one', 1) UPDATE pair SET a = null \
                WHERE p = 'y' AND c = 'z' DELETE FROM app.t WHERE k = 'w' APPLY BATCH";
    let AtomicStatement::Write { keyspace, writes } = plain(text) else {
        panic!("it writes");
    };
    assert_eq!(keyspace, "app");
    let column = |name: &str, value: Option<&[u8]>| (name.to_owned(), value.map(<[u8]>::to_vec));
    let expected = [
        RowWrite {
            key: key("t", &["x"]),
            columns: Some(vec![
                column("a", Some(b"one")),
                column("b", Some(b"\0\0\0\x01")),
            ]),
        },
        RowWrite {
            key: key("pair", &["y", "z"]),
            columns: Some(vec![column("a", None)]),
        },
        RowWrite {
            key: key("t", &["w"]),
            columns: None,
        },
    ];
    assert_eq!(writes, expected);
}

#[test]
fn a_read_names_rows_by_all_values_of_its_key() {
    let keys = |statement| match statement {
        AtomicStatement::Read(read) => (read.keys, read.columns.len()),
        other => panic!("{other:?}"),
    };
    let two = keys(plain("SELECT a, b AS c FROM t WHERE k IN ('x', 'y', 'x')"));
    assert_eq!(two, (vec![key("t", &["x"]), key("t", &["y"])], 2));
    let pairs = keys(plain(
        "SELECT * FROM pair WHERE c IN ('1', '2') AND p IN ('x', 'y')",
    ));
    let expected = [["x", "1"], ["x", "2"], ["y", "1"], ["y", "2"]];
    assert_eq!(pairs.0, expected.map(|values| key("pair", &values)));
    let mut list = ValueList::new();
    list.push(Bound::Bytes(b"\0\0\0\x02\0\0\0\x01x\0\0\0\x01y"));
    let bound = statement("SELECT * FROM t WHERE k IN ?", &list).expect("a read");
    assert_eq!(keys(bound).0, [key("t", &["x"]), key("t", &["y"])]);
}

#[test]
fn refusals_say_what_to_do() {
    for (text, words) in [
        (
            "INSERT INTO t (k, a) VALUES ('x', 'y')",
            "give b, too, or null",
        ),
        ("UPDATE t SET a = 'x' WHERE k = 'x'", "give b, too, or null"),
        (
            "INSERT INTO t (k, a, b, kumiki_txn) VALUES ('x', 'y', 1, 0x00)",
            "leave it out",
        ),
        (
            "DELETE FROM pair WHERE p = 'x'",
            "Some clustering keys are missing: c",
        ),
        (
            "SELECT * FROM pair WHERE p = 'x'",
            "Some clustering keys are missing: c",
        ),
        ("SELECT * FROM t WHERE a = 'x'", "Non PRIMARY KEY columns"),
        (
            "SELECT * FROM t WHERE k = 'x' AND k = 'y'",
            "more than one relation",
        ),
        (
            "SELECT nothing FROM t WHERE k = 'x'",
            "Undefined column name nothing",
        ),
        ("INSERT INTO u (k) VALUES ('x')", "--read-atomic"),
        ("BEGIN BATCH APPLY BATCH", "is empty"),
        (
            "BEGIN BATCH DELETE FROM t WHERE k = 'x' DELETE FROM other.t WHERE k = 'x' APPLY BATCH",
            "one keyspace",
        ),
        (
            "BEGIN BATCH DELETE FROM t WHERE k = 'x' DELETE FROM app.t WHERE k = 'x' APPLY BATCH",
            "each row once",
        ),
        (
            "INSERT INTO t (k, a, b) VALUES ('', 'y', 1)",
            "Key may not be empty",
        ),
        ("SELECT * FROM t", SUPPORTED_ON_ROWS),
        (
            "INSERT INTO other.t (k, id) VALUES ('x', 00112233-4455-6677-8899-aabbccddeeff)",
            "Invalid constant for id",
        ),
    ] {
        let refused = refusal(text);
        assert!(refused.contains(words), "{text}: {refused}");
    }
    let many = (0..=MOST_ROWS).map(|row| format!("'{row}'"));
    let many = many.collect::<Vec<_>>().join(",");
    let refused = refusal(&format!("SELECT * FROM t WHERE k IN ({many})"));
    assert!(refused.contains("at most 100"), "{refused}");
}

#[test]
fn values_that_nodes_would_refuse_are_refused() {
    let with = |text, value: Bound<'_>| {
        let mut values = ValueList::new();
        values.push(value);
        statement(text, &values)
    };
    let int = "INSERT INTO t (k, a, b) VALUES ('x', 'y', ?)";
    assert!(with(int, Bound::Bytes(b"\0\0\0\x01")).is_ok());
    assert!(with(int, Bound::Null).is_ok());
    for value in [Bound::Bytes(b""), Bound::Bytes(b"\x01"), Bound::Unset] {
        assert!(with(int, value).is_err(), "{value:?}");
    }
    let uuid = "INSERT INTO other.t (k, id) VALUES ('x', ?)";
    let mut bytes = [0x11; 16];
    assert!(with(uuid, Bound::Bytes(&bytes)).is_ok());
    bytes[6] = 0x41;
    assert!(with(uuid, Bound::Bytes(&bytes)).is_err());
}

#[test]
fn rows_and_bytes_are_bounded() {
    let write = |key_text: &str, len| RowWrite {
        key: key("t", &[key_text]),
        columns: Some(vec![("a".to_owned(), Some(vec![0; len]))]),
    };
    let of = |writes| AtomicStatement::of_writes(Some("app".to_owned()), writes);
    let most = (0..MOST_ROWS).map(|row| write(&row.to_string(), 1));
    let mut most: Vec<RowWrite> = most.collect();
    assert!(of(most.clone()).is_ok());
    most.push(write("more", 1));
    let error = of(most).expect_err("too many").to_string();
    assert!(error.contains("at most 100 rows"), "{error}");
    let error = of(vec![write("x", MOST_BYTES)]).expect_err("too long");
    assert!(error.to_string().contains("bytes"), "{error}");
}
