//! The costs of a cluster: transactions over two partitions compared with the round trips and the
//! sync that they consist of, and reads over all nodes compared with the same reads split by their
//! client.
//!
//! Both sides of each comparison run in turn, in one run, on the same servers.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::Topology;
use serde::Serialize;

use crate::bench::machine::Host;
use crate::bench::report::median;
use crate::cluster::ClusterNodes;
use crate::server::Program;
use testkit::SetOnDrop;
use testkit::{Client, Reply};
use xtask::interrupt;

/// Nodes of the cluster.
const NODES: u16 = 4;
/// Keys of each node.
const KEYS: usize = 1000;
/// Threads that read, each with as many connections to drive.
const THREADS: usize = 4;
const CONNECTIONS: usize = 8;
/// The most round trips that a transaction of two keys may take besides its sync.
const ROUND_TRIPS: f64 = 3.0;
/// The least rate of reads over all nodes, relative to that of reads which their client splits.
const LEAST_RATIO: f64 = 0.6;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds, in each of which everything is measured once.
    pub rounds: usize,
    /// Operations of each kind in a round of latencies.
    pub operations: usize,
    /// How long each way of reading is driven in a round.
    pub reading: Duration,
    /// The directory for the JSON file.
    pub out: PathBuf,
}

#[derive(Serialize)]
struct Report {
    host: Host,
    /// Medians of each round, in microseconds.
    latencies: Vec<Latencies>,
    /// Rates of each round, in reads of eight keys per second.
    reads: Vec<Reads>,
}

/// Medians, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Latencies {
    /// `PING`.
    round_trip: f64,
    /// Writing 512 bytes to a file of the same file system, and syncing it.
    sync: f64,
    /// Two such syncs of two files at once, until both have ended: the work of the nodes of a
    /// transaction over two partitions if they share a device.
    two_syncs: f64,
    /// `SET` of a key of the node that is asked.
    set: f64,
    /// `MSET` of a key of the node that is asked and of one of another node.
    with_own: f64,
    /// `MSET` of two keys of two other nodes.
    of_others: f64,
}

/// Reads of eight keys per second.
#[derive(Clone, Copy, Debug, Serialize)]
struct Reads {
    /// One `MGET` of eight keys of four nodes, to any node.
    together: f64,
    /// Four `MGET`s of two keys, each to its node, sent at once.
    split: f64,
    /// Four `MGET`s of two keys of one node, sent to it at once.
    pipelined: f64,
}

/// Runs it with the server `binary`, prints the medians and writes the file.
///
/// # Errors
/// Returns an error if a server fails, or gives a wrong answer. Missed aims are no error: they are
/// reported.
pub fn run(binary: &Path, options: &Options) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let program = Program::kumiki(binary.to_owned(), vec![]);
    let mut nodes = ClusterNodes::anywhere(&program, dir.path(), NODES)?;
    nodes.start_all()?;
    nodes.wait_together()?;
    let bench = Bench {
        addresses: nodes.addresses(),
        keys: keys(&dir.path().join("cluster.toml"))?,
        dir: dir.path().to_owned(),
    };
    bench.load()?;
    let (mut latencies, mut reads) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        interrupt::check()?;
        latencies.push(bench.latencies(options.operations)?);
        reads.push(bench.reads(options.reading)?);
        println!("round {round}: {:.0?}", latencies[round - 1]);
        println!("round {round}: {:.0?}", reads[round - 1]);
    }
    nodes.stop()?;
    tell(&latencies, &reads);
    let report = Report {
        host: Host::here(),
        latencies,
        reads,
    };
    std::fs::create_dir_all(&options.out)?;
    let path = options.out.join("bench-cluster.json");
    std::fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("bench: every round is in {}", path.display());
    Ok(())
}

