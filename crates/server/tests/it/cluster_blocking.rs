//! Clients that wait for keys in a cluster of three nodes.

use crate::support::nodes::{Nodes, NodesOptions, slot_of};
use crate::support::{bulk, error, int};
use testkit::{Client, Reply, eventually};

fn quick() -> Nodes {
    Nodes::start(NodesOptions {
        count: 3,
        durable: false,
        ..NodesOptions::default()
    })
}

/// Waits until so many clients of a node wait.
#[track_caller]
fn await_blocked(nodes: &Nodes, node: u16, count: usize) {
    let mut client = nodes.client(node);
    let field = format!("blocked_clients:{count}\r\n");
    eventually("the clients wait", || {
        client.told("INFO clients").contains(&field)
    });
}

fn list(elements: &[&str]) -> Reply {
    Reply::Array(elements.iter().map(|element| bulk(element)).collect())
}

#[test]
fn a_client_waits_at_the_node_that_has_its_key() {
    let nodes = quick();
    let key = nodes.key_of(2, "list");
    let moved = format!("MOVED {} {}", slot_of(&key), nodes.address(2));
    let mut client = nodes.client(1);
    // The source is waited for, wherever the destination is.
    let elsewhere = nodes.key_of(3, "other");
    for command in [
        &["BLPOP", &key, "0"][..],
        &["BLMOVE", &key, &elsewhere, "LEFT", "LEFT", "0"],
        &["BRPOPLPUSH", &key, &elsewhere, "0"],
        &["BLMPOP", "0", "1", &key, "LEFT"],
    ] {
        assert_eq!(error(&client.call(command)), moved, "{command:?}");
    }
    let mut waiting = nodes.client(2);
    waiting.send(&["BLPOP", &key, "0"]);
    await_blocked(&nodes, 2, 1);
    // From another node, in a transaction over two nodes.
    client.send(&["MULTI"]);
    client.send(&["RPUSH", &key, "x"]);
    client.send(&["RPUSH", &elsewhere, "y"]);
    client.send(&["EXEC"]);
    (0..3).for_each(|_| drop(client.reply()));
    assert_eq!(client.reply(), Reply::Array(vec![int(1), int(1)]));
    assert_eq!(waiting.reply(), list(&[&key, "x"]));
}

#[test]
fn elements_move_between_nodes() {
    let nodes = quick();
    let [a, b, c] = [1, 2, 3].map(|node| nodes.key_of(node, "list"));
    let (mut first, mut second) = (nodes.client(1), nodes.client(2));
    first.send(&["BLMOVE", &a, &b, "LEFT", "RIGHT", "0"]);
    await_blocked(&nodes, 1, 1);
    second.send(&["BRPOPLPUSH", &b, &c, "0"]);
    await_blocked(&nodes, 2, 1);
    assert_eq!(nodes.client(1).call(&["RPUSH", &a, "x"]), int(1));
    assert_eq!((first.reply(), second.reply()), (bulk("x"), bulk("x")));
    assert_eq!(
        nodes.client(3).call(&["LRANGE", &c, "0", "-1"]),
        list(&["x"])
    );
    // One transaction, from any node.
    let mut third = nodes.client(2);
    assert_eq!(third.call(&["LMOVE", &c, &a, "LEFT", "LEFT"]), bulk("x"));
    assert_eq!(third.call(&["RPOPLPUSH", &a, &c]), bulk("x"));
    assert_eq!(third.call(&["LMOVE", &a, &c, "LEFT", "LEFT"]), Reply::Null);
    let popped = third.call(&["LMPOP", "3", &a, &b, &c, "LEFT"]);
    assert_eq!(popped, Reply::Array(vec![bulk(&c), list(&["x"])]));
}

