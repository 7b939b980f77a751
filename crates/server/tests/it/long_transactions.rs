//! Commands that read before they write, and blocks with one of them: over nodes, among conflicting
//! clients, and while other transactions hold their keys.

use std::time::Duration;

use testkit::{Client, Reply, eventually};

use crate::support::nodes::nodes;
use crate::support::prepared_transaction::PreparedTransaction;
use crate::support::{bulk, config, ephemeral, error, int, ok, replica, status};

/// Executes a block.
fn block(client: &mut Client, commands: &[&[&str]]) -> Reply {
    assert_eq!(client.call(&["MULTI"]), ok());
    for command in commands {
        assert_eq!(client.call(command), status("QUEUED"), "{command:?}");
    }
    client.call(&["EXEC"])
}

#[test]
fn values_move_between_nodes() {
    let nodes = nodes(3);
    let [from, to, other] = [1, 2, 3].map(|node| nodes.key_of(node, "key"));
    for node in 1..=3 {
        let mut client = nodes.client(node);
        let mut owner = nodes.client(1);
        assert_eq!(owner.call(&["SET", &from, "v", "EX", "1000"]), ok());
        assert_eq!(client.call(&["RENAME", &from, &to]), ok());
        assert_eq!(nodes.get(&from), Reply::Null);
        assert_eq!(nodes.get(&to), bulk("v"));
        let left = nodes.client(2).call(&["TTL", &to]);
        assert!(matches!(left, Reply::Int(990..=1000)), "{left:?}");
        assert_eq!(client.call(&["COPY", &to, &other]), int(1));
        assert_eq!(client.call(&["COPY", &to, &other]), int(0));
        assert_eq!(client.call(&["RENAMENX", &to, &other]), int(0));
        assert_eq!(client.call(&["RENAMENX", &other, &from]), int(1));
        assert_eq!(
            client.call(&["RENAME", &other, &to]),
            Reply::Error("ERR no such key".into())
        );
        let values = block(
            &mut client,
            &[
                &["APPEND", &from, "w"],
                &["RENAME", &from, &other],
                &["MGET", &from, &to, &other],
                &["DEL", &to, &other],
            ],
        );
        let shown = Reply::Array(vec![Reply::Null, bulk("v"), bulk("vw")]);
        assert_eq!(values, Reply::Array(vec![int(2), ok(), shown, int(2)]));
    }
}

#[test]
fn clients_are_sent_to_the_node_that_has_all_keys() {
    let nodes = nodes(2);
    let key = nodes.key_of(2, "key");
    let (from, to) = (format!("{{{key}}}a"), format!("{{{key}}}b"));
    let moved = nodes.client(1).call(&["RENAME", &from, &to]);
    assert!(error(&moved).starts_with("MOVED "), "{moved:?}");
    // Within a block the node executes it with the other one.
    let mut client = nodes.client(1);
    let done = block(
        &mut client,
        &[&["SET", &from, "1"], &["RENAME", &from, &to]],
    );
    assert_eq!(done, Reply::Array(vec![ok(), ok()]));
    assert_eq!(nodes.get(&to), bulk("1"));
}

#[test]
fn conflicting_clients_lose_nothing() {
    const ROUNDS: i64 = 50;
    let cluster = nodes(2);
    let own = ephemeral(config());
    let replicated = replica::alone();
    let [a, b] = [1, 2].map(|node| cluster.key_of(node, "key"));
    let of_cluster = |number: i64| cluster.client(1 + number as u16 % 2);
    let connections: [&(dyn Fn(i64) -> Client + Sync); 3] =
        [&of_cluster, &|_| own.client(), &|_| replicated.client()];
    for connect in connections {
        let set = connect(0).call(&["SET", &a, "0"]);
        assert_eq!(set, ok());
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (a, b) = (&a, &b);
                scope.spawn(move || {
                    let mut client = connect(number);
                    let calls: [&[&str]; 3] = [&["RENAME", a, b], &["INCR", b], &["RENAME", b, a]];
                    for _ in 0..ROUNDS {
                        let done = block(&mut client, &calls);
                        let Reply::Array(replies) = &done else {
                            panic!("{done:?}");
                        };
                        assert!(matches!(replies[1], Reply::Int(1..)), "{done:?}");
                        assert_eq!([&replies[0], &replies[2]], [&ok(), &ok()], "{done:?}");
                    }
                });
            }
        });
        assert_eq!(
            connect(0).call(&["GET", &a]),
            bulk(&(3 * ROUNDS).to_string())
        );
    }
}

