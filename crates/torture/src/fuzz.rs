//! Fuzzing of the parsers that see bytes from outside: longer runs than the tests make.
//!
//! Inputs are mutations of a corpus, which lies beside each parser's crate; one seed gives one
//! sequence of inputs. The entry points panic when a promise is broken. An input that breaks one,
//! or that takes too long, is written to a file and named.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use xtask::build;
use xtask::interrupt;

/// An input that takes longer is a hang.
const HANG: Duration = Duration::from_secs(20);
/// The longest input.
const LONGEST: usize = 64 * 1024;
/// Inputs between two looks at the clock.
const BATCH: u64 = 64;

/// A parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// Requests from clients.
    Requests,
    /// Replies from servers.
    Replies,
    /// Log files.
    Log,
    /// Files of checkpoints.
    Checkpoint,
    /// Handshakes of nodes.
    Handshake,
    /// Links: messages in frames.
    Links,
    /// Grants: the location of a peer's memory.
    Grants,
    /// A mailbox that a peer has written, and its ring.
    Ring,
    /// The region of emulated Receives.
    Receives,
    /// Messages of the nodes and clients of a cluster.
    Messages,
    /// A cluster's file.
    ClusterFile,
    /// A partition's record of a prepared transaction.
    Prepared,
    /// Logs of replicas.
    ReplicaLog,
    /// Snapshots of replicas.
    Snapshot,
    /// Messages of Raft, and the contents of entries.
    Raft,
    /// Frames of Cassandra's protocol, and the envelopes in them.
    CqlFrames,
    /// Requests of Cassandra's clients.
    CqlRequests,
    /// Responses of Cassandra.
    CqlResponses,
    /// Texts of CQL.
    CqlStatements,
    /// Pages of tables.
    Page,
    /// Tables as they travel: manifests, and directories of pages.
    Table,
    /// Blocks of rows that travel.
    Block,
    /// Messages of readers and storage nodes.
    NodeMessages,
    /// Fragments: the work of operators on a table's pages.
    Fragments,
    /// The rows of a table that a fragment is about.
    FragmentRows,
    /// Values as `RESTORE` takes them.
    Payloads,
    /// Files of Redis, as `kumiki import` reads them.
    RedisFiles,
}

impl Target {
    /// All of them.
    pub const ALL: &[Target] = &[
        Target::Requests,
        Target::Replies,
        Target::Log,
        Target::Checkpoint,
        Target::Handshake,
        Target::Links,
        Target::Grants,
        Target::Ring,
        Target::Receives,
        Target::Messages,
        Target::ClusterFile,
        Target::Prepared,
        Target::ReplicaLog,
        Target::Snapshot,
        Target::Raft,
        Target::CqlFrames,
        Target::CqlRequests,
        Target::CqlResponses,
        Target::CqlStatements,
        Target::Page,
        Target::Table,
        Target::Block,
        Target::NodeMessages,
        Target::Fragments,
        Target::FragmentRows,
        Target::Payloads,
        Target::RedisFiles,
    ];

