//! Commands and blocks over several nodes: their answers, and that they are serializable.

use crate::support::nodes::{Nodes, NodesOptions, nodes};
use crate::support::{bulk, error, int, ok, status, transfer_by};
use testkit::workload::Extent;
use testkit::{Client, Reply};

/// Returns one key of each node.
fn keys_of_all(nodes: &Nodes, name: &str) -> Vec<String> {
    let all = 1..=nodes.options.count;
    all.map(|node| nodes.key_of(node, name)).collect()
}

fn array(items: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::Array(items.into_iter().collect())
}

fn call(client: &mut Client, name: &str, args: &[&str]) -> Reply {
    client.call(&[&[name], args].concat())
}

/// Executes a block.
fn block(client: &mut Client, commands: &[&[&str]]) -> Reply {
    assert_eq!(client.call(&["MULTI"]), ok());
    for command in commands {
        assert_eq!(client.call(command), status("QUEUED"), "{command:?}");
    }
    client.call(&["EXEC"])
}

#[test]
fn commands_of_several_keys_work_over_all_slots() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let [a, b, c] = [0, 1, 2].map(|at| keys[at].as_str());
    for node in 1..=3 {
        let mut client = nodes.client(node);
        assert_eq!(client.call(&["MSET", a, "1", b, "2", c, "3"]), ok());
        for (key, value) in [(a, "1"), (b, "2"), (c, "3")] {
            assert_eq!(nodes.get(key), bulk(value));
        }
        let all = array([bulk("3"), Reply::Null, bulk("1"), bulk("2")]);
        let other = nodes.key_of(2, "absent");
        assert_eq!(call(&mut client, "MGET", &[c, &other, a, b]), all);
        assert_eq!(call(&mut client, "EXISTS", &[a, b, c, &other, a]), int(4));
        assert_eq!(call(&mut client, "TOUCH", &[a, b, &other]), int(2));
        assert_eq!(call(&mut client, "MSETNX", &[&other, "x", b, "y"]), int(0));
        assert_eq!(nodes.get(&other), Reply::Null);
        assert_eq!(call(&mut client, "DEL", &[a, b, &other]), int(2));
        assert_eq!(call(&mut client, "UNLINK", &[c, a]), int(1));
        assert_eq!(
            call(&mut client, "MSETNX", &[a, "7", b, "8", c, "9"]),
            int(1)
        );
        assert_eq!(nodes.get(b), bulk("8"));
        assert_eq!(call(&mut client, "DEL", &[a, b, c]), int(3));
    }
}

#[test]
fn several_slots_of_one_other_node_are_no_obstacle() {
    let nodes = nodes(2);
    let [a, b] = ["one", "two"].map(|name| nodes.key_of(2, name));
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["MSET", &a, "1", &b, "2"]), ok());
    let both = array([bulk("1"), bulk("2")]);
    assert_eq!(client.call(&["MGET", &a, &b]), both);
    assert_eq!(client.call(&["DEL", &a, &b]), int(2));
}

#[test]
fn a_block_takes_effect_on_all_nodes() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let [a, b, c] = [0, 1, 2].map(|at| keys[at].as_str());
    let mut client = nodes.client(1);
    let done = block(
        &mut client,
        &[
            &["SET", a, "x"],
            &["INCRBY", b, "5"],
            &["APPEND", c, "abc"],
            &["INCR", a],
            &["PING"],
            &["EXPIRE", b, "100"],
            &["TTL", b],
            &["SET", c, "1", "WHAT"],
            &["GETRANGE", c, "1", "-1"],
        ],
    );
    let Reply::Array(replies) = done else {
        panic!("{done:?}")
    };
    assert_eq!(replies[..3], [ok(), int(5), int(3)]);
    assert_eq!(
        error(&replies[3]),
        "ERR value is not an integer or out of range"
    );
    assert_eq!(replies[4..7], [status("PONG"), int(1), int(100)]);
    assert_eq!(error(&replies[7]), "ERR syntax error");
    assert_eq!(replies[8], bulk("bc"));
    assert_eq!(nodes.get(b), bulk("5"));
}

