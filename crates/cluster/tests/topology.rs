//! The cluster's file: what it says, and how mistakes are explained.

use std::path::Path;

use base::{NodeId, PartitionId};
use fastrand::Rng;
use kumiki_cluster::fuzz::fuzz_topology;
use kumiki_cluster::slot::{self, SLOTS};
use kumiki_cluster::topology::{LoadError, NodeInfo, Topology, even};

const TWO: &str = r#"
[[node]]
id = 1
client = "127.0.0.1:7001"
fabric = "127.0.0.1:17001"

[[node]]
id = 2
client = "127.0.0.1:7002"
fabric = "127.0.0.1:17002"

[[partition]]
id = 10
slots = ["0-99", "200-8191", "8192"]
nodes = [1]

[[partition]]
id = 20
slots = "8193-16383, 100-199"
nodes = [2]
"#;

/// The mistakes as lines of text.
fn mistakes(text: &str) -> Vec<String> {
    let error = Topology::parse(text, "cluster.toml").expect_err("there are mistakes");
    error.to_string().lines().map(str::to_owned).collect()
}

/// `TWO` with `old` replaced has exactly one mistake, on the line of `at`, that says `words`.
#[track_caller]
fn one_mistake(old: &str, new: &str, at: &str, words: &[&str]) {
    assert!(TWO.contains(old), "{old:?} is not in the file");
    let text = TWO.replacen(old, new, 1);
    let found = mistakes(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    let line = text.lines().position(|line| line.contains(at));
    let line = line.expect("the line is there") + 1;
    let place = format!("cluster.toml:{line}: ");
    assert!(found[0].starts_with(&place), "not {place}: {found:?}");
    for word in words {
        assert!(found[0].contains(word), "{word:?} is missing: {found:?}");
    }
}

#[test]
fn a_file_is_understood() {
    let topology = Topology::parse(TWO, "cluster.toml").unwrap();
    let ids: Vec<_> = topology.nodes().iter().map(|node| node.id).collect();
    assert_eq!(ids, [NodeId(1), NodeId(2)]);
    let node = topology.node(NodeId(2)).unwrap();
    assert_eq!(node.client, "127.0.0.1:7002".parse().unwrap());
    assert_eq!(node.fabric, "127.0.0.1:17002".parse().unwrap());
    assert_eq!(topology.node(NodeId(3)), None);
    let (one, two) = (PartitionId(10), PartitionId(20));
    for (slot, partition) in [(0, one), (99, one), (100, two), (199, two), (200, one)] {
        assert_eq!(topology.partition_of_slot(slot), partition, "slot {slot}");
    }
    for (slot, partition) in [(8192, one), (8193, two), (SLOTS - 1, two)] {
        assert_eq!(topology.partition_of_slot(slot), partition, "slot {slot}");
    }
    // `foo` has slot 12182, `bar` 5061.
    assert_eq!(topology.partition_of(b"foo"), two);
    assert_eq!(topology.partition_of(b"bar"), one);
    assert_eq!(topology.node_of(two), NodeId(2));
    assert_eq!(topology.partition_at(NodeId(1)), Some(one));
    assert_eq!(topology.partition_at(NodeId(9)), None);
    assert_eq!(topology.partition(one).unwrap().slots, [0..=99, 200..=8192]);
    assert_eq!(topology.partition(PartitionId(9)), None);
    assert_eq!((topology.secret(), topology.text()), (None, TWO));
}

#[test]
fn slots_must_belong_to_one_partition_each() {
    let at = r#"slots = ["0-99", "#;
    one_mistake(r#""0-99""#, r#""0-42""#, r#"["0-42""#, &["slots 43-99 belong to no"]);
    one_mistake(r#""8192""#, r#""16383""#, r#"["0-99""#, &["slot 8192 belongs to no"]);
}

#[test]
fn an_overlap_names_both_lines() {
    let text = "slots = \"8193-16383, 100-199\"";
    one_mistake(text, "slots = \"8000-16383, 100-199\"", "8000-", &["slots 8000-8192", "line 14"]);
    one_mistake(text, "slots = \"8193-16383, 99-199\"", "99-199", &["slot 99 is on line 14"]);
}

#[test]
fn slots_that_do_not_exist_are_named() {
    one_mistake("16383", "16384", "16384", &["slot 16384 does not exist", "0 to 16383"]);
    one_mistake("0-99", "99-0", "99-0", &["backwards", "write 0-99"]);
    one_mistake("0-99", "0-x", "0-x", &["\"0-x\" is neither a slot nor a range"]);
    one_mistake("0-99", "", "\"\",", &["neither a slot nor a range"]);
    one_mistake("\"0-99\"", "7", "[7,", &["integer", "as a text"]);
    one_mistake("0-99", "0-99999999999", "99999999999", &["does not exist"]);
}

#[test]
fn nodes_and_partitions_must_fit_each_other() {
    one_mistake("nodes = [2]", "nodes = [3]", "nodes = [3]", &["no node 3", "[1, 2]"]);
    one_mistake("nodes = [2]", "nodes = []", "nodes = []", &["empty"]);
    one_mistake("nodes = [2]", "nodes = [1]", "nodes = [1]\n", &[]);
}

#[test]
fn everything_wrong_is_said_at_once() {
    assert_eq!(mistakes("x = 1").len(), 3);
}