#[test]
fn a_command_waits_for_keys_that_are_held() {
    let server = ephemeral(config());
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    let held = PreparedTransaction::new(&server.db, "a");
    client.send(&["RENAME", "a", "b"]);
    let mut other = server.client();
    eventually("it waits", || {
        let info = other.call(&["INFO", "clients"]);
        matches!(info, Reply::Bulk(text) if text.windows(17).any(|part| part == b"blocked_clients:1"))
    });
    held.commit();
    assert_eq!(client.reply(), ok());
    assert_eq!(other.call(&["GET", "b"]), bulk("1x"));
}

#[test]
fn a_watched_key_that_has_changed_stops_the_block() {
    let server = ephemeral(config());
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.call(&["MSET", "a", "1", "watched", "1"]), ok());
    assert_eq!(client.call(&["WATCH", "watched"]), ok());
    assert_eq!(other.call(&["INCR", "watched"]), int(2));
    assert_eq!(
        block(&mut client, &[&["RENAME", "a", "b"]]),
        Reply::NullArray
    );
    assert_eq!(client.call(&["WATCH", "watched"]), ok());
    let done = block(&mut client, &[&["RENAME", "a", "b"], &["GET", "b"]]);
    assert_eq!(done, Reply::Array(vec![ok(), bulk("1")]));
}

#[test]
fn calls_count_once_alone_and_in_blocks() {
    let server = ephemeral(config());
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    assert_eq!(client.call(&["COPY", "a", "b"]), int(1));
    let script = "return redis.call('copy', 'a', 'c')";
    let done = block(&mut client, &[&["COPY", "a", "d"], &["EVAL", script, "0"]]);
    assert_eq!(done, Reply::Array(vec![int(1), int(1)]));
    let Reply::Bulk(text) = client.call(&["INFO", "commandstats"]) else {
        panic!("a text");
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    for (name, calls) in [("copy", 3), ("eval", 1)] {
        let expected = format!("cmdstat_{name}:calls={calls},");
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn a_block_of_many_commands_and_keys_is_answered() {
    const KEYS: usize = 20_000;
    let server = ephemeral(config());
    let mut client = server.client();
    let keys: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    let copies: Vec<[&str; 3]> = keys.iter().map(|key| ["COPY", key, "b"]).collect();
    let names = keys.iter().map(String::as_str);
    let all: Vec<&str> = std::iter::once("MGET").chain(names).collect();
    let mut calls: Vec<&[&str]> = copies.iter().map(<[&str; 3]>::as_slice).collect();
    calls.push(&all);
    let Reply::Array(replies) = block(&mut client, &calls) else {
        panic!("replies");
    };
    assert!(replies[..KEYS].iter().all(|reply| *reply == int(0)));
    assert_eq!(replies[KEYS..], [Reply::Array(vec![Reply::Null; KEYS])]);
}

#[test]
fn writes_of_scripts_wait_for_the_end_of_a_pause() {
    let server = ephemeral(config());
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(other.call(&["CLIENT", "PAUSE", "100000", "WRITE"]), ok());
    client.send(&["EVAL", "return redis.call('incr', 'a')", "0"]);
    assert!(client.is_silent(Duration::from_millis(50)));
    let reads = ["EVAL_RO", "return redis.call('get', 'a')", "0"];
    assert_eq!(other.call(&reads), Reply::Null);
    assert_eq!(other.call(&["CLIENT", "UNPAUSE"]), ok());
    assert_eq!(client.reply(), int(1));
}

#[test]
fn a_block_whose_replies_are_too_long_closes_its_connection() {
    let mut config = config();
    config.limits.output = 1 << 20;
    let server = ephemeral(config);
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.call(&["SET", "a", &"x".repeat(200_000)]), ok());
    assert_eq!(client.call(&["MULTI"]), ok());
    for call in [&["SET", "b", "1"][..], &["COPY", "a", "c"]] {
        assert_eq!(client.call(call), status("QUEUED"));
    }
    for _ in 0..20 {
        assert_eq!(client.call(&["GET", "a"]), status("QUEUED"));
    }
    client.send(&["EXEC"]);
    assert!(client.is_closed());
    assert_eq!(other.call(&["EXISTS", "b", "c"]), int(0));
}
