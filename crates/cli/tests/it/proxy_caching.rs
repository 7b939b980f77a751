//! Client-side caching through the proxy: before a node, before a cluster, and while nodes and leaders die.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::process::Server;
use testkit::{CachedReader, Client, SetOnDrop, eventually};

use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{proxy, start_server};
use crate::support::replicas::Replicas;

const KEYS: usize = 20;

fn before_cluster(file: &str) -> Server {
    proxy(&["--cluster", file, "--network-threads", "2"])
}

/// Writes a value to every key, until that is done.
fn write(address: SocketAddr, value: usize) {
    for key in 0..KEYS {
        eventually("a value is written", || {
            let Ok(mut client) = Client::try_connect(address) else {
                return false;
            };
            let words = ["SET", &format!("key:{key}"), &value.to_string()];
            client
                .try_call(&words)
                .is_ok_and(|reply| reply.shown() == "+OK")
        });
    }
}

/// Lets clients with client-side caching read while `change` has values written; it returns the last one.
/// All clients must see this one in the end. Values never grow older.
fn read_while(address: SocketAddr, change: impl FnOnce() -> usize) {
    let is_over = AtomicBool::new(false);
    let last = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        let readers: Vec<_> = ["", "BCAST", "OPTOUT"]
            .into_iter()
            .map(|options| {
                let (is_over, last) = (&is_over, &last);
                scope.spawn(move || {
                    let mut reader = CachedReader::connect(address, options);
                    let mut seen = [0; KEYS];
                    let mut read = |reader: &mut CachedReader, key: usize| {
                        // A node that is down answers LOADING.
                        let Ok(value) = reader.read(&format!("key:{key}")) else {
                            return 0;
                        };
                        let value = value.parse().unwrap_or(0);
                        assert!(value >= seen[key], "key:{key} {options}");
                        seen[key] = value;
                        value
                    };
                    while !is_over.load(Ordering::SeqCst) {
                        for key in 0..KEYS {
                            read(&mut reader, key);
                        }
                        reader.take_news(Duration::from_millis(1)).expect("news");
                    }
                    let last = last.load(Ordering::SeqCst);
                    eventually("every value is the last one", || {
                        reader.take_news(Duration::from_millis(1)).expect("news");
                        (0..KEYS).all(|key| read(&mut reader, key) == last)
                    });
                    // Without changes, values are kept.
                    let hits = reader.hits;
                    eventually("values are kept", || {
                        reader.take_news(Duration::from_millis(1)).expect("news");
                        for key in 0..KEYS {
                            read(&mut reader, key);
                        }
                        reader.hits > hits + 3 * KEYS as u64
                    });
                })
            })
            .collect();
        last.store(change(), Ordering::SeqCst);
        is_over.store(true, Ordering::SeqCst);
        let ends = readers.into_iter().map(std::thread::ScopedJoinHandle::join);
        assert!(ends.collect::<Vec<_>>().iter().all(Result::is_ok));
    });
}

#[test]
fn values_are_those_of_a_node() {
    let node = start_server(&["--ephemeral"]);
    let proxy = proxy(&["--redis", &node.address.to_string()]);
    read_while(proxy.address, || {
        for round in 1..=50 {
            write([proxy.address, node.address][round % 2], round);
        }
        50
    });
}

#[test]
fn values_are_those_of_a_cluster_whose_nodes_die() {
    let mut cluster = Cluster::start(2, Keeping::Nothing);
    let proxies = [(); 2].map(|()| before_cluster(&cluster.file()));
    read_while(proxies[0].address, || {
        for round in 1..=30 {
            write(proxies[round % 2].address, round);
        }
        30
    });
    // The nodes keep nothing: values begin anew.
    for node in 0..2 {
        let mut reader = CachedReader::connect(proxies[0].address, "");
        for key in 0..KEYS {
            reader.read(&format!("key:{key}")).expect("a value");
        }
        cluster.kill_node(node);
        cluster.start_node(node).expect("it starts again");
        write(proxies[1].address, 7);
        eventually("every value is the last one", || {
            reader.take_news(Duration::from_millis(1)).expect("news");
            (0..KEYS).all(|key| {
                reader
                    .read(&format!("key:{key}"))
                    .is_ok_and(|value| value == "7")
            })
        });
    }
}

#[test]
fn values_are_those_of_leaders_that_die() {
    let mut replicas = Replicas::start(1, 3);
    let proxy = before_cluster(&replicas.file());
    let address = proxy.address;
    read_while(address, || {
        for round in 1..=4 {
            write(address, 2 * round - 1);
            let leader = replicas.leader(1);
            replicas.kill_node(leader);
            write(address, 2 * round);
            replicas.start_node(leader);
        }
        8
    });
}