    fn name(self) -> &'static str {
        match self {
            Target::Requests => "requests",
            Target::Replies => "replies",
            Target::Log => "log",
            Target::Checkpoint => "checkpoint",
            Target::Handshake => "handshake",
            Target::Links => "links",
            Target::Grants => "grants",
            Target::Ring => "ring",
            Target::Receives => "receives",
            Target::Messages => "messages",
            Target::ClusterFile => "cluster-file",
            Target::Prepared => "prepared",
            Target::ReplicaLog => "replica-log",
            Target::Snapshot => "snapshot",
            Target::Raft => "raft",
            Target::CqlFrames => "cql-frames",
            Target::CqlRequests => "cql-requests",
            Target::CqlResponses => "cql-responses",
            Target::CqlStatements => "cql-statements",
            Target::Page => "page",
            Target::Table => "table",
            Target::Block => "block",
            Target::NodeMessages => "node-messages",
            Target::Fragments => "fragments",
            Target::FragmentRows => "fragment-rows",
            Target::Payloads => "payloads",
            Target::RedisFiles => "redis-files",
        }
    }

    fn entry(self) -> fn(&[u8]) {
        match self {
            Target::Requests => resp::fuzz::fuzz_requests,
            Target::Replies => resp::fuzz::fuzz_replies,
            Target::Log => journal::fuzz::fuzz_log,
            Target::Checkpoint => journal::fuzz::fuzz_checkpoint,
            Target::Handshake => fabric::fuzz::fuzz_handshake,
            Target::Links => fabric::fuzz::fuzz_messages,
            Target::Grants => fabric::fuzz::fuzz_grant,
            Target::Ring => fabric::fuzz::fuzz_ring,
            Target::Receives => fabric::fuzz::fuzz_receives,
            Target::Messages => cluster::fuzz::fuzz_messages,
            Target::ClusterFile => cluster::fuzz::fuzz_topology,
            Target::Prepared => engine::fuzz::fuzz_system_record,
            Target::ReplicaLog => replica::fuzz::fuzz_log_segment,
            Target::Snapshot => replica::fuzz::fuzz_snapshot,
            Target::Raft => replica::fuzz::fuzz_wire,
            Target::CqlFrames => cql::fuzz::fuzz_frames,
            Target::CqlRequests => cql::fuzz::fuzz_requests,
            Target::CqlResponses => cql::fuzz::fuzz_responses,
            Target::CqlStatements => cql::fuzz::fuzz_statements,
            Target::Page => pages::fuzz::fuzz_page,
            Target::Table => pages::fuzz::fuzz_table,
            Target::Block => pages::fuzz::fuzz_block,
            Target::NodeMessages => pages::fuzz::fuzz_messages,
            Target::Fragments => operators::fuzz::fuzz_fragments,
            Target::FragmentRows => operators::fuzz::fuzz_rows,
            Target::Payloads => values::fuzz::fuzz_payload,
            Target::RedisFiles => values::fuzz::fuzz_file,
        }
    }

    fn corpus(self) -> &'static str {
        match self {
            Target::Requests => "crates/resp/corpus/requests",
            Target::Replies => "crates/resp/corpus/replies",
            Target::Log => "crates/journal/corpus/log",
            Target::Checkpoint => "crates/journal/corpus/checkpoint",
            Target::Handshake => "crates/fabric/corpus/handshake",
            Target::Links => "crates/fabric/corpus/messages",
            Target::Grants => "crates/fabric/corpus/grants",
            Target::Ring => "crates/fabric/corpus/rings",
            Target::Receives => "crates/fabric/corpus/receives",
            Target::Messages => "crates/cluster/corpus/messages",
            Target::ClusterFile => "crates/cluster/corpus/topology",
            Target::Prepared => "crates/engine/corpus/system",
            Target::ReplicaLog => "crates/replica/corpus/log",
            Target::Snapshot => "crates/replica/corpus/snapshot",
            Target::Raft => "crates/replica/corpus/wire",
            Target::CqlFrames => "crates/cql/corpus/frames",
            Target::CqlRequests => "crates/cql/corpus/requests",
            Target::CqlResponses => "crates/cql/corpus/responses",
            Target::CqlStatements => "crates/cql/corpus/statements",
            Target::Page => "crates/pages/corpus/page",
            Target::Table => "crates/pages/corpus/table",
            Target::Block => "crates/pages/corpus/block",
            Target::NodeMessages => "crates/pages/corpus/messages",
            Target::Fragments => "crates/operators/corpus/fragments",
            Target::FragmentRows => "crates/operators/corpus/rows",
            Target::Payloads => "crates/values/corpus/payloads",
            Target::RedisFiles => "crates/values/corpus/files",
        }
    }
}

/// Feeds mutated inputs to the target for `duration`.
///
/// # Errors
/// Returns an error if the corpus cannot be read, or an input broke a promise.
pub fn run(target: Target, duration: Duration, seed: u64) -> Result<()> {
    let subject = Subject {
        name: target.name(),
        entry: target.entry(),
        finds: build::target_dir()?.join("fuzz").join(target.name()),
    };
    let corpus = read_corpus(&build::root().join(target.corpus()))?;
    let inputs = subject.feed(&corpus, duration, seed)?;
    let (name, seconds) = (subject.name, duration.as_secs_f64());
    println!("fuzz: {name}: {inputs} inputs in {seconds:.1} s (seed {seed}), all promises kept");
    Ok(())
}

