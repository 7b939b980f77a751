//! Read-atomic keys with real processes: whatever happens, nobody sees a part of what was written
//! together.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::client::{Algorithm, Options};
use support::client::{Answer, Client};
use support::cluster::{Cluster, Keeping};
use support::frame::Frame;
use support::process::Server;
use support::replicas::{Follower, Outcome, Replicas, eventually};

const TOP: &str = "read_atomic = [\"ra:\"]";
/// Keys of one slot of each of four nodes with equal shares, in their order.
const KEYS: [&str; 4] = ["ra:y", "ra:x", "ra:b", "ra:z"];

/// `MSET` of the same value to all keys.
fn mset<'a>(keys: &[&'a str], value: &'a str) -> Vec<&'a str> {
    let pairs = keys.iter().flat_map(|key| [*key, value]);
    [&["MSET"][..], &pairs.collect::<Vec<_>>()].concat()
}

fn mget<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    [&["MGET"][..], keys].concat()
}

/// The values of a reply to `MGET`; `None`: it is an error.
fn values(reply: &Frame) -> Option<Vec<Option<String>>> {
    let text = |frame: &Frame| Some(String::from_utf8_lossy(frame.bytes()?).into_owned());
    Some(reply.frames()?.iter().map(text).collect())
}

/// The one value that all keys have.
#[track_caller]
fn whole<V: PartialEq + Clone + std::fmt::Debug>(values: &[V]) -> V {
    let first = values.first().expect("a value");
    let fractured = values.iter().any(|value| value != first);
    assert!(!fractured, "a fractured read: {values:?}");
    first.clone()
}

/// A number of `INFO` of a node.
fn figure(of: SocketAddr, name: &str) -> u64 {
    let reply = Client::connect(of).reply(&["INFO"]);
    let text = String::from_utf8_lossy(reply.bytes().expect("text")).into_owned();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(known, _)| *known == name);
    let (_, value) = found.unwrap_or_else(|| panic!("{name} is missing: {text}"));
    value.parse().expect("a number")
}

