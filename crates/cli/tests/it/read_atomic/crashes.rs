//! The data after nodes are killed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::read_atomic::{KEYS, TOP, figure, mget, mset, values, whole};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::start_server;
use crate::support::replicas::{Follower, Outcome, Replicas};
use testkit::SetOnDrop;
use testkit::client::Answer;
use testkit::wait::go_on_until;
use testkit::{Client, eventually};

/// The state that a writer and a reader share with the thread that stops them.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    /// The last number that was acknowledged.
    acknowledged: AtomicU64,
    /// The number of reads.
    reads: AtomicU64,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Returns `true` if both counts exceed these.
    fn exceeds(&self, reads: u64, acknowledged: u64) -> bool {
        self.reads.load(Ordering::Relaxed) > reads
            && self.acknowledged.load(Ordering::Relaxed) > acknowledged
    }
}

/// Writes rising numbers to the keys by one node until it is stopped. Returns the last number that
/// was acknowledged, and the last that was tried.
fn write(to: SocketAddr, keys: &[&str], load: &Load) -> (u64, u64) {
    let (mut acknowledged, mut tried) = (0, 0);
    while load.goes_on() {
        let Ok(mut client) = Client::try_connect(to) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        while load.goes_on() {
            tried += 1;
            match client.answer(&mset(keys, &tried.to_string())) {
                Answer::Reply(reply) if reply.raw == b"+OK\r\n" => {
                    acknowledged = tried;
                    load.acknowledged.store(tried, Ordering::Relaxed);
                }
                Answer::Reply(_) => {}
                _ => break,
            }
        }
    }
    (acknowledged, tried)
}

