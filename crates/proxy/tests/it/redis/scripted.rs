//! Nodes whose replies the tests choose: replies that are rare with real nodes, or should never occur.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::redis::support::{Proxy, connect, scripted};
use kumiki_proxy::UnknownOutcome;
use testkit::eventually;

/// Returns a reply to `COMMAND`: name, arity, flag, and the positions of keys.
pub(crate) fn commands() -> String {
    commands_with(&[])
}

/// A command: its name, its arity, a flag, and the positions of its keys.
type Command<'a> = (&'a str, i64, &'a str, [i64; 3]);

/// Returns a reply to `COMMAND` with further commands.
pub(crate) fn commands_with(others: &[Command<'_>]) -> String {
    let mut table = vec![
        ("get", 2, "readonly", [1, 1, 1]),
        ("set", -3, "write", [1, 1, 1]),
        ("mget", -2, "readonly", [1, -1, 1]),
        ("eval", -3, "noscript", [0, 0, 0]),
        ("blpop", -3, "write", [1, -2, 1]),
        ("bf.add", -1, "write", [1, 1, 1]),
        ("flushall", -1, "write", [0, 0, 0]),
        ("script", -2, "noscript", [0, 0, 0]),
        ("bgsave", -1, "admin", [0, 0, 0]),
    ];
    table.extend_from_slice(others);
    let mut reply = format!("*{}\r\n", table.len());
    for (name, arity, flag, [first, last, step]) in table {
        reply += &format!(
            "*6\r\n${}\r\n{name}\r\n:{arity}\r\n*1\r\n+{flag}\r\n:{first}\r\n:{last}\r\n:{step}\r\n",
            name.len()
        );
    }
    reply
}

/// Returns a reply to `CLUSTER SLOTS`: one node has all.
fn all_slots(at: SocketAddr) -> String {
    let port = at.port();
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
}

/// Returns a reply to `CLUSTER NODES`.
fn listed(nodes: &[SocketAddr]) -> String {
    let lines: String = nodes
        .iter()
        .map(|at| format!("id {at}@1 master - 0 0 1 connected\n"))
        .collect();
    format!("${}\r\n{lines}\r\n", lines.len())
}

pub(crate) const NO_CLUSTER: &str = "-ERR This instance has cluster support disabled\r\n";

/// A redirection in a script's answer is not believed: the proxy connects to no new address, and does
/// not change the node of a slot.
#[test]
fn what_a_script_says_of_slots_is_not_believed() {
    for is_cluster in [false, true] {
        let evil = TcpListener::bind("127.0.0.1:0").expect("a free port");
        evil.set_nonblocking(true).expect("its mode");
        let evil_at = evil.local_addr().expect("its address");
        let own = Arc::new(OnceLock::new());
        let at = Arc::clone(&own);
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let node = scripted(
            move |words| {
                Some(match (&words[0][..], words.get(1).map(Vec::as_slice)) {
                    (b"COMMAND", _) => commands(),
                    (b"CLUSTER", Some(b"SLOTS")) if is_cluster => {
                        all_slots(*at.get().expect("it is set"))
                    }
                    (b"CLUSTER", _) => NO_CLUSTER.to_owned(),
                    (b"EVAL", Some(said)) => {
                        counted.fetch_add(1, Ordering::SeqCst);
                        format!("-{}\r\n", String::from_utf8_lossy(said))
                    }
                    _ => "+mine\r\n".to_owned(),
                })
            },
            || {},
        );
        own.set(node).expect("once");
        let proxy = Proxy::start(|config| config.patience = Duration::from_secs(1), &[node]);
        let mut client = connect(proxy.address);
        // The slot of `foo` is 12182.
        for said in [
            format!("MOVED 12182 {evil_at}"),
            format!("ASK 12182 {evil_at}"),
            format!("MOVED 12182 {node}"),
            "TRYAGAIN later".to_owned(),
        ] {
            for keys in [&["0"][..], &["1", "foo"]] {
                let before = runs.load(Ordering::SeqCst);
                let words = [&["EVAL", &said][..], keys].concat();
                assert_eq!(client.call(&words).shown(), format!("-{said}"));
                assert_eq!(runs.load(Ordering::SeqCst), before + 1, "{said}");
                assert_eq!(client.told("GET foo"), "+mine");
            }
        }
        assert!(evil.accept().is_err(), "a stranger was believed");
    }
}

/// A node may not know the outcome of a command itself. A read is given again; any other command ends the connection.
/// A script that answers with the same code is believed to know what it says.
#[test]
fn an_outcome_that_a_node_does_not_know_ends_the_connection() {
    const LOST: &str = "UNKNOWN the leader changed; look first, before it is given again";
    for unknown_outcome in [UnknownOutcome::Close, UnknownOutcome::Error] {
        let reads = AtomicUsize::new(0);
        let node = scripted(
            move |words| {
                Some(match (&words[0][..], words.get(1).map(Vec::as_slice)) {
                    (b"COMMAND", _) => commands(),
                    (b"CLUSTER", _) => NO_CLUSTER.to_owned(),
                    (b"EVAL", Some(said)) => format!("-{}\r\n", String::from_utf8_lossy(said)),
                    (b"GET", _) if reads.fetch_add(1, Ordering::SeqCst) > 0 => {
                        "+read\r\n".to_owned()
                    }
                    _ => format!("-{LOST}\r\n"),
                })
            },
            || {},
        );
        let proxy = Proxy::start(|config| config.unknown_outcome = unknown_outcome, &[node]);
        let mut client = connect(proxy.address);
        assert_eq!(client.told("GET a"), "+read");
        let own = "UNKNOWN job";
        assert_eq!(
            client.call(&["EVAL", own, "1", "a"]).shown(),
            format!("-{own}")
        );
        for words in [
            &["SET", "a", "1"][..],
            &["EVAL", LOST, "1", "a"],
            &["BLPOP", "a", "0"],
        ] {
            let mut client = connect(proxy.address);
            client.send(&["GET", "a"]);
            client.send(words);
            assert_eq!(client.reply().shown(), "+read");
            match unknown_outcome {
                UnknownOutcome::Close => assert!(client.try_reply().is_err(), "{words:?}"),
                UnknownOutcome::Error => assert_eq!(client.reply().shown(), format!("-{LOST}")),
            }
        }
    }
}

/// A cluster node that loads its data reports no slots: that does not make it a single server.
#[test]
fn a_node_that_loads_its_data_is_waited_for() {
    let own = Arc::new(OnceLock::new());
    let at = Arc::clone(&own);
    let asked = AtomicUsize::new(0);
    let node = scripted(
        move |words| {
            Some(match (&words[0][..], words.get(1).map(Vec::as_slice)) {
                (b"COMMAND", _) => commands(),
                (b"CLUSTER", _) if asked.fetch_add(1, Ordering::SeqCst) < 2 => {
                    "-LOADING Redis is loading the dataset in memory\r\n".to_owned()
                }
                (b"CLUSTER", Some(b"SLOTS")) => all_slots(*at.get().expect("it is set")),
                (b"CLUSTER", _) => listed(&[*at.get().expect("it is set")]),
                _ => "+there\r\n".to_owned(),
            })
        },
        || {},
    );
    own.set(node).expect("once");
    let proxy = Proxy::start(|_| {}, &[node]);
    assert_eq!(proxy.running().kind(), kumiki_proxy::NodeKind::RedisCluster);
    assert_eq!(connect(proxy.address).told("GET foo"), "+there");
}

/// A node that takes over its first slots has none when it is named.
#[test]
fn nodes_without_slots_are_known_and_strangers_are_not() {
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a free port");
    stranger.set_nonblocking(true).expect("its mode");
    let stranger_at = stranger.local_addr().expect("its address");
    let taken = scripted(|_| Some("+there\r\n".to_owned()), || {});
    let own = Arc::new(OnceLock::new());
    let at = Arc::clone(&own);
    let asked = AtomicUsize::new(0);
    let node = scripted(
        move |words| {
            let here = || *at.get().expect("it is set");
            Some(match (&words[0][..], words.get(1).map(Vec::as_slice)) {
                (b"COMMAND", _) => commands(),
                (b"CLUSTER", Some(b"SLOTS")) => all_slots(here()),
                (b"CLUSTER", _) => listed(&[here(), taken]),
                (b"GET", Some(b"foo")) => format!("-MOVED 12182 {taken}\r\n"),
                (b"GET", _) if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
                    format!("-MOVED 5061 {stranger_at}\r\n")
                }
                _ => "+here\r\n".to_owned(),
            })
        },
        || {},
    );
    own.set(node).expect("once");
    let proxy = Proxy::start(|_| {}, &[node]);
    let mut client = connect(proxy.address);
    assert_eq!(client.told("GET foo"), "+there");
    assert_eq!(client.told("GET bar"), "+here");
    assert!(stranger.accept().is_err(), "a stranger was believed");
}

