//! What operators look into: `OBJECT`, `MEMORY`, `RANDOMKEY`, `WAIT`, `DEBUG`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{bulk, config, durable, durable_with, ephemeral, error, int, ok, status};
use kumiki_server::{Config, DebugAccess, Durability};
use testkit::{Client, Reply, eventually};

#[track_caller]
fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(text) => String::from_utf8(text).expect("text"),
        Reply::Status(text) => text,
        other => panic!("{other:?} is no text"),
    }
}

#[track_caller]
fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

#[test]
fn each_key_is_returned_as_often_as_the_others() {
    let served = ephemeral(config());
    let mut client = served.client();
    for number in 0..100 {
        client.call(&["SET", &format!("key{number}"), "1"]);
    }
    let mut counts = BTreeMap::new();
    for _ in 0..3000 {
        let key = text(client.call(&["RANDOMKEY"]));
        *counts.entry(key).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 100, "{counts:?}");
    // 30 each, on average.
    assert!(counts.values().all(|&count| count > 5), "{counts:?}");
}

#[test]
fn memory_of_a_key_grows_with_it() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut usage = |key: &str, value: &str| {
        client.call(&["SET", key, value]);
        number(&client.call(&["MEMORY", "USAGE", key]))
    };
    let (short, long) = (usage("k", ""), usage("k", &"x".repeat(1000)));
    assert!(short > 1 && long >= short + 960, "{short} {long}");
    assert!(usage(&"k".repeat(1000), "") >= short + 960);
}

#[test]
fn figures_of_memory_are_those_of_the_server() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.call(&["SET", "a", &"x".repeat(100_000)]);
    let Reply::Array(stats) = client.call(&["MEMORY", "STATS"]) else {
        panic!("no array");
    };
    let field = |name: &str| {
        let at = stats.iter().position(|one| *one == bulk(name));
        stats[at.expect("the field") + 1].clone()
    };
    assert_eq!(field("keys.count"), int(1));
    assert!(number(&field("dataset.bytes")) > 100_000);
    assert!(number(&field("total.allocated")) >= number(&field("dataset.bytes")));
    let report = text(client.call(&["MEMORY", "DOCTOR"]));
    assert!(report.contains("too little"), "{report}");
}

#[test]
fn idle_times_are_not_invented() {
    let served = ephemeral(config());
    let mut client = served.client();
    assert_eq!(client.call(&["OBJECT", "IDLETIME", "a"]), Reply::Null);
    client.call(&["SET", "a", "1"]);
    let refused = client.call(&["OBJECT", "IDLETIME", "a"]);
    assert!(error(&refused).contains("not tracked"), "{refused:?}");
}

#[test]
fn acknowledged_writes_are_in_the_log() {
    let served = durable(Durability::Group);
    let mut client = served.client();
    client.call(&["SET", "a", "1"]);
    let both = |local, replicas| Reply::Array(vec![int(local), int(replicas)]);
    assert_eq!(client.call(&["WAITAOF", "1", "0", "0"]), both(1, 0));
    assert_eq!(client.call(&["WAITAOF", "1", "5", "1"]), both(1, 0));
    assert_eq!(client.call(&["WAIT", "1", "0"]), int(0));
    // The answer leaves behind that of a write that waits for the log.
    served.gate.close();
    client.send(&["SET", "a", "2"]);
    client.send(&["WAITAOF", "1", "0", "0"]);
    served.gate.open();
    assert_eq!((client.reply(), client.reply()), (ok(), both(1, 0)));
    for (wrong, reason) in [
        (["WAITAOF", "2", "0", "0"], "between 0 and 1"),
        (["WAITAOF", "x", "0", "0"], "not an integer"),
        (["WAITAOF", "0", "-1", "0"], "positive"),
        (["WAITAOF", "0", "0", "-1"], "timeout is negative"),
    ] {
        let refused = client.call(&wrong);
        assert!(error(&refused).contains(reason), "{refused:?}");
    }
}

