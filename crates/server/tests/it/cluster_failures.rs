//! Nodes that stop and come back: the answers that clients get in the meantime, and the data
//! afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::nodes::nodes;
use crate::support::{bulk, error, ok, status};
use testkit::Reply;
use testkit::SetOnDrop;

#[test]
fn a_node_that_is_away_is_named_and_found_again() {
    let mut nodes = nodes(3);
    let [a, b, c] = [1, 2, 3].map(|node| nodes.key_of(node, "key"));
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["MSET", &a, "1", &b, "1", &c, "1"]), ok());
    nodes.stop_node(2);
    let begin = Instant::now();
    for command in [
        &["MSET", &a, "2", &b, "2"][..],
        &["MGET", &a, &b],
        &["DEL", &c, &b],
    ] {
        let said = client.call(command);
        let text = error(&said);
        assert!(
            text.starts_with("CLUSTERDOWN") && text.contains("node 2"),
            "{text}"
        );
    }
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    let Reply::Bulk(lines) = client.call(&["CLUSTER", "NODES"]) else {
        panic!("a text")
    };
    let lines = String::from_utf8(lines).unwrap();
    assert!(
        lines.lines().nth(1).unwrap().contains(" disconnected "),
        "{lines}"
    );
    // The others continue.
    assert_eq!(client.call(&["MSET", &a, "3", &c, "3"]), ok());
    nodes.start_node(2);
    let all = nodes.until_served(1, &["MGET", &a, &b, &c]);
    assert_eq!(all, Reply::Array(vec![bulk("3"), bulk("1"), bulk("3")]));
    assert_eq!(nodes.until_served(3, &["MSET", &a, "4", &b, "4"]), ok());
    assert_eq!(nodes.get(&b), bulk("4"));
}

#[test]
fn a_block_for_a_node_that_is_away_is_refused_as_a_whole() {
    let mut nodes = nodes(2);
    let [a, b] = [1, 2].map(|node| nodes.key_of(node, "key"));
    nodes.stop_node(2);
    let mut client = nodes.client(1);
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", &a, "1"]), status("QUEUED"));
    assert_eq!(client.call(&["SET", &b, "1"]), status("QUEUED"));
    let said = client.call(&["EXEC"]);
    assert!(error(&said).starts_with("CLUSTERDOWN"), "{said:?}");
    assert_eq!(client.call(&["GET", &a]), Reply::Null);
    assert!(error(&client.call(&["WATCH", &b])).starts_with("CLUSTERDOWN"));
}

/// Clients write pairs of keys of two nodes, while the nodes are stopped and started in turn.
/// Afterwards each pair is whole, no value is older than an acknowledged one, and nothing is held.
#[test]
fn nothing_acknowledged_is_lost_over_restarts() {
    let mut nodes = nodes(3);
    let pairs: Vec<[String; 2]> = (0..4u16)
        .map(|at| {
            let [one, two] = [at % 3 + 1, (at + 1) % 3 + 1];
            [one, two].map(|node| nodes.key_of(node, &format!("pair{at}")))
        })
        .collect();
    let addresses: Vec<_> = (1..=3).map(|node| nodes.address(node)).collect();
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let writers: Vec<_> = pairs
            .iter()
            .enumerate()
            .map(|(at, pair)| {
                let (addresses, stop, count) = (&addresses, &stop, &count);
                scope.spawn(move || write_pairs(pair, addresses, at, stop, count))
            })
            .collect();
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(150));
            nodes.stop_node(round % 3 + 1);
            std::thread::sleep(Duration::from_millis(100));
            nodes.start_node(round % 3 + 1);
        }
        std::thread::sleep(Duration::from_millis(150));
        // Longer if there is hardly any progress.
        let until = Instant::now() + Duration::from_secs(60);
        while count.load(Ordering::Relaxed) == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(acknowledged.iter().sum::<u64>() > 0, "nothing was written");
    for (pair, least) in pairs.iter().zip(acknowledged) {
        let both = nodes.until_served(1, &["MGET", &pair[0], &pair[1]]);
        let Reply::Array(values) = &both else {
            panic!("{both:?}")
        };
        assert_eq!(values[0], values[1], "{pair:?}");
        let found = match &values[0] {
            Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
            _ => 0,
        };
        assert!(found >= least, "{pair:?}: {found} is older than {least}");
        assert_eq!(nodes.until_served(2, &["DEL", &pair[0], &pair[1]]), {
            crate::support::int(if found > 0 { 2 } else { 0 })
        });
    }
}

/// Writes rising numbers to both keys. Counts those that were acknowledged, and returns the last.
fn write_pairs(
    pair: &[String; 2],
    addresses: &[std::net::SocketAddr],
    mut at: usize,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> u64 {
    let mut acknowledged = 0;
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        at += 1;
        let address = addresses[at % addresses.len()];
        let Ok(mut client) = testkit::Client::try_connect(address) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        for _ in 0..20 {
            number += 1;
            let text = number.to_string();
            let done = client.try_call(&["MSET", &pair[0], &text, &pair[1], &text]);
            if done.ok() != Some(ok()) {
                break;
            }
            acknowledged = number;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    acknowledged
}