/// Reads the keys until it is stopped, and checks that each result is whole.
fn read(to: SocketAddr, keys: &[&str], load: &Load) {
    let mut client = Client::connect(to);
    while load.goes_on() {
        if let Some(values) = values(&client.frame(&mget(keys))) {
            whole(&values);
            load.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_killed_coordinator_leaves_nothing_by_halves() {
    let keys = [KEYS[0], KEYS[1], KEYS[3]];
    let mut cluster = Cluster::start_with(3, Keeping::Data, TOP, &[]);
    let mut last = 0;
    for round in 0..4 {
        let victim = round % 3;
        let by = cluster.address(victim);
        // Two keys on nodes that live, and a node that lives.
        let others = [keys[(victim + 1) % 3], keys[(victim + 2) % 3]];
        let reader = cluster.address((victim + 1) % 3);
        let load = Load::default();
        let results = std::thread::scope(|scope| {
            let _ended = SetOnDrop(&load.stop);
            let load = &load;
            let writer = scope.spawn(move || write(by, &keys, load));
            let reader = scope.spawn(move || read(reader, &others, load));
            std::thread::sleep(Duration::from_millis(200));
            cluster.kill_node(victim);
            std::thread::sleep(Duration::from_millis(100));
            cluster.start_node(victim).expect("it starts again");
            std::thread::sleep(Duration::from_millis(200));
            go_on_until(|| load.exceeds(100, 0) || reader.is_finished());
            load.stop.store(true, Ordering::Relaxed);
            reader.join().expect("the reader");
            writer.join().expect("the writer")
        });
        let reads = load.reads.into_inner();
        assert!(reads > 100, "round {round}: {reads} reads");
        eventually("all is decided", || {
            let prepared = |node| figure(cluster.address(node), "transactions_prepared");
            (0..3).all(|node| prepared(node) == 0)
        });
        let (acknowledged, tried) = results;
        assert!(acknowledged > 0, "round {round}: nothing was written");
        for node in 0..3 {
            let reply = Client::connect(cluster.address(node)).frame(&mget(&keys));
            let found = values(&reply).unwrap_or_else(|| panic!("round {round}: {reply:?}"));
            let found: u64 = whole(&found).expect("a value").parse().expect("a number");
            let possible = acknowledged..=tried;
            assert!(
                possible.contains(&found),
                "round {round}: {found} is not in {possible:?}"
            );
            last = found;
        }
    }
    // Single keys, read at their nodes, have the same values.
    for (node, key) in keys.iter().enumerate() {
        let reply = Client::connect(cluster.address(node)).frame(&["GET", key]);
        assert_eq!(reply.bytes(), Some(last.to_string().as_bytes()));
    }
}

/// As [`write`], by a client that follows redirects.
fn insist(mut client: Follower, keys: &[&str], load: &Load) -> (u64, u64) {
    let (mut acknowledged, mut tried) = (0, 0);
    while load.goes_on() {
        tried += 1;
        if let Outcome::Reply(reply) = client.call(&mset(keys, &tried.to_string())) {
            assert_eq!(reply.raw, b"+OK\r\n", "{reply:?}");
            acknowledged = tried;
            load.acknowledged.store(tried, Ordering::Relaxed);
        }
    }
    (acknowledged, tried)
}

#[test]
fn nor_does_a_killed_leader_of_a_replicated_partition() {
    // One key of each of two partitions.
    let keys = [KEYS[0], KEYS[3]];
    let mut replicas = Replicas::start_declared(2, 3, TOP);
    let (writer, mut reader) = (replicas.client(), replicas.client());
    let load = Load::default();
    let results = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&load.stop);
        let load = &load;
        let writer = scope.spawn(move || insist(writer, &keys, load));
        let reader = scope.spawn(move || {
            while load.goes_on() {
                if let Outcome::Reply(reply) = reader.call(&mget(&keys)) {
                    whole(&values(&reply).unwrap_or_else(|| panic!("{reply:?}")));
                    load.reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        for partition in [1, 2] {
            let leader = replicas.leader(partition);
            replicas.kill_node(leader);
            replicas.leader(partition);
            std::thread::sleep(Duration::from_millis(300));
            replicas.start_node(leader);
        }
        std::thread::sleep(Duration::from_millis(300));
        go_on_until(|| load.exceeds(100, 10) || reader.is_finished() || writer.is_finished());
        load.stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader");
        writer.join().expect("the writer")
    });
    let reads = load.reads.into_inner();
    assert!(reads > 100, "{reads} reads");
    let (acknowledged, tried) = results;
    assert!(acknowledged > 10, "{acknowledged} writes");
    eventually("all is decided", || {
        let prepared = |node| figure(replicas.address(node), "transactions_prepared");
        replicas.running().all(|node| prepared(node) == 0)
    });
    let reply = replicas.client().insist(&mget(&keys));
    let found = whole(&values(&reply).expect("values")).expect("a value");
    let possible = acknowledged..=tried;
    assert!(
        possible.contains(&found.parse().expect("a number")),
        "{found} is not in {possible:?}"
    );
}

#[test]
fn a_node_without_a_cluster_has_read_atomic_keys_by_option() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let path = data.path().display().to_string();
    let args = [
        "--data",
        &path,
        "--read-atomic",
        "ra:",
        "--read-atomic",
        "b:",
    ];
    let keys = ["ra:x", "ra:y", "b:1"];
    let server = start_server(&args);
    let load = Load::default();
    let results = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&load.stop);
        let (at, load) = (server.address, &load);
        let writer = scope.spawn(move || write(at, &keys, load));
        let reader = scope.spawn(move || read(at, &keys, load));
        std::thread::sleep(Duration::from_millis(500));
        go_on_until(|| load.exceeds(100, 0) || reader.is_finished());
        load.stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader");
        writer.join().expect("the writer")
    });
    let reads = load.reads.into_inner();
    assert!(reads > 100, "{reads} reads");
    server.kill();
    let server = start_server(&args);
    let reply = Client::connect(server.address).frame(&mget(&keys));
    let found = whole(&values(&reply).expect("values")).expect("a value");
    assert_eq!(found, results.0.to_string(), "all were answered");
    let wrong = Client::connect(server.address).frame(&["MGET", "ra:x", "a"]);
    assert!(wrong.is_error(), "{wrong:?}");
}
