//! The answers to commands that need keys that a prepared transaction holds.

use std::time::{Duration, Instant};

use crate::support::nodes::{Nodes, NodesOptions};
use crate::support::prepared_transaction::PreparedTransaction;
use crate::support::{bulk, error, int, ok, status};
use testkit::{Client, Reply, eventually};

const SILENCE: Duration = Duration::from_millis(100);

/// Returns one node that leaves the test's transactions alone, with one thread.
fn alone(hold_timeout: Duration) -> Nodes {
    let mut options = NodesOptions {
        count: 1,
        durable: false,
        ..NodesOptions::default()
    };
    options.timeouts.doubt = Duration::from_secs(600);
    options.config.threads = 1;
    options.config.hold_timeout = hold_timeout;
    Nodes::start(options)
}

const LONG: Duration = Duration::from_secs(60);

/// Waits until so many connections are parked.
fn until_parked(nodes: &Nodes, count: u32) {
    let mut client = nodes.client(1);
    let line = format!("parked_clients:{count}\r\n");
    eventually(&line, || {
        let Reply::Bulk(info) = client.call(&["INFO", "stats"]) else {
            panic!("INFO is a text")
        };
        String::from_utf8_lossy(&info).contains(&line)
    });
}

#[test]
fn a_command_waits_for_the_outcome_and_others_go_on() {
    let nodes = alone(LONG);
    for commits in [true, false] {
        let mut other = nodes.client(1);
        other.call(&["SET", "k", "a"]);
        let held = PreparedTransaction::new(nodes.db(1), "k");
        let mut client = nodes.client(1);
        client.send(&["GET", "k"]);
        client.send(&["PING"]);
        assert!(client.is_silent(SILENCE), "it does not know yet");
        until_parked(&nodes, 1);
        assert_eq!(other.call(&["SET", "free", "1"]), ok());
        match commits {
            true => held.commit(),
            false => held.abort(),
        }
        assert_eq!(client.reply(), bulk(if commits { "ax" } else { "a" }));
        assert_eq!(client.reply(), status("PONG"));
        until_parked(&nodes, 0);
    }
}

#[test]
fn those_who_wait_go_on_in_their_order() {
    let nodes = alone(LONG);
    let held = PreparedTransaction::new(nodes.db(1), "k");
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..5u32 {
        let mut client = nodes.client(1);
        client.send(&["APPEND", "k", &number.to_string()]);
        until_parked(&nodes, number + 1);
        clients.push(client);
    }
    // The last one tries once more before it waits.
    std::thread::sleep(SILENCE);
    held.commit();
    for (number, client) in (0..).zip(&mut clients) {
        assert_eq!(client.reply(), int(number + 2));
    }
    assert_eq!(nodes.client(1).call(&["GET", "k"]), bulk("x01234"));
}

#[test]
fn a_block_waits_as_a_whole() {
    let nodes = alone(LONG);
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["WATCH", "free"]), ok());
    let held = PreparedTransaction::new(nodes.db(1), "k");
    client.send(&["MULTI"]);
    client.send(&["INCR", "free"]);
    client.send(&["APPEND", "k", "y"]);
    client.send(&["EXEC"]);
    for reply in [ok(), status("QUEUED"), status("QUEUED")] {
        assert_eq!(client.reply(), reply);
    }
    until_parked(&nodes, 1);
    assert_eq!(nodes.client(1).call(&["GET", "free"]), Reply::Null);
    held.commit();
    assert_eq!(client.reply(), Reply::Array(vec![int(1), int(2)]));
    assert_eq!(client.call(&["GET", "free"]), bulk("1"));
}

#[test]
fn a_watch_waits_and_a_broken_watch_is_told() {
    let nodes = alone(LONG);
    let held = PreparedTransaction::new(nodes.db(1), "k");
    let mut client = nodes.client(1);
    client.send(&["WATCH", "k"]);
    until_parked(&nodes, 1);
    held.commit();
    assert_eq!(client.reply(), ok());
    let held = PreparedTransaction::new(nodes.db(1), "k");
    client.send(&["MULTI"]);
    client.send(&["SET", "k", "new"]);
    client.send(&["EXEC"]);
    until_parked(&nodes, 1);
    held.commit();
    assert_eq!(client.reply(), ok());
    assert_eq!(client.reply(), status("QUEUED"));
    assert_eq!(client.reply(), Reply::NullArray);
}

