//! `CLIENT REPLY`, `PAUSE`, `KILL`, `LIST`, and the answers of `CONFIG GET`.

use std::time::{Duration, Instant};

use crate::support::{bulk, config, connect, durable_with, ephemeral, error, int, ok, status};
use kumiki_server::{Config, Limits};
use testkit::{Client, Reply, eventually};

/// For how long a client must get nothing to count as waiting.
const WHILE: Duration = Duration::from_millis(200);

fn field(client: &mut Client, name: &str) -> String {
    let Reply::Bulk(text) = client.call(&["INFO", "everything"]) else {
        panic!("no bulk")
    };
    let text = String::from_utf8(text).expect("text");
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let field = fields.find(|(own, _)| *own == name);
    field.expect("the field").1.to_owned()
}

#[test]
fn replies_that_are_not_wanted_do_not_come() {
    // Also where replies wait for durability.
    for served in [ephemeral(config()), durable_with(config())] {
        let mut client = served.client();
        client.send(&["SET", "a", "0"]);
        client.send(&["CLIENT", "REPLY", "OFF"]);
        for _ in 0..100 {
            client.send(&["INCR", "a"]);
        }
        client.send(&["KEYS", "*"]);
        client.send(&["NOSUCH"]);
        client.send(&["CLIENT", "REPLY", "SKIP"]);
        client.send(&["CLIENT", "REPLY", "ON"]);
        client.send(&["GET", "a"]);
        assert_eq!((client.reply(), client.reply()), (ok(), ok()));
        assert_eq!(client.reply(), bulk("100"));
        for skipped in [&["KEYS", "*"][..], &["INCR", "a"], &["NOSUCH"], &["MULTI"]] {
            client.send(&["CLIENT", "REPLY", "SKIP"]);
            client.send(skipped);
            client.send(&["PING"]);
            let answer = if skipped[0] == "MULTI" {
                "QUEUED"
            } else {
                "PONG"
            };
            assert_eq!(client.reply(), status(answer), "{skipped:?}");
        }
        assert_eq!(client.call(&["EXEC"]), Reply::Array(vec![status("PONG")]));
        assert_eq!(client.call(&["GET", "a"]), bulk("101"));
        client.send(&["CLIENT", "REPLY", "OFF"]);
        client.send(&["RESET"]);
        assert_eq!(client.reply(), status("RESET"));
    }
}

#[test]
fn what_changes_in_subscriptions_is_no_reply() {
    let served = ephemeral(config());
    let mut client = served.client();
    let change = |word, count| Reply::Array(vec![bulk(word), bulk("news"), int(count)]);
    client.send(&["CLIENT", "REPLY", "OFF"]);
    client.send(&["SUBSCRIBE", "news"]);
    assert_eq!(client.reply(), change("subscribe", 1));
    client.send(&["UNSUBSCRIBE", "news"]);
    assert_eq!(client.reply(), change("unsubscribe", 0));
    for command in [
        &["MULTI"][..],
        &["PING"],
        &["PSUBSCRIBE", "news"],
        &["EXEC"],
    ] {
        client.send(command);
    }
    assert_eq!(client.reply(), change("psubscribe", 1));
}

#[test]
fn a_pause_of_writes_lets_reads_pass() {
    let served = ephemeral(config());
    let (mut writer, mut other) = (served.client(), served.client());
    assert_eq!(other.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), ok());
    writer.send(&["SET", "a", "1"]);
    writer.send(&["GET", "a"]);
    assert!(writer.is_silent(WHILE));
    assert_eq!(other.call(&["GET", "a"]), Reply::Null);
    assert_eq!(field(&mut other, "blocked_clients"), "1");
    // Errors do not wait.
    assert!(error(&other.call(&["SET"])).starts_with("ERR wrong"));
    assert_eq!(other.call(&["MULTI"]), ok());
    assert_eq!(other.call(&["GET", "a"]), status("QUEUED"));
    assert_eq!(other.call(&["EXEC"]), Reply::Array(vec![Reply::Null]));
    assert_eq!(other.call(&["CLIENT", "UNPAUSE"]), ok());
    assert_eq!((writer.reply(), writer.reply()), (ok(), bulk("1")));
    assert_eq!(field(&mut other, "blocked_clients"), "0");
}

