//! Eviction on replicated partitions: the leader deletes, and all members have the same keys.

use std::collections::BTreeSet;

use super::{ask, text, wait_until_equal};
use crate::support::replicas::{Outcome, Replicas};
use testkit::{Client, Frame, eventually, eventually_some};

const OPTIONS: [&str; 4] = ["--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru"];
const KEYS: usize = 6_000;
/// Bytes of a value: a third of the keys have room.
const VALUE: usize = 4_000;

/// Returns the keys that a node has applied. Waits while it refuses because another member is being
/// elected, or because its state is too old.
fn keys_of(replicas: &Replicas, node: usize) -> BTreeSet<String> {
    let mut client = Client::connect(replicas.address(node));
    client.frame(&["READONLY"]);
    let keys = eventually_some("a list of keys", || {
        let keys = client.frame(&["KEYS", "*"]);
        keys.frames().map(<[Frame]>::to_vec)
    });
    keys.iter().map(text).collect()
}

fn info(replicas: &Replicas, node: usize, field: &str) -> u64 {
    let all = ask(replicas, node, &["INFO", "everything"]);
    let found = all.lines().find_map(|line| line.strip_prefix(field));
    let found = found.and_then(|rest| rest.strip_prefix(':'));
    found.expect("the field is there").trim().parse().unwrap()
}

#[test]
fn members_agree_when_the_leader_is_killed_while_it_evicts() {
    let mut replicas = Replicas::start_with(1, 3, &OPTIONS);
    let mut client = replicas.client();
    let value = "x".repeat(VALUE);
    let mut old_leader = None;
    for number in 0..KEYS {
        if number == KEYS / 2 {
            let leader = replicas.leader(1);
            assert!(info(&replicas, leader, "evicted_keys") > 500);
            replicas.kill_node(leader);
            old_leader = Some(leader);
        }
        let set = client.call(&["SET", &format!("key:{number}"), &value]);
        if let Outcome::Reply(reply) = set {
            assert_eq!(text(&reply), "OK");
        }
    }
    let leader = replicas.leader(1);
    assert!(info(&replicas, leader, "evicted_keys") > 500);
    replicas.start_node(old_leader.expect("it was killed"));
    wait_until_equal(&replicas);
    let keys = keys_of(&replicas, replicas.leader(1));
    assert!((1_000..2_100).contains(&keys.len()), "{} keys", keys.len());
    for node in replicas.running() {
        assert!(
            keys_of(&replicas, node) == keys,
            "node {node} has other keys"
        );
    }
    assert!(
        keys.contains(&format!("key:{}", KEYS - 1)),
        "the newest one"
    );
    for node in replicas.running().collect::<Vec<_>>() {
        eventually("memory is freed", || {
            info(&replicas, node, "used_memory") < 10 << 20
        });
        assert_eq!(info(&replicas, node, "replica_states_differ"), 0);
    }
}