fn tell(latencies: &[Latencies], reads: &[Reads]) {
    let of = |field: fn(&Latencies) -> f64| median(latencies.iter().map(field).collect());
    let (trip, sync) = (of(|l| l.round_trip), of(|l| l.sync));
    let aim = ROUND_TRIPS * trip + sync;
    println!(
        "\nmedians, µs: round trip {trip:.0}, sync {sync:.0}, two syncs at once {:.0}, SET {:.0}",
        of(|l| l.two_syncs),
        of(|l| l.set)
    );
    for (name, time) in [
        ("with a key of its own", of(|l| l.with_own)),
        ("of two other nodes", of(|l| l.of_others)),
    ] {
        println!(
            "two keys, coordinator {name}: {time:.0} µs; aim {aim:.0} µs: {}",
            if time <= aim { "met" } else { "missed" }
        );
    }
    let ratio =
        |other: fn(&Reads) -> f64| median(reads.iter().map(|r| r.together / other(r)).collect());
    for (name, ratio) in [
        ("split by their client", ratio(|r| r.split)),
        ("pipelined to one node", ratio(|r| r.pipelined)),
    ] {
        println!(
            "MGET of 8 keys of 4 nodes: {ratio:.2} of the rate of four of 2, {name}; aim {LEAST_RATIO}: {}",
            if ratio >= LEAST_RATIO {
                "met"
            } else {
                "missed"
            }
        );
    }
}

/// Returns as many keys of each node, according to the cluster's file.
fn keys(file: &Path) -> Result<Vec<Vec<String>>> {
    let topology = Topology::load(file)?;
    let mut keys = vec![Vec::new(); NODES.into()];
    let mut number = 0;
    while keys.iter().any(|of_node| of_node.len() < KEYS) {
        let key = format!("key:{number}");
        number += 1;
        let partition = topology.partition_of(key.as_bytes());
        let at = usize::from(topology.node_of(partition).0) - 1;
        if keys[at].len() < KEYS {
            keys[at].push(key);
        }
    }
    Ok(keys)
}

struct Bench {
    addresses: Vec<SocketAddr>,
    /// The keys of each node.
    keys: Vec<Vec<String>>,
    dir: PathBuf,
}

/// Returns the value of a key.
fn value(key: &str) -> String {
    format!("value of {key}")
}

impl Bench {
    fn load(&self) -> Result<()> {
        let mut client = Client::try_connect(self.addresses[0])?;
        for of_node in &self.keys {
            for chunk in of_node.chunks(100) {
                let mut line = vec!["MSET".to_owned()];
                line.extend(chunk.iter().flat_map(|key| [key.clone(), value(key)]));
                client.expect(&line)?;
            }
        }
        Ok(())
    }

    fn latencies(&self, operations: usize) -> Result<Latencies> {
        let mut client = Client::try_connect(self.addresses[0])?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("sync"))?;
        let mut random = fastrand::Rng::with_seed(operations as u64);
        let mut times: [Vec<f64>; 5] = Default::default();
        for _ in 0..operations {
            let key = |node: usize, random: &mut fastrand::Rng| {
                self.keys[node][random.usize(..KEYS)].clone()
            };
            let [own, second, third] = [0, 1, 2].map(|node| key(node, &mut random));
            let mset = |a: &String, b: &String| {
                ["MSET", a, &value(a), b, &value(b)]
                    .map(str::to_owned)
                    .to_vec()
            };
            let calls = [
                vec!["PING".to_owned()],
                vec![],
                ["SET", &own, &value(&own)].map(str::to_owned).to_vec(),
                mset(&own, &second),
                mset(&second, &third),
            ];
            for (times, call) in times.iter_mut().zip(calls) {
                let begun = Instant::now();
                if call.is_empty() {
                    sync(&mut file)?;
                } else {
                    client.expect(&call)?;
                }
                times.push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        let [round_trip, sync, set, with_own, of_others] = times.map(median);
        Ok(Latencies {
            round_trip,
            sync,
            two_syncs: self.two_syncs(operations)?,
            set,
            with_own,
            of_others,
        })
    }

    /// Returns the median time of two syncs at once.
    fn two_syncs(&self, operations: usize) -> Result<f64> {
        let barrier = Barrier::new(2);
        let run = |name: &str| -> Result<Vec<f64>> {
            let mut file = File::create(self.dir.join(name))?;
            let times = (0..operations).map(|_| {
                barrier.wait();
                let begun = Instant::now();
                let synced = sync(&mut file);
                synced.map(|()| begun.elapsed().as_secs_f64() * 1e6)
            });
            // Both run to the end, also after an error: neither waits for the other in vain.
            times.collect::<Vec<_>>().into_iter().collect()
        };
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| run("sync-2"));
            (run("sync-1"), other.join().expect("it does not panic"))
        });
        let both = one?.into_iter().zip(other?);
        Ok(median(both.map(|(one, other)| one.max(other)).collect()))
    }

    fn reads(&self, time: Duration) -> Result<Reads> {
        Ok(Reads {
            together: self.read(time, ReadMode::Together)?,
            split: self.read(time, ReadMode::Split)?,
            pipelined: self.read(time, ReadMode::Pipelined)?,
        })
    }

    /// Returns the reads of eight keys per second.
    fn read(&self, time: Duration, way: ReadMode) -> Result<f64> {
        let over = AtomicBool::new(false);
        let begun = Instant::now();
        let counts: Result<Vec<u64>> = thread::scope(|scope| {
            let _ended = SetOnDrop(&over);
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn({
                        let over = &over;
                        move || self.drive(thread, way, over)
                    })
                })
                .collect();
            thread::sleep(time);
            over.store(true, Ordering::Relaxed);
            let counts = threads
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"));
            counts.collect()
        });
        Ok(counts?.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64())
    }

    /// Runs one thread's share: sends on all of its connections, then takes all replies.
    fn drive(&self, thread: usize, way: ReadMode, over: &AtomicBool) -> Result<u64> {
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let mut readers: Vec<Reader> = (0..CONNECTIONS)
            .map(|at| Reader::new(&self.addresses, way, thread + at))
            .collect::<Result<_>>()?;
        let mut count = 0;
        while !over.load(Ordering::Relaxed) {
            for reader in &mut readers {
                reader.ask(self, &mut random)?;
            }
            for reader in &mut readers {
                reader.take()?;
                count += 1;
            }
        }
        Ok(count)
    }
}