#[test]
fn without_waiting_replies_nothing_is_said_to_be_durable() {
    let both = Reply::Array(vec![int(0), int(0)]);
    let served = durable(Durability::Async);
    assert_eq!(served.client().call(&["WAITAOF", "1", "0", "0"]), both);
    let served = ephemeral(config());
    let mut client = served.client();
    assert_eq!(client.call(&["WAITAOF", "0", "0", "0"]), both);
    let refused = client.call(&["WAITAOF", "1", "0", "0"]);
    assert!(error(&refused).contains("appendonly is disabled"));
}

#[test]
fn debug_is_refused_unless_it_is_allowed() {
    for (debug_access, allowed) in [
        (DebugAccess::No, false),
        (DebugAccess::Local, true),
        (DebugAccess::Yes, true),
    ] {
        let served = ephemeral(Config {
            debug_access,
            ..config()
        });
        let answer = served.client().call(&["DEBUG", "SLEEP", "0"]);
        assert_eq!(answer == ok(), allowed, "{debug_access:?}: {answer:?}");
    }
}

fn digest(client: &mut Client) -> String {
    text(client.call(&["DEBUG", "DIGEST"]))
}

#[test]
fn digests_are_those_of_keys_values_and_deadlines() {
    let config = || Config {
        debug_access: DebugAccess::Yes,
        ..config()
    };
    let (one, other) = (ephemeral(config()), durable_with(config()));
    let (mut one, mut other) = (one.client(), other.client());
    assert_eq!(digest(&mut one), "0".repeat(40));
    for number in 0..3000 {
        let (key, value) = (format!("key{number}"), number.to_string());
        one.call(&["SET", &key, &value]);
        let (key, value) = (format!("key{}", 2999 - number), (2999 - number).to_string());
        other.call(&["SET", &key, &value]);
    }
    let first = digest(&mut one);
    assert_eq!(digest(&mut other), first);
    one.call(&["PEXPIREAT", "key7", "99999999999999"]);
    assert_ne!(digest(&mut one), first);
    one.call(&["PERSIST", "key7"]);
    assert_eq!(digest(&mut one), first);
    one.call(&["SET", "key7", "8"]);
    assert_ne!(digest(&mut one), first);
    let described = text(one.call(&["DEBUG", "OBJECT", "key7"]));
    assert!(
        described.contains("encoding:int serializedlength:2 "),
        "{described}"
    );
    one.call(&["MULTI"]);
    assert_eq!(one.call(&["DEBUG", "DIGEST"]), status("QUEUED"));
    let Reply::Array(replies) = one.call(&["EXEC"]) else {
        panic!("no array");
    };
    assert!(error(&replies[0]).contains("MULTI"), "{replies:?}");
}

#[test]
fn expired_keys_can_be_left_in_memory() {
    let served = ephemeral(Config {
        debug_access: DebugAccess::Yes,
        ..config()
    });
    let mut client = served.client();
    let removed = || served.db.stats().expired;
    let expire = |client: &mut Client, key: &str| {
        client.call(&["SET", key, "1", "PX", "1"]);
        eventually("it has expired", || {
            client.call(&["GET", key]) == Reply::Null
        });
    };
    assert_eq!(client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]), ok());
    expire(&mut client, "a");
    // The janitor looks more often than this.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(removed(), 0);
    assert_eq!(client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]), ok());
    eventually("it is removed", || removed() == 1);
}

#[test]
fn a_command_that_sleeps_is_slow() {
    let served = ephemeral(Config {
        debug_access: DebugAccess::Yes,
        ..config()
    });
    let mut client = served.client();
    client.call(&["SLOWLOG", "RESET"]);
    assert_eq!(client.call(&["DEBUG", "SLEEP", "0.01"]), ok());
    let Reply::Array(entries) = client.call(&["SLOWLOG", "GET"]) else {
        panic!("no array");
    };
    let sleeps = |entry: &Reply| {
        let Reply::Array(fields) = entry else {
            panic!("{entry:?}");
        };
        let args = ["DEBUG", "SLEEP", "0.01"].map(bulk).to_vec();
        fields[3] == Reply::Array(args) && number(&fields[2]) >= 10_000
    };
    assert!(entries.iter().any(sleeps), "{entries:?}");
}
