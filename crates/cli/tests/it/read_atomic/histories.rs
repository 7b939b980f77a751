//! Recorded histories of clients that read and write at the same time, checked: no reader sees a
//! part of what was written together, nothing that was acknowledged is missed, and each key by
//! itself is linearizable; with each transport, and whether newest versions are read in memory or
//! requested.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::client::{Algorithm, Client, Transport};
use history::recorder::HistoryLog;
use history::{Outcome, Recorder, check};

use crate::read_atomic::{TOP, connect_with, figure};
use crate::support::cluster::{Cluster, Keeping};

const NODES: usize = 4;
/// The number of keys of each run, over all nodes; writers prefer the first ones.
const KEYS: usize = 24;
const TIME: Duration = Duration::from_millis(1500);
/// The most histories that are made until enough was seen.
const HISTORIES: usize = 20;

/// How a client reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadMode {
    Tcp,
    /// Send and Receive, emulated.
    Send,
    Rings,
    /// Messages through rings, and newest versions in memory.
    OneSided,
}

impl ReadMode {
    fn connect(self, cluster: &Cluster) -> Client {
        connect_with(cluster.fabrics(), |options| {
            options.transport = match self {
                ReadMode::Tcp => Transport::Tcp,
                ReadMode::Send => Transport::ShmSend,
                ReadMode::Rings | ReadMode::OneSided => Transport::Shm,
            };
            options.one_sided = self == ReadMode::OneSided;
        })
    }
}

/// The state that all clients of a run share.
struct Run<'r> {
    name: &'r str,
    cluster: &'r Cluster,
    values: AtomicI64,
    in_memory: AtomicU64,
    asked: AtomicU64,
    met_a_writer: AtomicU64,
}

/// One client of a run.
struct Actor<'r> {
    run: &'r Run<'r>,
    client: Client,
    random: fastrand::Rng,
    log: HistoryLog<'r>,
}