#[test]
fn a_block_is_of_several_databases_on_all_nodes() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let [a, b, c] = [0, 1, 2].map(|at| keys[at].as_str());
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["MSET", a, "0", b, "0", c, "0"]), ok());
    client.call(&["WATCH", b]);
    let done = block(
        &mut client,
        &[
            &["SELECT", "4"],
            &["MSET", a, "4", b, "4", c, "4"],
            &["FLUSHDB"],
            &["MGET", a, b, c],
            &["SELECT", "0"],
            &["DEL", a],
            &["MGET", a, b, c],
        ],
    );
    // A flush is of the node that is asked.
    let four = array([Reply::Null, bulk("4"), bulk("4")]);
    let zero = array([Reply::Null, bulk("0"), bulk("0")]);
    assert_eq!(
        done,
        array([ok(), ok(), ok(), four.clone(), ok(), int(1), zero])
    );
    assert_eq!(client.call(&["SELECT", "4"]), ok());
    assert_eq!(client.call(&["MGET", a, b, c]), four);
    let mut other = nodes.client(2);
    other.call(&["SELECT", "4"]);
    client.call(&["WATCH", c]);
    assert_eq!(nodes.client(3).call(&["SET", c, "1"]), ok());
    assert_eq!(block(&mut client, &[&["GET", c]]), array([bulk("4")]));
    client.call(&["WATCH", c]);
    assert_eq!(block(&mut other, &[&["SET", c, "5"]]), array([ok()]));
    assert_eq!(block(&mut client, &[&["GET", c]]), Reply::NullArray);
}

#[test]
fn a_block_of_one_other_node_is_forwarded() {
    let nodes = nodes(2);
    let key = nodes.key_of(2, "key");
    let mut client = nodes.client(1);
    let done = block(&mut client, &[&["SET", &key, "1"], &["INCR", &key]]);
    assert_eq!(done, array([ok(), int(2)]));
    assert_eq!(nodes.get(&key), bulk("2"));
}

#[test]
fn operations_without_a_key_in_a_block_are_of_the_node_that_is_asked() {
    let nodes = nodes(2);
    let keys = keys_of_all(&nodes, "key");
    let mut client = nodes.client(1);
    let done = block(
        &mut client,
        &[
            &["SET", &keys[0], "1"],
            &["SET", &keys[1], "2"],
            &["DBSIZE"],
            &["KEYS", "*"],
        ],
    );
    assert_eq!(done, array([ok(), ok(), int(1), array([bulk(&keys[0])])]));
}

#[test]
fn all_or_nothing_within_a_block() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let [a, b, c] = [0, 1, 2].map(|at| keys[at].as_str());
    let mut client = nodes.client(2);
    let done = block(
        &mut client,
        &[
            &["MSETNX", a, "1", b, "1"],
            &["MSETNX", b, "2", c, "2"],
            &["DEL", b],
            &["MSETNX", b, "3", c, "3"],
            &["MGET", a, b, c],
        ],
    );
    let values = array([bulk("1"), bulk("3"), bulk("3")]);
    assert_eq!(done, array([int(1), int(0), int(1), int(1), values]));
    let again = block(
        &mut client,
        &[&["MSETNX", a, "4", c, "4"], &["MGET", a, b, c]],
    );
    let values = array([bulk("1"), bulk("3"), bulk("3")]);
    assert_eq!(again, array([int(0), values]));
}

#[test]
fn watched_keys_of_any_node_end_the_block() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let mut client = nodes.client(1);
    for watched in &keys {
        let owner = nodes.owner(watched);
        let changes: [&[&str]; 3] = [&["SET", watched, "2"], &["DEL", watched], &["FLUSHALL"]];
        for change in changes {
            nodes.client(owner).call(&["SET", watched, "1"]);
            let all: Vec<&str> = keys.iter().map(String::as_str).collect();
            assert_eq!(call(&mut client, "WATCH", &all), ok());
            nodes.client(owner).call(change);
            let ended = block(&mut client, &[&["SET", &keys[0], "3"], &["GET", &keys[1]]]);
            assert_eq!(ended, Reply::NullArray, "{change:?}");
        }
        assert_eq!(client.call(&["WATCH", watched]), ok());
        let done = block(&mut client, &[&["SET", watched, "4"]]);
        assert_eq!(done, array([ok()]));
        assert_eq!(nodes.get(watched), bulk("4"));
    }
}