#[test]
fn redis_clients_of_any_node_see_all_or_nothing() {
    const READS: usize = 1500;
    let cluster = Cluster::start_with(4, Keeping::Nothing, TOP);
    let stop = AtomicBool::new(false);
    let seen: usize = std::thread::scope(|scope| {
        for writer in 0..2 {
            let (to, stop) = (cluster.address(writer), &stop);
            scope.spawn(move || {
                let mut client = Client::connect(to);
                for number in 0_u64.. {
                    let value = format!("{writer}-{number}");
                    let reply = client.reply(&mset(&KEYS, &value));
                    assert_eq!(reply.raw, b"+OK\r\n", "{reply:?}");
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let read = |node| {
            let to = cluster.address(node);
            scope.spawn(move || {
                let mut client = Client::connect(to);
                let mut changes = 0;
                let mut last = None;
                for _ in 0..READS {
                    let reply = client.reply(&mget(&KEYS));
                    let value = whole(&values(&reply).unwrap_or_else(|| panic!("{reply:?}")));
                    changes += usize::from(last.as_ref() != Some(&value));
                    last = Some(value);
                }
                changes
            })
        };
        let readers: Vec<_> = (1..4).map(read).collect();
        let ended = readers.into_iter().map(|reader| reader.join());
        // Also when one has panicked, so that the test ends.
        let ended: Vec<_> = ended.collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().map(|seen| seen.expect("it reads")).sum()
    });
    assert!(seen > 100, "only {seen} values were seen");
    let sum = |name| (0..4).map(|node| figure(cluster.address(node), name)).sum();
    let (reads, second): (u64, u64) =
        (sum("cluster_ramp_reads"), sum("cluster_ramp_second_rounds"));
    assert!(reads >= 3 * READS as u64, "{reads} reads");
    // Without these the test would show nothing.
    assert!(second > 0, "no read has met a writer");
}

fn connect(fabrics: impl Iterator<Item = SocketAddr>) -> ::client::Client {
    let mut options = Options::new("");
    options.timeout = Duration::from_secs(20);
    ::client::Client::connect(fabrics, options).expect("the nodes run")
}

/// Two threads write all keys, or delete all, by one algorithm, two others read them by another.
fn write_and_read(cluster: &Cluster, (writes, reads): (Algorithm, Algorithm), count: usize) {
    let client = connect(cluster.fabrics());
    let stop = AtomicBool::new(false);
    let keys = KEYS.map(str::as_bytes);
    let write = |writer: usize| {
        let (mut number, begin) = (0, Instant::now());
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
            number += 1;
            let value = format!("{writer}-{number}").into_bytes();
            let value = (number % 10 > 0).then_some(&value[..]);
            let pairs = keys.map(|key| (key, value));
            client.put_all(&pairs, writes).expect("it is written");
        }
    };
    let read = || {
        for _ in 0..count {
            whole(&client.get_all(&keys, reads).expect("they are read"));
        }
    };
    std::thread::scope(|scope| {
        let (write, read) = (&write, &read);
        for writer in 0..2 {
            scope.spawn(move || write(writer));
        }
        let readers = [scope.spawn(read), scope.spawn(read)];
        let ended = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a reader has failed");
    });
}

#[test]
fn rust_clients_see_all_or_nothing_by_every_algorithm() {
    let cluster = Cluster::start_with(4, Keeping::Nothing, TOP);
    for algorithm in Algorithm::ALL {
        write_and_read(&cluster, (algorithm, algorithm), 1000);
    }
    // What was written by one can be read by another.
    write_and_read(&cluster, (Algorithm::Small, Algorithm::Fast), 300);
    write_and_read(&cluster, (Algorithm::Hybrid, Algorithm::Small), 300);
    write_and_read(&cluster, (Algorithm::Fast, Algorithm::Hybrid), 300);
}

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
    let mut cluster = Cluster::start_with(3, Keeping::Data, TOP);
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

/// What is refused, by itself or in a block, with words of the answer.
const REFUSED: &[(&[&[&str]], &str)] = &[
    (&[&["MSET", "ra:x", "1", "other", "1"]], "and others"),
    (&[&["MGET", "ra:x", "other"]], "and others"),
    (
        &[&["SET", "ra:x", "1"], &["SET", "other", "1"]],
        "and others",
    ),
    (&[&["GET", "ra:x"], &["DBSIZE"]], "and others"),
    (&[&["SET", "ra:x", "1"], &["GET", "ra:y"]], "read and write"),
    (&[&["INCR", "ra:x"], &["SET", "ra:y", "1"]], "counters"),
    (&[&["GET", "ra:x"], &["APPEND", "ra:y", "1"]], "counters"),
    (
        &[&["SET", "ra:x", "1"], &["SET", "ra:y", "1", "KEEPTTL"]],
        "whole values",
    ),
    (&[&["MSETNX", "ra:x", "1", "ra:y", "1"]], "conditions"),
];

/// Gives commands, in a block if there are several.
fn give(client: &mut Client, commands: &[&[&str]]) -> Frame {
    if let [command] = commands {
        return client.reply(command);
    }
    assert_eq!(client.reply(&["MULTI"]).raw, b"+OK\r\n");
    for command in commands {
        assert_eq!(client.reply(command).raw, b"+QUEUED\r\n");
    }
    client.reply(&["EXEC"])
}

/// What is refused and what is not, whichever node has the keys.
fn check_what_is_refused(client: &mut Client) {
    for (commands, words) in REFUSED {
        let reply = give(client, commands);
        let text = String::from_utf8_lossy(&reply.raw).into_owned();
        assert!(
            text.starts_with("-ERR ") && text.contains(words),
            "{commands:?}: {words:?} is missing: {text}"
        );
    }
    let reply = give(client, &[&["EXISTS", "ra:x", "ra:y"]]);
    assert_eq!(reply.raw, b":0\r\n", "something has taken effect");
    // One key alone is as any other, and several that are only read or only written are too.
    let alone = give(client, &[&["SET", "ra:x", "1"], &["INCR", "ra:x"]]);
    assert_eq!(alone.raw, b"*2\r\n+OK\r\n:2\r\n");
    let set = give(
        client,
        &[&["SET", "ra:x", "1", "EX", "100"], &["DEL", "ra:y"]],
    );
    assert_eq!(set.raw, b"*2\r\n+OK\r\n:0\r\n");
    let got = give(
        client,
        &[&["GET", "ra:x"], &["TTL", "ra:y"], &["STRLEN", "ra:x"]],
    );
    assert_eq!(got.raw, b"*3\r\n$1\r\n1\r\n:-2\r\n:1\r\n");
    assert_eq!(client.reply(&["TOUCH", "ra:x", "ra:y"]).raw, b":1\r\n");
    assert_eq!(client.reply(&mset(&["a", "b"], "1")).raw, b"+OK\r\n");
    assert_eq!(client.reply(&["DEL", "ra:x", "ra:y"]).raw, b":1\r\n");
}

/// What is watched counts as a key of the block.
fn check_watches(client: &mut Client, other: &mut Client) {
    let watch = |client: &mut Client| {
        assert_eq!(client.reply(&["WATCH", "ra:x"]).raw, b"+OK\r\n");
    };
    watch(client);
    let done = give(client, &[&["SET", "ra:x", "1"], &["GET", "ra:x"]]);
    assert_eq!(done.raw, b"*2\r\n+OK\r\n$1\r\n1\r\n");
    watch(client);
    assert_eq!(other.reply(&mset(&["ra:x", "ra:y"], "2")).raw, b"+OK\r\n");
    let done = give(client, &[&["SET", "ra:x", "1"], &["GET", "ra:x"]]);
    assert_eq!(done.raw, b"*-1\r\n", "it was changed");
    watch(client);
    let refused = give(client, &[&["SET", "ra:x", "3"], &["SET", "ra:y", "3"]]);
    let text = String::from_utf8_lossy(&refused.raw).into_owned();
    assert!(text.contains("conditions"), "{text}");
    let reply = client.reply(&mget(&["ra:x", "ra:y"]));
    assert_eq!(reply.raw, b"*2\r\n$1\r\n2\r\n$1\r\n2\r\n");
    assert_eq!(client.reply(&["UNLINK", "ra:x", "ra:y"]).raw, b":2\r\n");
}

#[test]
fn what_is_refused_does_not_depend_on_where_keys_are() {
    let cluster = Cluster::start_with(3, Keeping::Nothing, TOP);
    let alone = Server::kumiki(&["--ephemeral", "--read-atomic", "ra:"]);
    let both = [
        (cluster.address(2), cluster.address(0)),
        (alone.address, alone.address),
    ];
    for (one, other) in both {
        let (mut client, mut other) = (Client::connect(one), Client::connect(other));
        check_what_is_refused(&mut client);
        check_watches(&mut client, &mut other);
    }
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