impl<'r> Actor<'r> {
    fn new(run: &'r Run<'r>, way: ReadMode, recorder: &'r Recorder) -> Actor<'r> {
        let log = recorder.process();
        Actor {
            run,
            client: way.connect(run.cluster),
            random: fastrand::Rng::with_seed(log.process().into()),
            log,
        }
    }

    /// Returns different keys, at most `most`.
    fn keys(&mut self, most: usize, of: usize) -> Vec<String> {
        let mut all: Vec<usize> = (0..of).collect();
        self.random.shuffle(&mut all);
        all.truncate(self.random.usize(1..=most));
        let name = |key: &usize| format!("ra:{}{key}", self.run.name);
        all.iter().map(name).collect()
    }

    /// Returns the number of keys that a write chooses from: mostly few.
    fn written(&mut self) -> usize {
        if self.random.u8(..4) > 0 { 4 } else { KEYS }
    }

    fn value(&self) -> i64 {
        self.run.values.fetch_add(1, Ordering::Relaxed)
    }

    fn algorithm(&mut self) -> Algorithm {
        self.random.choice(Algorithm::ALL).expect("there are some")
    }

    /// Writes several keys, or deletes them, until the time is up.
    fn write_several(mut self, until: Instant) {
        while Instant::now() < until {
            let of = self.written();
            let (keys, algorithm) = (self.keys(4, of), self.algorithm());
            let values: Vec<Option<i64>> = keys
                .iter()
                .map(|_| (self.random.u8(..8) > 0).then(|| self.value()))
                .collect();
            let texts: Vec<Option<Vec<u8>>> = values.iter().map(|value| value.map(text)).collect();
            let pairs = keys.iter().zip(&texts);
            let pairs: Vec<_> = pairs
                .map(|(key, text)| (key.as_bytes(), text.as_deref()))
                .collect();
            let mut entry = self.log.begin();
            self.client
                .put_all(&pairs, algorithm)
                .expect("it is written");
            for (key, value) in keys.iter().zip(values) {
                match value {
                    Some(value) => entry.write(key, value, None),
                    None => entry.delete(key, None),
                }
            }
            entry.end(Outcome::Committed);
            self.rest();
        }
    }

    /// Writes single keys, deletes them, or replaces what it has read, until the time is up.
    fn write_one(mut self, until: Instant) {
        while Instant::now() < until {
            let of = self.written();
            let (key, value) = (self.keys(1, of).remove(0), self.value());
            let (kind, bytes) = (self.random.u8(..8), key.clone().into_bytes());
            let client = &self.client;
            let mut entry = self.log.begin();
            match kind {
                0 => match client.delete(&bytes).expect("it is deleted") {
                    true => entry.delete(&key, None),
                    false => entry.read(&key, None, None),
                },
                1..5 => {
                    client.put(&bytes, &text(value)).expect("it is written");
                    entry.write(&key, value, None);
                }
                _ => {
                    let seen = client.transact(|txn| {
                        let seen = txn.get(&bytes)?;
                        txn.put(&bytes, &text(value))?;
                        Ok(seen)
                    });
                    entry.read(&key, number(seen.expect("it is replaced")), None);
                    entry.write(&key, value, None);
                }
            }
            entry.end(Outcome::Committed);
            self.rest();
        }
    }

    /// Reads keys until the time is up.
    fn read(mut self, until: Instant) {
        let mut small = 0;
        while Instant::now() < until {
            let of = self.written();
            let (keys, algorithm) = (self.keys(5, of), self.algorithm());
            small += u64::from(algorithm == Algorithm::Small);
            let bytes: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
            let mut entry = self.log.begin();
            let values = self.client.get_all(&bytes, algorithm);
            for (key, value) in keys.iter().zip(values.expect("they are read")) {
                entry.read(key, number(value), None);
            }
            entry.end(Outcome::Committed);
        }
        let counts = self.client.read_counts();
        let add = |to: &AtomicU64, count| to.fetch_add(count, Ordering::Relaxed);
        add(&self.run.in_memory, counts.in_memory);
        add(&self.run.asked, counts.asked);
        // Those by this algorithm take two in any case.
        add(&self.run.met_a_writer, counts.several_rounds - small);
    }

    /// Pauses, so that readers find keys that no client is writing.
    fn rest(&mut self) {
        std::thread::sleep(Duration::from_micros(self.random.u64(..4000)));
    }
}

fn text(value: i64) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn number(value: Option<Vec<u8>>) -> Option<i64> {
    let text = String::from_utf8(value?).expect("text");
    Some(text.parse().expect("a number"))
}

/// The counts of histories.
#[derive(Default)]
struct Counts {
    transactions: usize,
    /// Reads that have met a writer.
    met: u64,
    /// Keys that were read in memory, and those that were requested.
    in_memory: u64,
    asked: u64,
}

impl Counts {
    /// Returns the share of keys that were read in memory.
    fn share(&self) -> f64 {
        self.in_memory as f64 / (self.in_memory + self.asked).max(1) as f64
    }
}

/// Makes histories, and checks them, until they contain enough: the scheduler decides how often
/// readers meet writers, and what they find in memory. Returns the share of keys that were read in
/// memory; it must exceed `least`, if that is not zero.
#[track_caller]
fn judge(cluster: &Cluster, name: &str, ways: &[ReadMode], least: f64) -> f64 {
    let mut sum = Counts::default();
    for history in 0..HISTORIES {
        let counts = judge_one(cluster, &format!("{name}{history}-"), ways);
        sum.transactions += counts.transactions;
        sum.met += counts.met;
        sum.in_memory += counts.in_memory;
        sum.asked += counts.asked;
        let has_share = least == 0.0 || sum.share() > least;
        if sum.transactions > 500 && sum.met > 10 && has_share {
            break;
        }
    }
    let (count, met) = (sum.transactions, sum.met);
    assert!(count > 500, "{name}: only {count} transactions");
    // Without these the test would show little.
    assert!(met > 10, "{name}: only {met} reads have met a writer");
    sum.share()
}

/// Runs writers and readers in these ways, at the same time. Keys of the run contain its name.
/// Checks their history.
#[track_caller]
fn judge_one(cluster: &Cluster, name: &str, ways: &[ReadMode]) -> Counts {
    let recorder = Recorder::new();
    let run = Run {
        name,
        cluster,
        values: AtomicI64::new(1),
        in_memory: AtomicU64::new(0),
        asked: AtomicU64::new(0),
        met_a_writer: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let mut ways = ways.iter().copied().cycle();
        let mut actor = || Actor::new(&run, ways.next().expect("a way"), &recorder);
        let actors: Vec<_> = (0..3).map(|_| [actor(), actor(), actor()]).collect();
        // Now all of them are connected.
        let until = Instant::now() + TIME;
        for [reader, several, one] in actors {
            scope.spawn(move || reader.read(until));
            scope.spawn(move || several.write_several(until));
            scope.spawn(move || one.write_one(until));
        }
    });
    let history = recorder.finish();
    let transactions = history.transactions.len();
    let counters = [&run.in_memory, &run.asked, &run.met_a_writer];
    let [in_memory, asked, met] = counters.map(|counter| counter.load(Ordering::Relaxed));
    println!(
        "{name}: {transactions} transactions, {met} reads met a writer, {in_memory} keys read in \
         memory, {asked} asked for"
    );
    let verdict = check::strictly_read_atomic(&history);
    assert!(verdict.is_accepted(), "{name}: {verdict}");
    Counts {
        transactions,
        met,
        in_memory,
        asked,
    }
}

#[test]
fn over_tcp() {
    let cluster = Cluster::start_with(NODES, Keeping::Nothing, TOP, &[]);
    assert_eq!(judge(&cluster, "tcp", &[ReadMode::Tcp], 0.0), 0.0);
}

#[test]
fn by_send_and_receive() {
    let transport = ["--transport", "shm-send"];
    let cluster = Cluster::start_with(NODES, Keeping::Nothing, TOP, &transport);
    assert_eq!(judge(&cluster, "send", &[ReadMode::Send], 0.0), 0.0);
    for node in 0..NODES {
        let links = figure(cluster.address(node), "cluster_links_send_receive");
        // There may be no link between two nodes whose keys no transaction joins.
        assert!(links > 0, "node {node} has no link by Send and Receive");
    }
}

#[test]
fn through_shared_memory_and_in_it() {
    let cluster = Cluster::start_with(NODES, Keeping::Nothing, TOP, &["--transport", "shm"]);
    assert_eq!(judge(&cluster, "rings", &[ReadMode::Rings], 0.0), 0.0);
    let share = judge(&cluster, "memory", &[ReadMode::OneSided], 0.1);
    assert!(share > 0.1, "only {share:.2} of keys were read in memory");
    // Each of the three readers, the clients 0, 3 and 6, goes another way, and so do the clients that write
    // beside it.
    let ways = [
        ReadMode::OneSided,
        ReadMode::Rings,
        ReadMode::Tcp,
        ReadMode::Send,
        ReadMode::OneSided,
    ];
    let share = judge(&cluster, "all", &ways, 0.05);
    assert!(share > 0.05, "only {share:.2} of keys were read in memory");
}