/// A redirect would lose the watches, which belong to the connection.
#[test]
fn a_client_that_watches_is_not_sent_away() {
    let nodes = nodes(2);
    let key = nodes.key_of(2, "key");
    nodes.client(2).call(&["SET", &key, "1"]);
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["WATCH", &key]), ok());
    assert_eq!(client.call(&["GET", &key]), bulk("1"));
    assert_eq!(client.call(&["INCR", &key]), int(2));
    assert_eq!(block(&mut client, &[&["GET", &key]]), Reply::NullArray);
    assert!(error(&client.call(&["GET", &key])).starts_with("MOVED"));
}

#[test]
fn replies_keep_the_order_of_a_pipeline() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let mut client = nodes.client(1);
    let mut expected = Vec::new();
    for number in 0..200 {
        let value = number.to_string();
        match number % 5 {
            0 => {
                client.send(&["MSET", &keys[0], &value, &keys[1], &value, &keys[2], &value]);
                expected.push(ok());
            }
            1 => {
                client.send(&["GET", &keys[0]]);
                expected.push(bulk(&(number - 1).to_string()));
            }
            2 => {
                client.send(&["MGET", &keys[2], &keys[1]]);
                let value = bulk(&(number - 2).to_string());
                expected.push(array([value.clone(), value]));
            }
            3 => {
                client.send(&["MULTI"]);
                client.send(&["INCR", &keys[0]]);
                client.send(&["INCR", &keys[2]]);
                client.send(&["EXEC"]);
                expected.extend([ok(), status("QUEUED"), status("QUEUED")]);
                expected.push(array([int(number - 2), int(number - 2)]));
            }
            _ => {
                client.send_raw(format!("PING \"{value}\"\r\n").as_bytes());
                expected.push(bulk(&value));
            }
        }
    }
    for (at, reply) in expected.into_iter().enumerate() {
        assert_eq!(client.reply(), reply, "reply {at}");
    }
}

#[test]
fn the_newer_protocol_has_its_own_forms() {
    let nodes = nodes(2);
    let keys = keys_of_all(&nodes, "key");
    let mut client = nodes.client(1);
    client.call(&["HELLO", "3"]);
    client.send(&["MGET", &keys[0], &keys[1]]);
    assert_eq!(client.reply(), array([Reply::Null, Reply::Null]));
    let mut other = nodes.client(2);
    assert_eq!(client.call(&["WATCH", &keys[1]]), ok());
    assert_eq!(other.call(&["SET", &keys[1], "1"]), ok());
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", &keys[0], "1"]), status("QUEUED"));
    client.send(&["EXEC"]);
    let mut bytes = [0; 3];
    std::io::Read::read_exact(&mut client.stream(), &mut bytes).unwrap();
    assert_eq!(&bytes, b"_\r\n");
}

#[test]
fn clients_that_end_are_answered_first() {
    let nodes = nodes(2);
    let keys = keys_of_all(&nodes, "key");
    let mut client = nodes.client(1);
    client.send(&["MSET", &keys[0], "1", &keys[1], "2"]);
    client.send(&["MGET", &keys[0], &keys[1]]);
    client.end();
    assert_eq!(client.reply(), ok());
    assert_eq!(client.reply(), array([bulk("1"), bulk("2")]));
    assert!(client.is_closed());
}

/// Clients of all nodes move amounts between accounts of all nodes, by blocks and by `WATCH`, and look
/// at all accounts at once. The sum never changes.
#[test]
fn blocks_of_many_clients_are_serializable() {
    for durable in [false, true] {
        let nodes = Nodes::start(NodesOptions {
            durable,
            ..NodesOptions::default()
        });
        let extent = Extent {
            processes: 9,
            transactions: 60,
            ..Extent::default()
        };
        transfer_by(&extent, |process| nodes.client(process as u16 % 3 + 1));
    }
}

