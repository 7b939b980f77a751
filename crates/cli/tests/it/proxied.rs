//! What a proxy needs from a cluster of replicated partitions: any node reports who leads them, and
//! nodes redirect single keys and execute everything else.

use std::time::Duration;

use crate::support::process::{proxy, start_server};
use crate::support::replicas::{Replicas, STEADY};
use crate::support::words::text;
use testkit::{Client, Frame, eventually};

/// A key of each of two partitions with equal shares of the slots.
const KEYS: [&str; 2] = ["bar", "foo"];

fn ask(replicas: &Replicas, node: usize, args: &[&str]) -> Frame {
    Client::connect(replicas.address(node)).frame(args)
}

/// Returns the ports of the masters, in the order of the slots, according to `CLUSTER SLOTS`.
fn by_slots(replicas: &Replicas, node: usize) -> Vec<i64> {
    let slots = ask(replicas, node, &["CLUSTER", "SLOTS"]);
    let port = |range: &Frame| range.frames()?[2].frames()?[1].int();
    let ranges = slots.frames().expect("a list of ranges");
    ranges
        .iter()
        .map(|range| port(range).expect("a port"))
        .collect()
}

/// As [`by_slots`], according to `CLUSTER SHARDS`.
fn by_shards(replicas: &Replicas, node: usize) -> Vec<i64> {
    let shards = ask(replicas, node, &["CLUSTER", "SHARDS"]);
    let field = |map: &Frame, name: &str| -> Option<Frame> {
        let fields = map.frames()?.chunks(2);
        let mut fields = fields.filter(|pair| pair[0].bytes() == Some(name.as_bytes()));
        fields.next().map(|pair| pair[1].clone())
    };
    let port = |shard: &Frame| {
        let nodes = field(shard, "nodes")?;
        let is_master =
            |node: &&Frame| field(node, "role").is_some_and(|role| role.bytes() == Some(b"master"));
        let master = nodes.frames()?.iter().find(is_master)?;
        field(master, "port")?.int()
    };
    let shards = shards.frames().expect("a list of shards");
    shards
        .iter()
        .map(|shard| port(shard).expect("a master with a port"))
        .collect()
}

/// As [`by_slots`], according to `CLUSTER NODES`.
fn by_nodes(replicas: &Replicas, node: usize) -> Vec<i64> {
    let nodes = ask(replicas, node, &["CLUSTER", "NODES"]);
    let nodes = String::from_utf8(nodes.bytes().expect("text").to_vec()).expect("text");
    let mut masters: Vec<(u16, i64)> = Vec::new();
    for line in nodes.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let (true, Some(slots)) = (words[2].contains("master"), words.get(8)) {
            let port = words[1].split([':', '@']).nth(1).expect("a port");
            let first = slots.split('-').next().expect("a slot");
            masters.push((
                first.parse().expect("a slot"),
                port.parse().expect("a port"),
            ));
        }
    }
    masters.sort_unstable();
    masters.into_iter().map(|(_, port)| port).collect()
}

fn leaders(replicas: &Replicas) -> Vec<i64> {
    let leader = |partition| replicas.address(replicas.leader(partition)).port();
    [1, 2].map(|partition| leader(partition).into()).to_vec()
}

#[test]
fn every_node_names_the_leaders_of_today() {
    let mut replicas = Replicas::start(2, 3);
    for round in 0..2 {
        // Only this request makes nodes look for leaders.
        for node in replicas.running().collect::<Vec<_>>() {
            for (what, told) in [
                ("SLOTS", by_slots as fn(&Replicas, usize) -> Vec<i64>),
                ("SHARDS", by_shards),
                ("NODES", by_nodes),
            ] {
                eventually(&format!("round {round}, node {node}, {what}"), || {
                    told(&replicas, node) == leaders(&replicas)
                });
            }
        }
        if round == 0 {
            // The leader of the one partition is killed, that of the other hands over.
            replicas.kill_node(replicas.leader(2));
            replicas.transfer(&["--partition", "1"]);
        }
    }
}

#[test]
fn single_keys_are_sent_to_leaders_and_all_else_is_taken_by_any_node() {
    let replicas = Replicas::start_with(2, 3, &STEADY);
    let addresses = [1, 2].map(|partition| replicas.address(replicas.leader(partition)));
    for node in 1..=replicas.count() {
        let mut client = Client::connect(replicas.address(node));
        for (key, leader) in KEYS.iter().zip(addresses) {
            let expected = format!(" {leader}\r\n");
            eventually("it knows who leads", || {
                let said = text(&client.frame(&["GET", key]));
                match replicas.address(node) == leader {
                    true => said.starts_with('$'),
                    false => said.starts_with("-MOVED ") && said.ends_with(&expected),
                }
            });
        }
        let number = node.to_string();
        let set = client.frame(&["MSET", KEYS[0], &number, KEYS[1], &number]);
        assert_eq!(set.raw, b"+OK\r\n", "{}", text(&set));
        let both = client.frame(&["MGET", KEYS[1], KEYS[0]]);
        let both: Vec<_> = both
            .frames()
            .expect("a list")
            .iter()
            .map(Frame::bytes)
            .collect();
        assert_eq!(both, [Some(number.as_bytes()); 2]);
        // A shared connection: versions from one node, the block at another, in one piece.
        let other = replicas.address(node % replicas.count() + 1);
        let told = client.frame(&["WATCH.VERSION", KEYS[0], KEYS[1]]);
        let told: Vec<&str> = told
            .frames()
            .expect("a list")
            .iter()
            .map(|version| std::str::from_utf8(version.bytes().expect("text")).expect("text"))
            .collect();
        for takes_effect in [true, false] {
            let mut shared = Client::connect(other);
            shared.send(&["WATCH.AT", KEYS[0], told[0], KEYS[1], told[1]]);
            shared.send(&["MULTI"]);
            shared.send(&["LOCK.GUARD", "lock", &number]);
            shared.send(&["INCR", KEYS[0]]);
            shared.send(&["INCR", KEYS[1]]);
            shared.send(&["EXEC"]);
            let mut last = None;
            for _ in 0..6 {
                last = Some(shared.receive());
            }
            let testkit::client::Answer::Reply(last) = last.expect("six replies") else {
                panic!("the connection has ended")
            };
            assert_eq!(
                last.raw.starts_with(b"*3\r\n"),
                takes_effect,
                "{}",
                text(&last)
            );
            assert_eq!(
                last.raw.starts_with(b"*-1"),
                !takes_effect,
                "{}",
                text(&last)
            );
        }
    }
}

/// A proxy that was stopped, as by a pause of its machine, gives nodes their whole time from when
/// it continues: `INCR` could not be sent again.
#[test]
fn a_pause_of_the_proxy_is_not_taken_for_a_silence_of_nodes() {
    let node = start_server(&[] as &[&str]);
    let nodes = node.address.to_string();
    let proxy = proxy(&[
        "--redis",
        &nodes,
        "--timeout",
        "2s",
        "--network-threads",
        "1",
    ]);
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.told("INCR k"), "1");
    node.pause();
    client.send(&["INCR", "k"]);
    // It reaches the node's socket.
    std::thread::sleep(Duration::from_millis(300));
    proxy.pause();
    std::thread::sleep(Duration::from_secs(3));
    proxy.resume();
    std::thread::sleep(Duration::from_millis(300));
    node.resume();
    assert_eq!(client.reply().shown(), "2");
    assert_eq!(client.told("GET k"), "2");
}
