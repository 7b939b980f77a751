//! A cluster of processes of the real binary: mistakes on the command line and in the file, and
//! nodes that are killed.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::kumiki;
use testkit::Client;
use testkit::SetOnDrop;
use testkit::client::Answer;
use testkit::process::wait;
use testkit::wait::go_on_until;

/// A file with three mistakes: a slot that no node has, one that two have, and a node that is not
/// there.
const WRONG: &str = r#"[[node]]
id = 1
client = "127.0.0.1:7001"
fabric = "127.0.0.1:17001"

[[partition]]
id = 1
slots = ["0-8191", "8193-16383"]
nodes = [1]

[[partition]]
id = 2
slots = ["100"]
nodes = [9]
"#;

/// Runs `kumiki serve` on a file; it is expected to end by itself. Returns its exit code and its
/// output.
fn refused(file: &str, args: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("c.toml"), file).expect("the file");
    let mut child = kumiki()
        .args(["serve", "--cluster", "c.toml", "--node"])
        .args(args)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    wait(&mut child);
    let output = child.wait_with_output().expect("its output");
    let said = String::from_utf8(output.stderr).expect("text");
    (output.status.code(), said)
}

/// Each node is started with the other one's data: it would not find its keys.
#[test]
fn the_data_of_another_node_is_refused() {
    let mut cluster = Cluster::start(2, Keeping::Data);
    for node in 0..2 {
        assert!(cluster.terminate_node(node).success());
    }
    cluster.exchange_data(0, 1);
    for node in 0..2 {
        let said = cluster.start_node(node).expect_err("it is not its data");
        let owner = format!("holds the data of node {} of a cluster", 2 - node);
        assert!(said.contains(&owner), "{said}");
        assert!(said.contains("OWNER"), "{said}");
    }
    cluster.exchange_data(0, 1);
    for node in 0..2 {
        cluster.start_node(node).expect("it is its data");
    }
}

#[test]
fn mistakes_are_told_each_with_its_line() {
    let (code, said) = refused(WRONG, &["1"]);
    assert_eq!(code, Some(1), "{said}");
    for (line, words) in [(8, "8192"), (13, "100"), (14, "9")] {
        let place = format!("c.toml:{line}:");
        let there = said
            .lines()
            .any(|one| one.contains(&place) && one.contains(words));
        assert!(there, "{place} {words} in {said}");
    }
    let right = WRONG.replace("\"0-8191\", \"8193-16383\"", "\"0-16383\"");
    let right = right
        .split("\n[[partition]]\nid = 2")
        .next()
        .expect("a part");
    let (code, said) = refused(right, &["4"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("no node 4") && said.contains("it has: 1"),
        "{said}"
    );
    let (code, said) = refused(right, &["1", "--listen", "127.0.0.1:1"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("--listen 127.0.0.1:1") && said.contains("127.0.0.1:7001"),
        "{said}"
    );
}

/// Keys of one slot of each of three nodes with equal shares.
const KEYS: [&str; 3] = ["bar", "hello2", "foo"];

/// Writes rising numbers to all keys until it is stopped. Stores the last number that was
/// acknowledged, and returns the last that was tried.
fn write(to: SocketAddr, stop: &AtomicBool, acknowledged: &AtomicU64) -> u64 {
    let mut tried = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::try_connect(to) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            tried += 1;
            let number = tried.to_string();
            let command = ["MSET", KEYS[0], &number, KEYS[1], &number, KEYS[2], &number];
            match client.answer(&command) {
                Answer::Reply(reply) if reply.raw == b"+OK\r\n" => {
                    acknowledged.store(tried, Ordering::Relaxed);
                }
                Answer::Reply(_) => {}
                _ => break,
            }
        }
    }
    tried
}

/// Returns the values of the keys, once the nodes are together again.
fn read(cluster: &Cluster) -> Vec<u8> {
    let begin = Instant::now();
    loop {
        let command = ["MGET", KEYS[0], KEYS[1], KEYS[2]];
        let reply = Client::connect(cluster.address(0)).frame(&command).raw;
        if reply.starts_with(b"*") {
            return reply.to_vec();
        }
        let text = String::from_utf8_lossy(&reply);
        assert!(begin.elapsed() < Duration::from_secs(30), "{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn killed_nodes_come_back_with_what_was_acknowledged_and_nothing_by_halves() {
    let mut cluster = Cluster::start(3, Keeping::Data);
    for round in 0..4 {
        let victim = round % 3;
        let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        // In turn by way of another node, and of the one that is killed.
        let by = cluster.address((victim + (round + 1) % 2) % 3);
        let tried = std::thread::scope(|scope| {
            let _ended = SetOnDrop(&stop);
            let (stop, acknowledged) = (&stop, &acknowledged);
            let writer = scope.spawn(move || write(by, stop, acknowledged));
            std::thread::sleep(Duration::from_millis(300));
            cluster.kill_node(victim);
            std::thread::sleep(Duration::from_millis(100));
            cluster.start_node(victim).expect("it starts again");
            std::thread::sleep(Duration::from_millis(300));
            go_on_until(|| acknowledged.load(Ordering::Relaxed) > 0);
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer")
        });
        let reply = String::from_utf8(read(&cluster)).expect("numbers");
        let values: Vec<&str> = reply.split("\r\n").skip(2).step_by(2).take(3).collect();
        assert!(
            values.iter().all(|value| *value == values[0]),
            "round {round}: {values:?}"
        );
        let found: u64 = values[0].parse().expect("a number");
        let acknowledged = acknowledged.into_inner();
        assert!(acknowledged > 0, "round {round}: nothing was written");
        let possible = acknowledged..=tried;
        assert!(
            possible.contains(&found),
            "round {round}: {found} is not in {possible:?}"
        );
        let gone = Client::connect(cluster.address(0)).frame(&["DEL", KEYS[0], KEYS[1], KEYS[2]]);
        assert_eq!(gone.raw, b":3\r\n");
    }
}