/// A guarded block over several nodes, and one over the only one that has not seen the newer token.
#[test]
fn guards_are_of_all_nodes_that_take_part() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let [a, b, c] = [0, 1, 2].map(|at| keys[at].as_str());
    let guarded = |node: u16, token: &str, keys: &[&str]| {
        let mut client = nodes.client(node);
        let sets: Vec<Vec<&str>> = keys.iter().map(|key| vec!["SET", key, token]).collect();
        let guard: &[&str] = &["LOCK.GUARD", "lock", token];
        let commands: Vec<&[&str]> = std::iter::once(guard)
            .chain(sets.iter().map(Vec::as_slice))
            .collect();
        block(&mut client, &commands)
    };
    assert_eq!(guarded(1, "5", &[a, b]), array([ok(), ok(), ok()]));
    for (node, keys) in [(1, &[b, c][..]), (3, &[a, c]), (2, &[a]), (3, &[b])] {
        let refused = guarded(node, "4", keys);
        assert!(
            error(&refused).starts_with("FENCED the lock 'lock' "),
            "{refused:?}"
        );
        assert_eq!(nodes.get(c), Reply::Null);
    }
    // Where no newer token was seen an older one passes: nothing there was guarded by that one.
    assert_eq!(guarded(1, "4", &[c]), array([ok(), ok()]));
    assert_eq!(guarded(2, "5", &[c, a]), array([ok(), ok(), ok()]));
    assert!(error(&guarded(1, "4", &[c])).starts_with("FENCED "));
    let mut client = nodes.client(2);
    let alone = block(&mut client, &[&["LOCK.GUARD", "lock", "9"]]);
    assert!(error(&alone).contains("guards nothing"), "{alone:?}");
    for node in 1..=3 {
        assert_eq!(
            nodes.client(node).call(&["DBSIZE"]),
            int(1),
            "no record is a key"
        );
    }
}

#[test]
fn versions_are_told_and_watched_over_all_nodes() {
    let nodes = nodes(3);
    let keys = keys_of_all(&nodes, "key");
    let [a, b, c] = [0, 1, 2].map(|at| keys[at].as_str());
    assert_eq!(nodes.client(1).call(&["MSET", a, "1", b, "2"]), ok());
    for (node, changed) in [(1, a), (2, a), (1, c), (3, b)] {
        let told = nodes.client(node).call(&["WATCH.VERSION", a, b, c]);
        let Reply::Array(told) = told else {
            panic!("{told:?}")
        };
        let version = |at: usize| match &told[at] {
            Reply::Bulk(text) => std::str::from_utf8(text).unwrap(),
            other => panic!("{other:?}"),
        };
        let command = ["WATCH.AT", a, version(0), b, version(1), c, version(2)];
        // Any node takes the block, also one that was not asked before.
        let mut client = nodes.client(node % 3 + 1);
        assert_eq!(client.call(&command), ok());
        let done = block(&mut client, &[&["GET", a], &["GET", b]]);
        assert_ne!(done, Reply::NullArray, "nothing has changed");
        assert_eq!(client.call(&command), ok());
        assert_eq!(
            nodes
                .client(nodes.owner(changed))
                .call(&["SET", changed, "x"]),
            ok()
        );
        assert_eq!(block(&mut client, &[&["SET", b, "y"]]), Reply::NullArray);
    }
    // A single key of another node is answered, and not redirected.
    let told = nodes.client(1).call(&["WATCH.VERSION", b]);
    assert!(
        matches!(&told, Reply::Array(told) if told.len() == 1),
        "{told:?}"
    );
}

#[test]
fn a_node_without_room_refuses_its_part() {
    let nodes = nodes(2);
    let keys = keys_of_all(&nodes, "key");
    let full = nodes
        .client(2)
        .call(&["CONFIG", "SET", "maxmemory", "100kb"]);
    assert_eq!(full, ok());
    let mut client = nodes.client(1);
    let long = "x".repeat(200_000);
    let refused = client.call(&["MSET", &keys[0], "1", &keys[1], &long]);
    assert!(error(&refused).starts_with("OOM "), "{refused:?}");
    assert_eq!(nodes.get(&keys[0]), Reply::Null, "neither part took effect");
    let freed = nodes.client(2).call(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(freed, ok());
    assert_eq!(client.call(&["MSET", &keys[0], "1", &keys[1], &long]), ok());
}