#[test]
fn waiting_has_an_end() {
    let nodes = alone(Duration::from_millis(200));
    let held = PreparedTransaction::new(nodes.db(1), "k");
    let mut client = nodes.client(1);
    let begin = Instant::now();
    let said = client.call(&["SET", "k", "1"]);
    assert!(error(&said).starts_with("TRYAGAIN"), "{said:?}");
    assert!(begin.elapsed() >= Duration::from_millis(200));
    assert_eq!(client.call(&["PING"]), status("PONG"));
    held.commit();
    assert_eq!(client.call(&["GET", "k"]), bulk("x"));
}

#[test]
fn clients_that_go_do_not_wait() {
    let nodes = alone(LONG);
    let held = PreparedTransaction::new(nodes.db(1), "k");
    let mut gone = nodes.client(1);
    gone.send(&["SET", "k", "gone"]);
    let mut killed = nodes.client(1);
    let Reply::Int(id) = killed.call(&["CLIENT", "ID"]) else {
        panic!("an id is a number")
    };
    killed.send(&["SET", "k", "killed"]);
    until_parked(&nodes, 2);
    let reply = nodes
        .client(1)
        .call(&["CLIENT", "KILL", "ID", &id.to_string()]);
    assert_eq!(reply, int(1));
    assert!(killed.is_closed());
    until_parked(&nodes, 1);
    drop(gone);
    held.commit();
    until_parked(&nodes, 0);
    let end = nodes.client(1).call(&["GET", "k"]);
    assert!(end == bulk("x") || end == bulk("gone"), "{end:?}");
}

#[test]
fn a_stopping_server_answers_those_who_wait() {
    let mut options = NodesOptions {
        count: 1,
        durable: false,
        ..NodesOptions::default()
    };
    options.timeouts.doubt = Duration::from_secs(600);
    options.config.hold_timeout = LONG;
    options.config.drain = Duration::from_secs(1);
    let mut nodes = Nodes::start(options);
    let held = PreparedTransaction::new(nodes.db(1), "k");
    let mut client = nodes.client(1);
    client.send(&["SET", "k", "1"]);
    until_parked(&nodes, 1);
    let begin = Instant::now();
    nodes.running(1).stopper().stop();
    let said = client.reply();
    assert!(error(&said).starts_with("TRYAGAIN"), "{said:?}");
    assert!(client.is_closed());
    assert!(begin.elapsed() < Duration::from_secs(5));
    held.abort();
    nodes.stop_node(1);
}

/// Commands of very many keys, which run in slices, wait for the keys as others do.
#[test]
fn commands_in_slices_wait_for_the_outcome_too() {
    const KEYS: usize = 12_000;
    let nodes = alone(LONG);
    let (mut client, mut other) = (nodes.client(1), nodes.client(1));
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    let command = |name: &'static str, value: Option<&'static str>| -> Vec<&str> {
        let pairs = keys.iter().flat_map(|key| [Some(key.as_str()), value]);
        [Some(name)].into_iter().chain(pairs).flatten().collect()
    };
    let mset = command("MSET", Some("v"));
    assert_eq!(client.call(&mset), ok());
    let mget = command("MGET", None);
    let held = PreparedTransaction::new(nodes.db(1), "key:7000");
    client.send(&mget);
    assert!(client.is_silent(SILENCE), "it does not know yet");
    until_parked(&nodes, 1);
    assert_eq!(other.call(&["GET", "key:0"]), bulk("v"));
    held.commit();
    let Reply::Array(values) = client.reply() else {
        panic!("no list");
    };
    assert_eq!([&values[6999], &values[7000]], [&bulk("v"), &bulk("vx")]);
    // Other keys do not matter.
    let unrelated = PreparedTransaction::new(nodes.db(1), "unrelated");
    assert!(matches!(client.call(&mget), Reply::Array(_)));
    unrelated.abort();
    let held = PreparedTransaction::new(nodes.db(1), "key:7000");
    client.send(&mset);
    assert!(client.is_silent(SILENCE));
    until_parked(&nodes, 1);
    held.commit();
    assert_eq!(client.reply(), ok());
    assert_eq!(other.call(&["GET", "key:7000"]), bulk("v"));
    let held = PreparedTransaction::new(nodes.db(1), "key:7000");
    client.send(&command("DEL", None));
    assert!(client.is_silent(SILENCE));
    held.abort();
    assert_eq!(client.reply(), int(KEYS as i64));
    assert_eq!(other.call(&["DBSIZE"]), int(0));
}