fn sync(file: &mut File) -> Result<()> {
    file.write_all(&[7; 512])?;
    file.sync_data()?;
    Ok(())
}

/// The ways to read eight keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    Together,
    Split,
    Pipelined,
}

/// A client that reads eight keys again and again.
struct Reader {
    way: ReadMode,
    /// The node that it asks, if it asks only one.
    node: usize,
    clients: Vec<Client>,
    /// The expected values of each reply, with the client whose connection it comes on first.
    expected: Vec<(usize, Vec<String>)>,
}

impl Reader {
    fn new(addresses: &[SocketAddr], way: ReadMode, number: usize) -> Result<Reader> {
        let node = number % addresses.len();
        let asked = match way {
            ReadMode::Split => addresses,
            ReadMode::Together | ReadMode::Pipelined => &addresses[node..=node],
        };
        let clients = asked.iter().map(|address| Client::try_connect(*address));
        Ok(Reader {
            way,
            node,
            clients: clients.collect::<std::io::Result<_>>()?,
            expected: Vec::new(),
        })
    }

    fn ask(&mut self, bench: &Bench, random: &mut fastrand::Rng) -> Result<()> {
        let mut two = |node: usize| {
            let mut key = || bench.keys[node][random.usize(..KEYS)].clone();
            [key(), key()]
        };
        let groups: Vec<(usize, Vec<String>)> = match self.way {
            ReadMode::Together => vec![(0, (0..NODES.into()).flat_map(&mut two).collect())],
            ReadMode::Split => (0..NODES.into())
                .map(|node| (node, two(node).to_vec()))
                .collect(),
            ReadMode::Pipelined => (0..4).map(|_| (0, two(self.node).to_vec())).collect(),
        };
        for (client, keys) in groups {
            let mut line = vec!["MGET".to_owned()];
            line.extend(keys.iter().cloned());
            self.clients[client].push(&line);
            let values = keys.iter().map(|key| value(key)).collect();
            self.expected.push((client, values));
        }
        for client in &mut self.clients {
            client.flush()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        for (client, values) in self.expected.drain(..) {
            let reply = self.clients[client].try_reply()?;
            let found: Vec<Reply> = values
                .into_iter()
                .map(|value| Reply::Bulk(value.into_bytes()))
                .collect();
            ensure!(
                reply == Reply::Array(found),
                "a read gave {reply:?}, which was never written"
            );
        }
        Ok(())
    }
}
