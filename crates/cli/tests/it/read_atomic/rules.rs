//! The commands that are refused, for each kind of client, and those that are not.

use ::client::{Abort, Error, Op, OwnedReply};

use crate::read_atomic::{KEYS, TOP, connect, mget, mset, whole};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::start_server;
use testkit::{Client, Frame};

/// Operations that are refused to Rust clients, and those that are serializable as usual, with
/// holds or without.
#[test]
fn rust_clients_are_refused_the_same_and_other_keys_are_serializable() {
    let cluster = Cluster::start_with(4, Keeping::Nothing, TOP, &[]);
    let client = connect(cluster.fabrics());
    let keys = KEYS.map(str::as_bytes);
    let put = |key| Op::put(key, b"v");
    let refused = |outcome: Result<Vec<OwnedReply>, Error>, named: &str| {
        let Err(Error::Aborted(Abort::Unsupported { what })) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(what.contains(named), "{named} in {what}");
    };
    refused(
        client.execute(&[put(keys[0]), put(b"other")]),
        "'other' is not",
    );
    let written = format!("'{}' is written", KEYS[0]);
    refused(
        client.execute(&[put(keys[0]), Op::Get { key: keys[1] }]),
        &written,
    );
    let held = format!("'{}', holds nothing", KEYS[0]);
    refused(client.execute_holding(&[put(keys[0]), put(keys[1])]), &held);
    assert_eq!(
        client.mget(&keys).expect("they are read"),
        [const { None }; 4]
    );
    let pairs = keys.map(|key| (key, &b"v"[..]));
    client.mset(&pairs).expect("it is written");
    whole(&client.mget(&keys).expect("they are read"));
    // One of each node.
    let accounts: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let move_one = |from: usize| {
        let add = |at: usize, delta| Op::Add {
            key: accounts[at % 4],
            delta,
        };
        let get = Op::Get {
            key: accounts[(from + 2) % 4],
        };
        let ops = [add(from, -1), get, add(from + 1, 1)];
        client.execute_holding(&ops).expect("it is executed");
    };
    let check = || {
        let ops = accounts.map(|key| Op::Get { key });
        let replies = client.execute_holding(&ops).expect("it is executed");
        let number = |reply: &OwnedReply| match reply {
            OwnedReply::Bytes(text) => String::from_utf8_lossy(text).parse().expect("a number"),
            _ => 0_i64,
        };
        assert_eq!(replies.iter().map(number).sum::<i64>(), 0, "{replies:?}");
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || (0..100).for_each(|nth| move_one(thread + nth)));
        }
        scope.spawn(|| (0..100).for_each(|_| check()));
    });
    check();
}

/// Commands that are refused, alone or in a block, with words of the answer.
const REFUSED: &[(&[&[&str]], &str)] = &[
    (&[&["MSET", "ra:x", "1", "other", "1"]], "and others"),
    (
        &[&["MGET", "ra:x", "other"]],
        "'ra:x' is one, 'other' is not",
    ),
    (
        &[&["SET", "ra:x", "1"], &["SET", "other", "1"]],
        "and others",
    ),
    (&[&["GET", "ra:x"], &["DBSIZE"]], "and others"),
    (&[&["SET", "ra:x", "1"], &["GET", "ra:y"]], "read and write"),
    (&[&["GET", "ra:x"], &["DEL", "ra:y"]], "'ra:y' is written"),
    (
        &[&["SET", "ra:x", "1"], &["SADD", "ra:y", "1"]],
        "an operation on 'ra:y'",
    ),
    (&[&["INCR", "ra:x"], &["SET", "ra:y", "1"]], "counters"),
    (&[&["GET", "ra:x"], &["APPEND", "ra:y", "1"]], "counters"),
    (
        &[&["SET", "ra:x", "1"], &["SET", "ra:y", "1", "KEEPTTL"]],
        "whole values",
    ),
    (&[&["MSETNX", "ra:x", "1", "ra:y", "1"]], "conditions"),
];

/// Sends commands, in a block if there are several.
fn give(client: &mut Client, commands: &[&[&str]]) -> Frame {
    if let [command] = commands {
        return client.frame(command);
    }
    assert_eq!(client.frame(&["MULTI"]).raw, b"+OK\r\n");
    for command in commands {
        assert_eq!(client.frame(command).raw, b"+QUEUED\r\n");
    }
    client.frame(&["EXEC"])
}

/// Checks which commands are refused and which are not, for keys of any node.
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
    // One key alone is treated as any other, and so are several that are only read or only written.
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
    assert_eq!(client.frame(&["TOUCH", "ra:x", "ra:y"]).raw, b":1\r\n");
    assert_eq!(client.frame(&mset(&["a", "b"], "1")).raw, b"+OK\r\n");
    assert_eq!(client.frame(&["DEL", "ra:x", "ra:y"]).raw, b":1\r\n");
}

/// Checks that a watched key counts as a key of the block.
fn check_watches(client: &mut Client, other: &mut Client) {
    let watch = |client: &mut Client| {
        assert_eq!(client.frame(&["WATCH", "ra:x"]).raw, b"+OK\r\n");
    };
    watch(client);
    let done = give(client, &[&["SET", "ra:x", "1"], &["GET", "ra:x"]]);
    assert_eq!(done.raw, b"*2\r\n+OK\r\n$1\r\n1\r\n");
    watch(client);
    assert_eq!(other.frame(&mset(&["ra:x", "ra:y"], "2")).raw, b"+OK\r\n");
    let done = give(client, &[&["SET", "ra:x", "1"], &["GET", "ra:x"]]);
    assert_eq!(done.raw, b"*-1\r\n", "it was changed");
    watch(client);
    let refused = give(client, &[&["SET", "ra:x", "3"], &["SET", "ra:y", "3"]]);
    let text = String::from_utf8_lossy(&refused.raw).into_owned();
    assert!(text.contains("conditions"), "{text}");
    let reply = client.frame(&mget(&["ra:x", "ra:y"]));
    assert_eq!(reply.raw, b"*2\r\n$1\r\n2\r\n$1\r\n2\r\n");
    assert_eq!(client.frame(&["UNLINK", "ra:x", "ra:y"]).raw, b":2\r\n");
}

#[test]
fn what_is_refused_does_not_depend_on_where_keys_are() {
    let cluster = Cluster::start_with(3, Keeping::Nothing, TOP, &[]);
    let alone = start_server(&["--ephemeral", "--read-atomic", "ra:"]);
    let both = [
        (cluster.address(2), cluster.address(0)),
        (alone.address, alone.address),
    ];
    for (one, other) in both {
        let (mut client, mut other) = (Client::connect(one), Client::connect(other));
        check_what_is_refused(&mut client);
        check_watches(&mut client, &mut other);
    }
    let refused = Client::connect(alone.address).told("LPUSH ra:x 1");
    assert!(refused.contains("have strings only"), "{refused}");
}
