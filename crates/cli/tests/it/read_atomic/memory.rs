//! The same through shared memory: no reader sees a part, and a killed node is noticed at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::client::Transport;
use cluster::ramp::Algorithm;

use crate::read_atomic::{KEYS, TOP, connect_by, figure, whole};
use crate::support::cluster::{Cluster, Keeping};
use testkit::SetOnDrop;

const NODES: usize = 4;

fn start() -> Cluster {
    Cluster::start_with(NODES, Keeping::Nothing, TOP, &["--transport", "shm"])
}

fn keys() -> Vec<&'static [u8]> {
    KEYS.iter().map(|key| key.as_bytes()).collect()
}

#[test]
fn reads_through_shared_memory_see_all_or_nothing() {
    let cluster = start();
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let connect = || connect_by(cluster.fabrics(), Transport::Shm);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        for writer in 0..2 {
            let (client, stop, writes) = (connect(), &stop, &writes);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let number = writes.fetch_add(1, Ordering::Relaxed);
                    let value = format!("{writer}-{number}");
                    let pairs = KEYS.map(|key| (key.as_bytes(), Some(value.as_bytes())));
                    client
                        .put_all(&pairs, Algorithm::Fast)
                        .expect("it is written");
                }
            });
        }
        let client = connect();
        let begun = Instant::now();
        let mut different = std::collections::HashSet::new();
        // Longer where hardly anything gets on.
        let goes_on = |seen| begun.elapsed().as_secs() < if seen > 10 { 2 } else { 60 };
        while goes_on(different.len()) {
            let values = client
                .get_all(&keys(), Algorithm::Fast)
                .expect("they are read");
            different.insert(whole(&values));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(
            different.len() > 10,
            "no writer is active: {}",
            different.len()
        );
    });
    for node in 0..NODES {
        let links = figure(cluster.address(node), "cluster_links_through_memory");
        assert!(links >= 3, "node {node} has {links} links through memory");
    }
}

#[test]
fn a_killed_node_is_noticed_at_once_and_found_again() {
    let mut cluster = start();
    let client = connect_by(cluster.fabrics(), Transport::Shm);
    let pairs = KEYS.map(|key| (key.as_bytes(), Some(&b"1"[..])));
    client.put_all(&pairs, Algorithm::Fast).unwrap();
    assert_eq!(
        client.get_all(&keys(), Algorithm::Fast).unwrap().len(),
        KEYS.len()
    );
    cluster.kill_node(1);
    let begun = Instant::now();
    // A key of another node.
    let alive = client.get_all(&keys()[..1], Algorithm::Fast).unwrap();
    assert_eq!(alive, [Some(b"1".to_vec())]);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    cluster.start_node(1).unwrap();
    let values = client.get_all(&keys(), Algorithm::Fast).unwrap();
    // The killed node had kept nothing.
    assert_eq!(
        values.iter().filter(|value| value.is_some()).count(),
        KEYS.len() - 1
    );
}

#[test]
fn what_is_published_is_read_without_the_servers() {
    let cluster = start();
    let client = connect_by(cluster.fabrics(), Transport::Shm);
    let put = |value: &str| {
        let pairs = KEYS.map(|key| (key.as_bytes(), Some(value.as_bytes())));
        client.put_all(&pairs, Algorithm::Fast).unwrap();
    };
    let get = || whole(&client.get_all(&keys(), Algorithm::Fast).unwrap());
    put("1");
    assert_eq!(get(), Some(b"1".to_vec()));
    assert_eq!(client.read_counts().in_memory, 0);
    let mut counts = (0, 0);
    // On a busy machine a node may not have ended the write yet, or extend its lease too late.
    for _ in 0..50 {
        let before = client.read_counts();
        for _ in 0..100 {
            assert_eq!(get(), Some(b"1".to_vec()));
        }
        let after = client.read_counts();
        let asked = after.asked - before.asked;
        counts = (asked, after.in_memory - before.in_memory);
        if asked == 0 {
            break;
        }
    }
    assert_eq!(counts, (0, 100 * KEYS.len() as u64));
    for number in 0..100 {
        // A single key, by another way.
        let value = number.to_string();
        put(&value);
        assert_eq!(get(), Some(value.into_bytes()));
        client.put(KEYS[0].as_bytes(), b"alone").unwrap();
        let values = client.get_all(&keys()[..1], Algorithm::Fast).unwrap();
        assert_eq!(values, [Some(b"alone".to_vec())]);
    }
}