#[test]
fn a_client_waits_for_keys_of_several_nodes() {
    let nodes = quick();
    let keys = [1, 2, 3].map(|node| nodes.key_of(node, "list"));
    let args = ["BLPOP", &keys[0], &keys[1], &keys[2], "0"];
    let mut waiting = nodes.client(1);
    for (node, key) in (1..).zip(&keys) {
        waiting.send(&args);
        await_blocked(&nodes, 1, 1);
        assert_eq!(nodes.client(node).call(&["RPUSH", key, "x"]), int(1));
        assert_eq!(waiting.reply(), list(&[key, "x"]));
    }
    let args = ["BLPOP", &keys[1], &keys[2], "0.05"];
    assert_eq!(waiting.call(&args), Reply::NullArray);
}

#[test]
fn entries_of_streams_of_several_nodes_are_waited_for() {
    let nodes = quick();
    let keys = [1, 2, 3].map(|node| nodes.key_of(node, "stream"));
    let key = &keys[1];
    let moved = format!("MOVED {} {}", slot_of(key), nodes.address(2));
    let mut waiting = nodes.client(1);
    for command in [
        &["XREAD", "BLOCK", "0", "STREAMS", key, "$"][..],
        &[
            "XREADGROUP",
            "GROUP",
            "g",
            "c",
            "BLOCK",
            "0",
            "STREAMS",
            key,
            ">",
        ],
    ] {
        assert_eq!(error(&waiting.call(command)), moved);
    }
    for (node, key) in (1..).zip(&keys) {
        let mut client = nodes.client(node);
        client.call(&["XADD", key, "1", "f", "v"]);
        client.call(&["XGROUP", "CREATE", key, "g", "$"]);
    }
    let [a, b, c] = &keys;
    for (node, key) in (1..).zip(&keys) {
        let expected = format!("[[{key} [[{}-0 [f v]]]]]", node + 1);
        let id = (node + 1).to_string();
        waiting.send(&["XREAD", "BLOCK", "0", "STREAMS", a, b, c, "$", "$", "$"]);
        await_blocked(&nodes, 1, 1);
        nodes.client(node).call(&["XADD", key, &id, "f", "v"]);
        assert_eq!(waiting.reply().shown(), expected);
        let group = ["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS"];
        let args = [&group[..], &[a, b, c, ">", ">", ">"]].concat();
        assert_eq!(waiting.call(&args).shown(), expected);
        // The same while it waits, without the entry.
        waiting.send(&args);
        await_blocked(&nodes, 1, 1);
        nodes.client(node).call(&["XGROUP", "SETID", key, "g", "1"]);
        assert_eq!(waiting.reply().shown(), expected);
    }
}

/// Elements go around three nodes by waiting moves, while each step is a transaction over two nodes.
#[test]
fn no_element_that_goes_around_is_lost() {
    const ELEMENTS: usize = 20;
    const ROUNDS: usize = 10;
    let nodes = quick();
    let keys = [1, 2, 3].map(|node| nodes.key_of(node, "ring"));
    let carry = |at: usize, steps: usize| {
        let mut client: Client = nodes.client(at as u16 + 1);
        let (from, to) = (&keys[at], &keys[(at + 1) % 3]);
        for _ in 0..steps {
            let moved = client.call(&["BLMOVE", from, to, "LEFT", "RIGHT", "0"]);
            assert!(matches!(moved, Reply::Bulk(_)), "{moved:?}");
        }
    };
    std::thread::scope(|scope| {
        for at in 0..3 {
            for _ in 0..2 {
                scope.spawn(move || carry(at, ELEMENTS * ROUNDS / 2));
            }
        }
        let mut client = nodes.client(1);
        for number in 0..ELEMENTS {
            client.call(&["RPUSH", &keys[0], &number.to_string()]);
        }
    });
    let found = nodes.client(1).call(&["LRANGE", &keys[0], "0", "-1"]);
    let Reply::Array(elements) = found else {
        panic!("no list")
    };
    let mut numbers: Vec<usize> = elements
        .iter()
        .map(|element| element.shown().parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..ELEMENTS).collect::<Vec<_>>());
}
