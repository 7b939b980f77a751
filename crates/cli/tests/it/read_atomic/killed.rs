//! Clients and nodes are killed at any moment while messages travel through shared memory: the
//! others continue, nothing wrong is read, and no memory remains.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::client::{Algorithm, Client, Transport};
use rustix::process::Signal;

use crate::read_atomic::peer::{Peer, Role};
use crate::read_atomic::{KEYS, TOP, connect_with, whole};
use crate::support::cluster::{Cluster, Keeping};
use testkit::eventually;

const NODES: usize = 2;
const PEERS: usize = 3;
const ROUNDS: usize = 40;
/// Files that belong to a node: the region that it publishes, and two for each link. Each of two
/// threads makes a link to the other node, and accepts one.
const OWN: usize = 1 + 2 * (2 + 2) * (NODES - 1);
/// The least number of rounds of a client that shows something.
const ENOUGH: u64 = 10;
/// How long a client continues that should end and has not made so many rounds.
const LONGER: Duration = Duration::from_secs(20);
/// How long a client's call may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the client of another process: it writes all keys at once, and one of its own, and reads
/// them, while nodes are killed. Returns how often that succeeded, and how often it did not.
pub(crate) fn write_and_read(seed: usize, fabrics: &[SocketAddr], stop: &AtomicBool) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let own = format!("ra:own{seed}");
    let (mut acknowledged, mut tried) = (0, 0);
    let (mut done, mut failed) = (0, 0);
    let client = connect(fabrics.iter().copied(), random.bool());
    let mut told = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            let told: &Instant = told.get_or_insert_with(Instant::now);
            if done > ENOUGH || told.elapsed() > LONGER {
                break;
            }
        }
        let begun = Instant::now();
        let outcome = match random.u8(..4) {
            0 => {
                let text = format!("{seed}-{tried}").repeat(random.usize(1..50));
                let pairs = KEYS.map(|key| (key.as_bytes(), Some(text.as_bytes())));
                client.put_all(&pairs, Algorithm::Fast)
            }
            1 => {
                tried += 1;
                let put = client.put(own.as_bytes(), tried.to_string().as_bytes());
                put.map(|()| acknowledged = tried)
            }
            2 => {
                let keys = KEYS.map(str::as_bytes);
                let values = client.get_all(&keys, Algorithm::Fast);
                values.map(|values| drop(whole(&values)))
            }
            _ => client
                .get_all(&[own.as_bytes()], Algorithm::Fast)
                .map(|values| {
                    let text = values[0].as_deref().unwrap_or(b"0");
                    let text = std::str::from_utf8(text).expect("text");
                    let found: u64 = text.parse().expect("a number");
                    let possible = acknowledged..=tried;
                    assert!(possible.contains(&found), "{found} is not in {possible:?}");
                }),
        };
        match outcome {
            Ok(()) => done += 1,
            Err(error) => {
                let is_open = error.is_unknown() || error.is_committed();
                assert!(error.is_retryable() || is_open, "{error}");
                failed += 1;
            }
        }
        let took = begun.elapsed();
        assert!(
            took < TIMEOUT + Duration::from_secs(5),
            "it has taken {took:?}"
        );
    }
    vec![done, failed]
}

/// Returns a client, as soon as a node answers.
fn connect(fabrics: impl Iterator<Item = SocketAddr>, one_sided: bool) -> Client {
    connect_with(fabrics, |options| {
        options.transport = Transport::Shm;
        options.one_sided = one_sided;
        options.timeout = TIMEOUT;
    })
}

/// Returns the names of memory that a process shares with others.
fn shared(process: u32) -> BTreeSet<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let names = maps.lines().filter_map(|line| {
        let at = line.find("/dev/shm/kumiki-")?;
        let name = line[at..].split_whitespace().next()?;
        Some(Path::new(name).to_owned())
    });
    names.collect()
}

#[test]
fn no_process_hangs_and_no_memory_stays_when_clients_and_nodes_are_killed() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut cluster = Cluster::start_with(NODES, Keeping::Data, TOP, &["--transport", "shm"]);
    let count = |cluster: &Cluster| {
        let counts = (0..NODES).map(|node| shared(cluster.process(node)).len());
        counts.collect::<Vec<_>>()
    };
    let client = connect(cluster.fabrics(), true);
    let start =
        |number, cluster: &Cluster| Peer::start(Role::WritesAndReads, number, cluster.fabrics());
    let mut peers: Vec<Peer> = (0..PEERS).map(|number| start(number, &cluster)).collect();
    let (mut seen, mut number) = (BTreeSet::new(), PEERS);
    for round in 0..ROUNDS {
        std::thread::sleep(Duration::from_micros(random.u64(..100_000)));
        for process in peers.iter().map(Peer::id) {
            seen.extend(shared(process));
        }
        // Nodes less often, so that there is traffic.
        if round % 8 == 7 {
            let victim = random.usize(..NODES);
            seen.extend(shared(cluster.process(victim)));
            cluster.kill_node(victim);
            cluster.start_node(victim).expect("it starts again");
        } else {
            let at = random.usize(..PEERS);
            peers[at].signal(Signal::KILL);
            peers[at] = start(number, &cluster);
            number += 1;
        }
    }
    // All of them do something yet.
    std::thread::sleep(Duration::from_millis(1500));
    for peer in peers {
        let told = peer.finish();
        println!("done and failed: {told:?}");
        assert!(told[0] > ENOUGH, "{told:?}");
    }
    eventually("all nodes answer", || {
        let all = KEYS.map(str::as_bytes);
        match client.get_all(&all, Algorithm::Fast) {
            Ok(values) => drop(whole(&values)),
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                return false;
            }
        }
        true
    });
    drop(client);
    eventually("memory of those who are gone is freed", || {
        count(&cluster).iter().all(|count| *count <= OWN)
    });
    assert!(seen.len() > PEERS, "{seen:?}");
    for node in 0..NODES {
        seen.extend(shared(cluster.process(node)));
        cluster.kill_node(node);
    }
    cluster.start_node(0).expect("it starts again");
    eventually("what the dead have left is removed", || {
        !seen.iter().any(|name| name.exists())
    });
    let mut last = BTreeSet::new();
    eventually("it publishes", || {
        last = shared(cluster.process(0));
        !last.is_empty()
    });
    assert!(cluster.terminate_node(0).success());
    let left: Vec<_> = last.iter().filter(|name| name.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}