/// Fuzzes all targets for `duration` each, from seeds of their own, as many at once as there are
/// processors.
///
/// # Errors
/// Returns the errors of [`run`]; of several targets one is named.
pub fn run_all(duration: Duration) -> Result<()> {
    let targets = Mutex::new(Target::ALL.iter());
    let next = || {
        let mut targets = targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.next().copied()
    };
    let work = || -> Result<()> {
        while let Some(target) = next() {
            run(target, duration, fastrand::u64(..))?;
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let panicked = |_| bail!("a thread that fuzzes has panicked");
        let mut threads = threads.into_iter();
        threads.try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}

/// Returns the inputs of a directory, in the order of their names: the order of a directory depends
/// on the file system, and a seed must mean the same everywhere.
fn read_corpus(dir: &Path) -> Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(dir).with_context(|| format!("no corpus at {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let inputs: Vec<_> = paths.iter().map(fs::read).collect::<Result<_, _>>()?;
    if inputs.is_empty() {
        bail!("the corpus at {} is empty", dir.display());
    }
    Ok(inputs)
}

/// The target, and its files.
#[derive(Clone, Debug)]
struct Subject {
    name: &'static str,
    entry: fn(&[u8]),
    /// The directory for inputs that break a promise.
    finds: PathBuf,
}

/// The input that is being tried, and since when.
type Current = Arc<Mutex<(Instant, Vec<u8>)>>;

impl Subject {
    /// Feeds the corpus, then mutations of it. Returns the number of inputs.
    fn feed(&self, corpus: &[Vec<u8>], duration: Duration, seed: u64) -> Result<u64> {
        let current: Current = Arc::new(Mutex::new((Instant::now(), Vec::new())));
        let over = Arc::new(AtomicBool::new(false));
        let watch = self.clone().watch(Arc::clone(&current), Arc::clone(&over));
        let outcome = self.feed_watched(corpus, duration, seed, &current);
        over.store(true, Ordering::Relaxed);
        watch.join().expect("the watch does not panic");
        outcome
    }

    fn feed_watched(
        &self,
        corpus: &[Vec<u8>],
        duration: Duration,
        seed: u64,
        current: &Current,
    ) -> Result<u64> {
        let deadline = Instant::now() + duration;
        let mut mutator = Mutator {
            rng: fastrand::Rng::with_seed(seed),
            corpus,
        };
        for input in corpus {
            self.try_one(input, seed, current)?;
        }
        let mut inputs = corpus.len() as u64;
        while Instant::now() < deadline {
            interrupt::check()?;
            for _ in 0..BATCH {
                self.try_one(&mutator.next(), seed, current)?;
            }
            inputs += BATCH;
        }
        Ok(inputs)
    }

    fn try_one(&self, input: &[u8], seed: u64, current: &Current) -> Result<()> {
        let now = (Instant::now(), input.to_vec());
        *current.lock().unwrap_or_else(PoisonError::into_inner) = now;
        if catch_unwind(|| (self.entry)(input)).is_err() {
            bail!(
                "{} broke a promise (seed {seed}) on {}",
                self.name,
                self.save(input)?
            );
        }
        Ok(())
    }

    fn save(&self, input: &[u8]) -> Result<String> {
        fs::create_dir_all(&self.finds)?;
        let path = self.finds.join(format!("input-{:016x}", fastrand::u64(..)));
        fs::write(&path, input)?;
        Ok(path.display().to_string())
    }

    /// Starts a thread that ends the process when one input takes too long: there is no other way
    /// to end a loop in a parser from outside.
    fn watch(self, current: Current, over: Arc<AtomicBool>) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let (since, input) = current
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                if since.elapsed() > HANG {
                    let place = self.save(&input).unwrap_or_else(|error| error.to_string());
                    eprintln!("fuzz: {} took more than {HANG:?} on {place}", self.name);
                    exit(1);
                }
                thread::sleep(Duration::from_millis(100));
            }
        })
    }
}

struct Mutator<'c> {
    rng: fastrand::Rng,
    corpus: &'c [Vec<u8>],
}

/// Numbers at which lengths and counts often fail.
const NUMBERS: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

impl Mutator<'_> {
    /// Returns an input of the corpus with one to six changes.
    fn next(&mut self) -> Vec<u8> {
        let mut bytes = self.pick().to_vec();
        for _ in 0..self.rng.usize(1..=6) {
            self.change(&mut bytes);
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn pick(&mut self) -> &[u8] {
        &self.corpus[self.rng.usize(..self.corpus.len())]
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.rng.usize(..=bytes.len());
        let some = (at + self.rng.usize(..16)).min(bytes.len());
        match self.rng.u32(..9) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..some)),
            2 => bytes.insert(at, self.rng.u8(..)),
            3 => {
                let piece = bytes[at..some].repeat(self.rng.usize(1..8));
                drop(bytes.splice(at..at, piece));
            }
            4 => {
                let other = self.pick().to_vec();
                bytes.truncate(at);
                bytes.extend_from_slice(&other[self.rng.usize(..=other.len())..]);
            }
            5 => self.write_number(bytes, at),
            6 => {
                let text = (self.number() as i64).to_string().into_bytes();
                drop(bytes.splice(at..some, text));
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << self.rng.u32(..8),
            _ => bytes.push(self.rng.u8(..)),
        }
    }

    /// Overwrites with a number of one to eight bytes, in either order of bytes.
    fn write_number(&mut self, bytes: &mut [u8], at: usize) {
        let number = self.number();
        let width = (1 << self.rng.u32(..4)).min(bytes.len() - at);
        let little = number.to_le_bytes();
        let mut piece = little[..width].to_vec();
        if self.rng.bool() {
            piece.reverse();
        }
        bytes[at..at + width].copy_from_slice(&piece);
    }

    fn number(&mut self) -> u64 {
        NUMBERS[self.rng.usize(..NUMBERS.len())]
            .wrapping_add(self.rng.u64(..3))
            .wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses with a bug that only a mutation can reach.
    fn hates_long_inputs(bytes: &[u8]) {
        assert!(bytes.len() <= 8, "too long");
    }

    #[test]
    fn a_broken_promise_is_found_and_its_input_kept() {
        let dir = tempfile::tempdir().unwrap();
        let finds = dir.path().join("finds");
        let subject = Subject {
            name: "test",
            entry: hates_long_inputs,
            finds: finds.clone(),
        };
        let found = subject.feed(&[b"12345678".to_vec()], Duration::from_secs(20), 1);
        assert!(found.unwrap_err().to_string().contains("broke a promise"));
        let inputs = read_corpus(&finds).unwrap();
        assert!(inputs.len() == 1 && inputs[0].len() > 8);
    }
}
