//! What is left when nodes are killed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::client::{Answer, Client};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::Server;
use crate::support::replicas::{Follower, Outcome, Replicas, eventually};
use crate::{KEYS, TOP, figure, mget, mset, values, whole};

/// Writes rising numbers to the keys by one node until told to stop. Returns the last number that was
/// acknowledged, and the last that was tried.
fn write(to: SocketAddr, keys: &[&str], stop: &AtomicBool) -> (u64, u64) {
    let (mut acknowledged, mut tried) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::try_connect(to) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            tried += 1;
            match client.call(&mset(keys, &tried.to_string())) {
                Answer::Reply(reply) if reply.raw == b"+OK\r\n" => acknowledged = tried,
                Answer::Reply(_) => {}
                _ => break,
            }
        }
    }
    (acknowledged, tried)
}

/// Reads the keys until told to stop; what comes is whole. Returns how often something did.
fn read(to: SocketAddr, keys: &[&str], stop: &AtomicBool) -> usize {
    let (mut client, mut count) = (Client::connect(to), 0);
    while !stop.load(Ordering::Relaxed) {
        if let Some(values) = values(&client.reply(&mget(keys))) {
            whole(&values);
            count += 1;
        }
    }
    count
}

#[test]
fn a_killed_coordinator_leaves_nothing_by_halves() {
    let keys = [KEYS[0], KEYS[1], KEYS[3]];
    let mut cluster = Cluster::start_with(3, Keeping::Data, TOP, &[]);
    let mut last = 0;
    for round in 0..4 {
        let victim = round % 3;
        let by = cluster.address(victim);
        // Two keys that are on nodes which live, and a node that lives.
        let others = [keys[(victim + 1) % 3], keys[(victim + 2) % 3]];
        let reader = cluster.address((victim + 1) % 3);
        let stop = AtomicBool::new(false);
        let (results, reads) = std::thread::scope(|scope| {
            let stop = &stop;
            let writer = scope.spawn(move || write(by, &keys, stop));
            let reader = scope.spawn(move || read(reader, &others, stop));
            std::thread::sleep(Duration::from_millis(200));
            cluster.kill_node(victim);
            std::thread::sleep(Duration::from_millis(100));
            cluster.start_node(victim).expect("it starts again");
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
            let read = reader.join().expect("the reader");
            (writer.join().expect("the writer"), read)
        });
        assert!(reads > 100, "round {round}: {reads} reads");
        eventually("all is decided", || {
            let prepared = |node| figure(cluster.address(node), "transactions_prepared");
            (0..3).all(|node| prepared(node) == 0)
        });
        let (acknowledged, tried) = results;
        assert!(acknowledged > 0, "round {round}: nothing was written");
        for node in 0..3 {
            let reply = Client::connect(cluster.address(node)).reply(&mget(&keys));
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
    // Single keys, asked where they are, say the same.
    for (node, key) in keys.iter().enumerate() {
        let reply = Client::connect(cluster.address(node)).reply(&["GET", key]);
        assert_eq!(reply.bytes(), Some(last.to_string().as_bytes()));
    }
}

/// As [`write`], by a client that goes where it is sent.
fn insist(mut client: Follower, keys: &[&str], stop: &AtomicBool) -> (u64, u64) {
    let (mut acknowledged, mut tried) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        tried += 1;
        if let Outcome::Reply(reply) = client.call(&mset(keys, &tried.to_string())) {
            assert_eq!(reply.raw, b"+OK\r\n", "{reply:?}");
            acknowledged = tried;
        }
    }
    (acknowledged, tried)
}

#[test]
fn nor_does_a_killed_leader_of_a_replicated_partition() {
    // One of each of two partitions.
    let keys = [KEYS[0], KEYS[3]];
    let mut replicas = Replicas::start_declared(2, 3, TOP);
    let (writer, mut reader) = (replicas.client(), replicas.client());
    let stop = AtomicBool::new(false);
    let (results, reads) = std::thread::scope(|scope| {
        let stop = &stop;
        let writer = scope.spawn(move || insist(writer, &keys, stop));
        let reader = scope.spawn(move || {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                if let Outcome::Reply(reply) = reader.call(&mget(&keys)) {
                    whole(&values(&reply).unwrap_or_else(|| panic!("{reply:?}")));
                    count += 1;
                }
            }
            count
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
        stop.store(true, Ordering::Relaxed);
        let read = reader.join().expect("the reader");
        (writer.join().expect("the writer"), read)
    });
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
    let server = Server::kumiki(&args);
    let stop = AtomicBool::new(false);
    let (results, reads) = std::thread::scope(|scope| {
        let (at, stop) = (server.address, &stop);
        let writer = scope.spawn(move || write(at, &keys, stop));
        let reader = scope.spawn(move || read(at, &keys, stop));
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        let read = reader.join().expect("the reader");
        (writer.join().expect("the writer"), read)
    });
    assert!(reads > 100, "{reads} reads");
    server.kill();
    let server = Server::kumiki(&args);
    let reply = Client::connect(server.address).reply(&mget(&keys));
    let found = whole(&values(&reply).expect("values")).expect("a value");
    assert_eq!(found, results.0.to_string(), "all were answered");
    let wrong = Client::connect(server.address).reply(&["MGET", "ra:x", "a"]);
    assert!(wrong.is_error(), "{wrong:?}");
}
