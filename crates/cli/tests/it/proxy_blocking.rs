//! Clients of a proxy that wait for keys.

use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::proxy;
use testkit::{Client, Reply, eventually};

/// A key of each of three nodes with equal shares.
const KEYS: [&str; 3] = ["bar", "hello2", "foo"];

/// Waits until so many clients of all nodes together wait.
#[track_caller]
fn await_blocked(cluster: &Cluster, count: usize) {
    eventually("the clients wait", || {
        let of_node = |node| {
            let text = Client::connect(cluster.address(node)).told("INFO clients");
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("blocked_clients:"));
            line.and_then(|count| count.parse::<usize>().ok())
                .expect("the count")
        };
        (0..3).map(of_node).sum::<usize>() == count
    });
}

#[test]
fn clients_that_wait_keep_no_others_waiting() {
    const EACH: usize = 5;
    let cluster = Cluster::start(3, Keeping::Nothing);
    let file = cluster.file();
    let proxy = proxy(&["--cluster", &file, "--network-threads", "2"]);
    let connect = || Client::connect(proxy.address);
    let mut waiting: Vec<(usize, Client)> = Vec::new();
    for number in 0..EACH {
        for (at, key) in KEYS.iter().enumerate() {
            let mut client = connect();
            client.send(&["BLPOP", key, "0"]);
            waiting.push((at, client));
            await_blocked(&cluster, number * KEYS.len() + at + 1);
        }
    }
    // The other clients share connections to all nodes, on which none waits.
    let mut client = connect();
    assert_eq!(client.told("MSET {bar}1 1 {hello2}1 1 {foo}1 1"), "+OK");
    assert_eq!(client.told("BLPOP {bar}2 0.01"), "nil");
    // One that goes leaves its queue.
    let (at, gone) = waiting.remove(0);
    drop(gone);
    await_blocked(&cluster, EACH * KEYS.len() - 1);
    for number in 0..EACH {
        for key in KEYS {
            let element = number.to_string();
            assert!(matches!(
                client.call(&["RPUSH", key, &element]),
                Reply::Int(_)
            ));
        }
    }
    let mut next = [0; KEYS.len()];
    for (at, mut client) in waiting {
        let element = next[at].to_string();
        let expected = [Reply::bulk(KEYS[at]), Reply::bulk(&element)];
        assert_eq!(client.reply(), Reply::Array(expected.to_vec()));
        next[at] += 1;
    }
    assert_eq!(client.told(&format!("LRANGE {} 0 -1", KEYS[at])), "[4]");
    // Between nodes, at once and after a wait.
    assert_eq!(client.told("LMOVE bar hello2 LEFT LEFT"), "4");
    let mut moving = connect();
    moving.send(&["BLMOVE", "foo", "bar", "LEFT", "RIGHT", "0"]);
    await_blocked(&cluster, 1);
    assert_eq!(client.told("RPOPLPUSH hello2 foo"), "4");
    assert_eq!(moving.reply(), Reply::bulk("4"));
    assert_eq!(client.told("LRANGE bar 0 -1"), "[4]");
}

#[test]
fn clients_of_a_proxy_wait_for_entries() {
    let cluster = Cluster::start(3, Keeping::Nothing);
    let file = cluster.file();
    let proxy = proxy(&["--cluster", &file, "--network-threads", "2"]);
    let connect = || Client::connect(proxy.address);
    let mut client = connect();
    for key in KEYS {
        client.told(&format!("XGROUP CREATE {key} g $ MKSTREAM"));
    }
    let mut waiting: Vec<(&str, Client)> = Vec::new();
    for key in KEYS {
        for command in [
            format!("XREAD BLOCK 0 STREAMS {key} $"),
            format!("XREADGROUP GROUP g c BLOCK 0 STREAMS {key} >"),
        ] {
            let mut own = connect();
            own.send(&command.split(' ').collect::<Vec<_>>());
            waiting.push((key, own));
            await_blocked(&cluster, waiting.len());
        }
    }
    assert_eq!(client.told("XREAD BLOCK 10 STREAMS foo $"), "nil");
    for key in KEYS {
        assert_eq!(client.told(&format!("XADD {key} 1 f v")), "1-0");
    }
    for (key, mut own) in waiting {
        assert_eq!(own.reply().shown(), format!("[[{key} [[1-0 [f v]]]]]"));
    }
    // Keys of several nodes.
    let mut own = connect();
    own.send(&["XREAD", "BLOCK", "0", "STREAMS", "foo", "bar", "$", "$"]);
    await_blocked(&cluster, 1);
    assert_eq!(client.told("XADD bar 2 f v"), "2-0");
    assert_eq!(own.reply().shown(), "[[bar [[2-0 [f v]]]]]");
}