#[test]
fn a_pause_of_all_commands_ends_by_itself() {
    let served = ephemeral(config());
    let (mut one, mut two) = (served.client(), served.client());
    assert_eq!(one.call(&["PING"]), status("PONG"));
    let (begin, pause) = (Instant::now(), Duration::from_millis(300));
    assert_eq!(two.call(&["CLIENT", "PAUSE", "300"]), ok());
    // In one packet, inline as well: each is executed once, in order.
    one.send_raw(b"INCR a\r\nINCR \"a\"\r\nGET a\r\n");
    let replies = (one.reply(), one.reply(), one.reply());
    assert_eq!(replies, (int(1), int(2), bulk("2")));
    assert!(begin.elapsed() >= pause, "it has not waited");
    // A client that leaves in the meantime does not matter.
    assert_eq!(two.call(&["CLIENT", "PAUSE", "300"]), ok());
    one.send(&["INCR", "a"]);
    drop(one);
    assert!(two.call(&["GET", "a"]).shown().starts_with(['2', '3']));
    eventually("nothing waits", || {
        field(&mut two, "blocked_clients") == "0"
    });
}

#[test]
fn a_server_that_stops_ends_the_pause() {
    let mut served = ephemeral(config());
    let (mut writer, mut other) = (served.client(), served.client());
    assert_eq!(other.call(&["CLIENT", "PAUSE", "86400000", "WRITE"]), ok());
    writer.send(&["SET", "a", "1"]);
    eventually("it waits", || field(&mut other, "blocked_clients") == "1");
    let server = served.server.take().expect("it runs");
    server.stopper().stop();
    assert_eq!(writer.reply(), ok());
    server.wait().expect("an end in good order");
}

#[test]
fn clients_are_chosen_by_type_and_user() {
    let served = ephemeral(config());
    let (mut client, mut other) = (served.client(), served.client());
    let Reply::Int(id) = other.call(&["CLIENT", "ID"]) else {
        panic!("no number")
    };
    let lines = |reply: Reply| match reply {
        Reply::Bulk(text) => String::from_utf8(text).expect("text").lines().count(),
        other => panic!("{other:?}"),
    };
    for (args, count) in [
        (&["TYPE", "normal"][..], 2),
        (&["TYPE", "replica"], 0),
        (&["ID", &id.to_string(), "99999"], 1),
        (&["USER", "default"], 2),
    ] {
        let list = client.call(&[&["CLIENT", "LIST"], args].concat());
        assert_eq!(lines(list), count, "{args:?}");
    }
    assert_eq!(client.call(&["CLIENT", "KILL", "TYPE", "pubsub"]), int(0));
    let said = client.call(&["CLIENT", "KILL", "USER", "nobody"]);
    assert_eq!(error(&said), "ERR No such user 'nobody'");
    let both = ["CLIENT", "KILL", "TYPE", "normal", "USER", "default"];
    assert_eq!(client.call(&both), int(1));
    assert!(other.is_closed());
    assert_eq!(client.call(&["PING"]), status("PONG"));
}

#[test]
fn the_configuration_shows_what_holds() {
    let limits = Limits {
        clients: 123,
        idle: Some(Duration::from_secs(77)),
        ..Limits::default()
    };
    let served = durable_with(Config { limits, ..config() });
    let mut client = connect(served.server.as_ref().expect("it runs").address());
    for (name, value) in [
        ("maxclients", "123"),
        ("timeout", "77"),
        ("save", ""),
        ("appendonly", "yes"),
        ("proto-max-bulk-len", "536870912"),
        ("databases", "16"),
        ("notify-keyspace-events", ""),
        ("tcp-keepalive", "300"),
    ] {
        let pair = Reply::Array(vec![bulk(name), bulk(value)]);
        assert_eq!(client.call(&["CONFIG", "GET", name]), pair);
    }
    let several = ["CONFIG", "GET", "maxcl*", "nosuch", "TIMEOUT", "time*"];
    let Reply::Array(found) = client.call(&several) else {
        panic!("no list")
    };
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn the_list_shows_what_clients_use() {
    let served = ephemeral(config());
    let mut client = served.client();
    let value = "x".repeat(8 << 20);
    assert_eq!(client.call(&["SET", "a", &value]), ok());
    let mut slow = served.client();
    assert_eq!(slow.call(&["CLIENT", "SETNAME", "slow"]), ok());
    slow.send(&["GET", "a"]);
    let mut used = |name: &str| {
        let list = client.told("CLIENT LIST");
        let line = list.lines().find(|line| line.contains(" name=slow "));
        let mut fields = line.expect("its line").split(' ');
        let field = fields.find_map(|field| field.strip_prefix(name));
        field
            .expect("the field")
            .parse::<usize>()
            .expect("a number")
    };
    // The sockets have taken a part of it.
    eventually("its reply waits", || used("omem=") > value.len() / 2);
    assert!(used("tot-mem=") >= used("omem=") && used("qbuf=") == 0);
    assert_eq!(slow.reply(), bulk(&value));
    eventually("nothing waits", || used("tot-mem=") == 0);
    slow.send_raw(b"*2\r\n$4\r\nECHO\r\n$100000\r\nabc");
    eventually("a piece of a request waits", || used("qbuf=") > 0);
}