/// A command that waits at another node than the first one ends with its client as well.
#[test]
fn what_waits_elsewhere_ends_with_its_client() {
    let waits = Arc::new(AtomicBool::new(false));
    let gone = Arc::new(AtomicBool::new(false));
    let (waiting, left) = (Arc::clone(&waits), Arc::clone(&gone));
    let second = scripted(
        move |_| {
            waiting.store(true, Ordering::SeqCst);
            None
        },
        move || left.store(true, Ordering::SeqCst),
    );
    let own = Arc::new(OnceLock::new());
    let at = Arc::clone(&own);
    let first = scripted(
        move |words| {
            let here = || *at.get().expect("it is set");
            Some(match (&words[0][..], words.get(1).map(Vec::as_slice)) {
                (b"COMMAND", _) => commands(),
                (b"CLUSTER", Some(b"SLOTS")) => all_slots(here()),
                (b"CLUSTER", _) => listed(&[here(), second]),
                _ => format!("-MOVED 12182 {second}\r\n"),
            })
        },
        || {},
    );
    own.set(first).expect("once");
    let proxy = Proxy::start(|_| {}, &[first]);
    let mut client = connect(proxy.address);
    client.send(&["BLPOP", "foo", "0"]);
    eventually("it waits there", || waits.load(Ordering::SeqCst));
    drop(client);
    eventually("it waits no more", || gone.load(Ordering::SeqCst));
}

#[test]
fn commands_that_cannot_be_shared_out_are_refused() {
    let node = || {
        scripted(
            |words| {
                Some(match &words[0][..] {
                    b"COMMAND" => commands(),
                    b"CLUSTER" => NO_CLUSTER.to_owned(),
                    b"bf.add" => "-ERR wrong number of arguments\r\n".to_owned(),
                    _ => "+OK\r\n".to_owned(),
                })
            },
            || {},
        )
    };
    let proxy = Proxy::start(|_| {}, &[node(), node()]);
    let mut client = connect(proxy.address);
    for command in ["SCRIPT DEBUG YES", "BGSAVE"] {
        let told = client.told(command);
        assert!(told.contains("it is about one"), "{told}");
    }
    assert_eq!(client.told("bf.add"), "-ERR wrong number of arguments");
    assert_eq!(client.told("FLUSHALL"), "+OK");
    assert_eq!(client.told("MULTI"), "+OK");
    let told = client.told("FLUSHALL");
    assert!(told.contains("it is for all nodes"), "{told}");
    assert!(client.told("EXEC").starts_with("-EXECABORT"));
}
