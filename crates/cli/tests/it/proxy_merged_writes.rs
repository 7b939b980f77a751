//! `--merge-writes` before a real Cassandra node: it writes the same data as without the option, in
//! fewer requests, and a wrong write harms no other.
//!
//! `cargo xtask peers` installs Cassandra. Without it the test says so and passes; with
//! `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::net::SocketAddr;

use crate::support::cassandra::alone;
use crate::support::cql::{Connection, Received};
use crate::support::process::proxy;
use ::cassandra::{CassandraNodes, Installed, Options};
use cql::response::INVALID;
use cql::{CqlValue, Version};
use testkit::peers::{self, Group};

/// Keys of one connection.
const KEYS: i32 = 200;
/// Requests that are sent in one piece.
const PIECE: usize = 25;

/// Writes, changes and deletes the keys of a connection.
fn write(address: SocketAddr, table: &str, number: i32) {
    let version = [Version::V4, Version::V5][number as usize % 2];
    let mut connection = Connection::open(address, version).expect("it listens");
    let keys: Vec<i32> = (number * KEYS..(number + 1) * KEYS).collect();
    let mut run = |text: String, all: Vec<Vec<Vec<u8>>>| {
        let prepared = connection.prepare(&text).expect("it answers");
        let prepared = prepared.unwrap_or_else(|told| panic!("{text}: {told:?}"));
        for piece in all.chunks(PIECE) {
            let told = connection
                .execute_all(&prepared, piece)
                .expect("it answers");
            assert_eq!(told, vec![Received::Done; piece.len()], "{text}");
        }
    };
    let bytes = |key: i32| key.to_be_bytes().to_vec();
    run(
        format!("INSERT INTO merged.{table} (k, v) VALUES (?, ?)"),
        keys.iter()
            .map(|&key| vec![bytes(key), bytes(-key)])
            .collect(),
    );
    run(
        format!("UPDATE merged.{table} SET v = ? WHERE k = ?"),
        keys.iter()
            .filter(|&key| key % 2 == 0)
            .map(|&key| vec![bytes(key * 7), bytes(key)])
            .collect(),
    );
    run(
        format!("DELETE FROM merged.{table} WHERE k = ?"),
        keys.iter()
            .filter(|&key| key % 3 == 0)
            .map(|&key| vec![bytes(key)])
            .collect(),
    );
}

/// Returns the rows of a table, in the order of their keys.
fn rows(connection: &mut Connection, table: &str) -> Vec<(i32, i32)> {
    let text = format!("SELECT k, v FROM merged.{table}");
    let Received::Rows(rows) = connection.query(&text).expect("it answers") else {
        panic!("no rows of {table}");
    };
    let mut rows: Vec<(i32, i32)> = rows
        .iter()
        .map(|row| match &row[..] {
            [(_, CqlValue::Int(key)), (_, CqlValue::Int(value))] => (*key, *value),
            other => panic!("{other:?}"),
        })
        .collect();
    rows.sort_unstable();
    rows
}

/// Returns the most partitions of an unlogged batch that the node has executed.
fn largest_batch(connection: &mut Connection) -> f64 {
    let text = "SELECT * FROM system_views.batch_metrics";
    let Received::Rows(rows) = connection.query(text).expect("it answers") else {
        panic!("the node tells nothing of batches");
    };
    let is_unlogged = |row: &&Vec<(String, CqlValue)>| {
        row.iter()
            .any(|(_, value)| matches!(value, CqlValue::Text(name) if name.contains("unlogged")))
    };
    let row = rows.iter().find(is_unlogged).expect("unlogged batches");
    match row
        .iter()
        .find(|(name, _)| name == "max")
        .map(|(_, value)| value)
    {
        Some(CqlValue::Bigint(most)) => *most as f64,
        Some(CqlValue::Double(most)) => *most,
        other => panic!("{other:?}"),
    }
}

#[test]
fn merged_writes_write_what_they_would_alone() {
    if peers::installed(Group::Cassandra, "cassandra/lib").is_none() {
        return;
    }
    let _alone = alone();
    let installed = Installed::find(&peers::root()).expect("its jars are there");
    let nodes = CassandraNodes::start(&Options::new(installed, 1).anywhere()).expect("it starts");
    let node = nodes.addresses()[0];
    let before = node.to_string();
    let plain = proxy(&["--cassandra", &before, "--network-threads", "1"]);
    let merging = proxy(&[
        "--cassandra",
        &before,
        "--network-threads",
        "1",
        "--merge-writes",
    ]);
    let mut directly = Connection::open(node, Version::V5).expect("it listens");
    for text in [
        "CREATE KEYSPACE merged WITH replication = {'class': 'SimpleStrategy', \
         'replication_factor': 1}",
        "CREATE TABLE merged.one (k int PRIMARY KEY, v int)",
        "CREATE TABLE merged.many (k int PRIMARY KEY, v int)",
    ] {
        assert_eq!(directly.query(text).expect("it answers"), Received::Done);
    }
    for (address, table) in [(plain.address, "one"), (merging.address, "many")] {
        std::thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || write(address, table, number));
            }
        });
        let most = largest_batch(&mut directly);
        assert_eq!(most > 1.0, table == "many", "{table}: {most}");
        assert!(most < 11.0, "{most}");
    }
    let expected: Vec<(i32, i32)> = (0..4 * KEYS)
        .filter(|key| key % 3 != 0)
        .map(|key| (key, if key % 2 == 0 { key * 7 } else { -key }))
        .collect();
    assert_eq!(rows(&mut directly, "one"), expected);
    assert_eq!(rows(&mut directly, "many"), expected);
    one_that_is_wrong(merging.address, &mut directly);
    assert!(plain.terminate().success());
    assert!(merging.terminate().success());
    nodes.stop().expect("it ends in good order");
}

/// Checks that of several merged writes only a wrong one is refused.
fn one_that_is_wrong(address: SocketAddr, directly: &mut Connection) {
    let mut connection = Connection::open(address, Version::V5).expect("it listens");
    let text = "INSERT INTO merged.one (k, v) VALUES (?, ?)";
    let prepared = connection.prepare(text).expect("it answers");
    let prepared = prepared.unwrap_or_else(|told| panic!("{told:?}"));
    let key = |key: i32| key.to_be_bytes().to_vec();
    let mut all: Vec<Vec<Vec<u8>>> = (5000..5010).map(|one| vec![key(one), key(one)]).collect();
    all[4][1] = b"seven b".to_vec();
    let told = connection.execute_all(&prepared, &all).expect("it answers");
    for (at, told) in told.iter().enumerate() {
        match at {
            4 => assert_eq!(told.code(), INVALID, "{told:?}"),
            _ => assert_eq!(*told, Received::Done, "{at}"),
        }
    }
    let written = rows(directly, "one");
    let written = written.iter().filter(|(key, _)| *key >= 5000).count();
    assert_eq!(written, 9);
}
