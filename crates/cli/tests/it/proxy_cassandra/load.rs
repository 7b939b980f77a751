//! While nodes die and come back, and the schema changes, no reply goes to a request that it does
//! not answer.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::cassandra::CassandraNodes;
use cql::request::{Execute, Parameters, Request};
use cql::{Bound, Consistency, Response, ResultBody, StreamId, ValueList, Version};

use crate::proxy_cassandra::connection::{Connection, decode};
use testkit::SetOnDrop;
use testkit::wait::go_on_until;

/// Requests of one connection that are under way.
const WINDOW: usize = 32;
/// Keys of one connection.
const KEYS: usize = 500;
/// The pause between two requests of a connection, while a node starts.
const PAUSE: Duration = Duration::from_millis(5);
/// Replies that there must be between two events.
const ENOUGH: u64 = 2000;

/// The counts of the load.
#[derive(Default)]
struct Seen {
    over: AtomicBool,
    /// A node starts: it needs some of the processor.
    gently: AtomicBool,
    good: AtomicU64,
    failed: AtomicU64,
}

/// Writes and reads keys of its own, many at a time. The value of each key is the key.
fn load(address: SocketAddr, number: usize, seen: &Seen) {
    let version = [Version::V4, Version::V5][number % 2];
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut connection = Connection::open(address, version);
    let insert = connection.prepare("INSERT INTO load.tags (k, v) VALUES (?, ?)");
    let select = connection.prepare("SELECT k, v FROM load.tags WHERE k = ?");
    let mut under_way: HashMap<StreamId, Option<String>> = HashMap::new();
    let mut last = 0i16;
    loop {
        while under_way.len() < WINDOW && !seen.over.load(Ordering::Relaxed) {
            last = (last + 1) % i16::MAX;
            let stream = StreamId(last);
            if under_way.contains_key(&stream) {
                continue;
            }
            let key = format!("{number}-{}", random.usize(..KEYS));
            let reads = random.bool();
            let mut values = ValueList::new();
            values.push(Bound::Bytes(key.as_bytes()));
            if !reads {
                values.push(Bound::Bytes(key.as_bytes()));
            }
            let (id, metadata) = if reads { &select } else { &insert };
            let values = values.values(version);
            let execute = Execute {
                id,
                result_metadata_id: metadata.as_deref(),
                parameters: Parameters::new(Consistency::Quorum, values),
            };
            connection.send(last, Request::Execute(execute));
            under_way.insert(stream, reads.then_some(key));
        }
        if under_way.is_empty() {
            return;
        }
        if seen.gently.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
        }
        let (stream, header, body) = connection.receive();
        let key = under_way.remove(&stream).expect("a stream that waits");
        match (decode(header, &body), key) {
            (Response::Result(ResultBody::Rows(rows)), Some(key)) => {
                for row in rows.iter() {
                    assert_eq!(row, [Some(key.as_bytes()); 2], "a reply to another request");
                }
                seen.good.fetch_add(1, Ordering::Relaxed);
            }
            (Response::Result(ResultBody::Void), None) => {
                seen.good.fetch_add(1, Ordering::Relaxed);
            }
            (Response::Error(_), _) => {
                seen.failed.fetch_add(1, Ordering::Relaxed);
            }
            (other, key) => panic!("{other:?} for {key:?}"),
        }
    }
}

/// Starts a dead node again.
fn restart(nodes: &mut CassandraNodes, index: usize, seen: &Seen) {
    seen.gently.store(true, Ordering::Relaxed);
    nodes.restart(index).expect("it comes back");
    seen.gently.store(false, Ordering::Relaxed);
}

/// Creates tables and drops them. Every node has the changes that were answered.
fn change_schema(address: SocketAddr, rounds: usize) {
    let mut connection = Connection::open(address, Version::V5);
    for round in 0..rounds {
        let create = format!("CREATE TABLE load.t{round} (k int PRIMARY KEY)");
        connection.execute(&create).expect("it is made");
        for key in 0..6 {
            let insert = format!("INSERT INTO load.t{round} (k) VALUES ({key})");
            connection.execute(&insert).expect("the table is there");
        }
        let drop = format!("DROP TABLE load.t{round}");
        connection.execute(&drop).expect("it is dropped");
    }
}

fn more(seen: &Seen) {
    let before = seen.good.load(Ordering::Relaxed);
    let enough = || seen.good.load(Ordering::Relaxed) >= before + ENOUGH;
    go_on_until(enough);
    assert!(
        enough(),
        "{} good replies",
        seen.good.load(Ordering::Relaxed)
    );
}

/// Nodes die and come back while replies are checked.
pub(crate) fn no_reply_crosses(proxy: SocketAddr, nodes: &mut CassandraNodes) {
    let mut connection = Connection::open(proxy, Version::V4);
    for text in [
        "CREATE KEYSPACE load WITH replication = {'class': 'SimpleStrategy', \
         'replication_factor': 3}",
        "CREATE TABLE load.tags (k text PRIMARY KEY, v text)",
    ] {
        connection.execute(text).expect("it is made");
    }
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..6)
            .map(|number| {
                let seen = &seen;
                scope.spawn(move || load(proxy, number, seen))
            })
            .collect();
        let ends = SetOnDrop(&seen.over);
        more(&seen);
        change_schema(proxy, 2);
        let calm = seen.failed.load(Ordering::Relaxed);
        nodes.kill(1).expect("it dies");
        more(&seen);
        change_schema(proxy, 1);
        restart(nodes, 1, &seen);
        more(&seen);
        nodes.kill(0).expect("it dies");
        more(&seen);
        restart(nodes, 0, &seen);
        more(&seen);
        drop(ends);
        for load in loads {
            load.join().expect("all replies are right");
        }
        assert_eq!(calm, 0, "requests fail although all nodes live");
    });
}
