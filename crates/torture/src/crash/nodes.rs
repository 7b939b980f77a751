//! Crash rounds over a cluster: real nodes, some of which are killed under load and come back while
//! the load continues.
//!
//! In one round, connections to all nodes drive load; after a random time one node, or several, or
//! all, get SIGKILL, often at the moment at which a client reads a success; they start again on
//! their data; the load continues for a while. Then everything that was acknowledged or shown must
//! be there, every transaction wholly or not at all, on whichever nodes its keys lie; refused
//! operations must have left nothing; and every key must be readable soon, through every node: no
//! transaction stays undecided.
//!
//! As many connections again run the workload [`testkit::workload::collections`], which judges itself.
//!
//! The books are those of a single server ([`super::ledger`]), except that a connection's requests
//! for different keys may be lost out of order: one node can lose a write while another keeps a
//! later one.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::Pid;
use tempfile::TempDir;
use testkit::workload::{Collections, Workload};

use super::collections::{self, DrivenClient};
use super::ledger::CrashLedger;
use super::load::{Log, Record, SOON_MS, Ticks};
use super::node_load::{CrashNodeRound, PATIENCE, drive};
use super::verdict::{CrashVerdict, FoundCell, FoundKeys};
use super::{CHECKPOINTS, WIPE};
use crate::chaos::session::World;
use crate::cluster::ClusterNodes;
use crate::server::{Program, settings_of_node};
use testkit::SetOnDrop;
use testkit::{Client, Reply};
use xtask::interrupt;

/// The longest time of load before a kill, and after the nodes are back.
const LOAD_MS: u64 = 80;
/// How long to wait for a reply at which to kill.
const REPLY_WAIT: Duration = Duration::from_millis(50);
/// Keys that are read at once.
const CHUNK: usize = 16;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of rounds.
    pub rounds: u64,
    /// The seed of the load and of the moments; the interleaving of threads is the system's.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: u16,
    /// The number of connections to each node.
    pub connections: usize,
    /// `true` if the data of a failed round is kept for an investigation.
    pub keep: bool,
    /// `true` if the nodes make checkpoints all the time.
    pub checkpoints: bool,
}

/// The events that the rounds met.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrashNodeCoverage {
    /// Nodes that were killed.
    pub killed: u64,
    /// Transactions that were prepared when their node died, and still prepared when it came back.
    pub prepared: u64,
    /// Operations whose outcome is unknown.
    pub open: u64,
    /// Operations that were refused without effect.
    pub refused: u64,
}

/// Runs the rounds up to the first complaint and prints the sum.
///
/// # Errors
/// Returns an error if a round cannot be run at all; a complaint is no error here.
pub fn run(program: &Program, options: &Options) -> Result<CrashVerdict> {
    let started = Instant::now();
    let mut sum = CrashVerdict::default();
    let mut crash = Crash::new(program, options)?;
    let mut done = 0;
    while done < options.rounds && sum.is_clean() {
        interrupt::check()?;
        sum.add(crash.round().with_context(|| crash.place(done))?);
        done += 1;
        if done % WIPE == 0 {
            println!("crash: {done} rounds, {sum}");
            if sum.is_clean() && done < options.rounds {
                crash.renew()?;
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "crash: {done} rounds over {} nodes in {seconds:.1} s (seed {}), {sum}",
        options.nodes, options.seed
    );
    let CrashNodeCoverage {
        killed,
        prepared,
        open,
        refused,
    } = crash.coverage;
    println!(
        "crash: nodes killed: {killed}, transactions that came back prepared: {prepared}, \
         outcomes unknown: {open}, refused: {refused}"
    );
    if !sum.is_clean() {
        crash.explain(&sum, done - 1);
    } else if done >= WIPE && (prepared == 0 || open == 0) {
        bail!("no kill met a transaction between its phases; run more rounds");
    } else if done > 0 && sum.collections == 0 {
        bail!("no transaction on collections took effect");
    }
    Ok(sum)
}

struct Crash<'a> {
    program: &'a Program,
    options: &'a Options,
    rng: fastrand::Rng,
    ticks: Ticks,
    dir: TempDir,
    nodes: ClusterNodes,
    ledger: CrashLedger,
    collections: Collections,
    coverage: CrashNodeCoverage,
    /// The operations that were refused without effect in the last round, and the outcomes of the
    /// others.
    refused: Vec<String>,
    told: Vec<String>,
    /// The replies of the last round that no node should give.
    wrong: Vec<String>,
    /// The actions on the nodes since the directory was begun.
    events: Vec<String>,
}

impl<'a> Crash<'a> {
    fn new(program: &'a Program, options: &'a Options) -> Result<Crash<'a>> {
        let dir = TempDir::with_prefix("kumiki-crash-")?;
        let nodes = ClusterNodes::anywhere(program, dir.path(), options.nodes)?;
        let connections = options.connections * nodes.count();
        let mut crash = Crash {
            program,
            options,
            rng: fastrand::Rng::with_seed(options.seed),
            ticks: Ticks::default(),
            dir,
            nodes,
            ledger: CrashLedger::scattered(connections),
            collections: Collections::default(),
            coverage: CrashNodeCoverage::default(),
            refused: Vec::new(),
            told: Vec::new(),
            wrong: Vec::new(),
            events: Vec::new(),
        };
        crash.start_all()?;
        collections::set_up(&crash.collections, crash.nodes.addresses())?;
        Ok(crash)
    }

    fn place(&self, round: u64) -> String {
        format!("round {} of seed {}", round + 1, self.options.seed)
    }

    fn start_all(&mut self) -> Result<()> {
        (0..self.nodes.count()).try_for_each(|index| self.start(index))?;
        self.nodes.wait_together()
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let mut settings = settings_of_node(index).to_vec();
        if self.options.checkpoints {
            settings.extend(CHECKPOINTS[self.rng.usize(..CHECKPOINTS.len())]);
        }
        self.nodes.start(index, &settings)
    }

    /// Runs one round. All nodes run before it, and after it unless one refused to start.
    fn round(&mut self) -> Result<CrashVerdict> {
        let (logs, driven, refusal) = self.load_and_kill()?;
        if let Some(refusal) = refusal {
            let lost = vec![refusal];
            return Ok(CrashVerdict {
                lost,
                ..CrashVerdict::default()
            });
        }
        // Keys that expire soon are gone by now.
        thread::sleep(Duration::from_millis(SOON_MS + 20));
        let records = || logs.iter().flat_map(|log| &log.records);
        self.coverage.open += records().filter(|record| record.acked.is_none()).count() as u64;
        let line = |record: &Record| {
            let told = &record.acked;
            format!("{}: {:?}: {told:?}", record.sent, record.op)
        };
        self.told = records().map(line).collect();
        let found = match self.read() {
            Ok(found) => found,
            Err(wrong) => {
                let mut verdict = CrashVerdict::default();
                verdict
                    .wrong
                    .extend(logs.into_iter().filter_map(|log| log.complaint));
                verdict.wrong.push(format!("{wrong:#}"));
                return Ok(verdict);
            }
        };
        let mut verdict = self.ledger.judge(logs, &found);
        let addresses = self.nodes.addresses();
        collections::check(&mut self.collections, driven, addresses, &mut verdict)?;
        verdict.wrong.append(&mut self.wrong);
        Ok(verdict)
    }

    /// Returns the load's records, and the reason why a node did not come back.
    fn load_and_kill(&mut self) -> Result<(Vec<Log>, Vec<DrivenClient>, Option<String>)> {
        let (over, refused) = (AtomicBool::new(false), Mutex::default());
        let victims = Mutex::new(Vec::new());
        let ticks = std::mem::take(&mut self.ticks);
        let round = CrashNodeRound {
            ticks: &ticks,
            over: &over,
            victims: &victims,
            refused: &refused,
        };
        let addresses = self.nodes.addresses();
        let connections = self.options.connections * addresses.len();
        let rngs: Vec<_> = (0..connections).map(|_| self.rng.fork()).collect();
        let world = World::new(addresses.clone());
        let clients: Vec<_> = (0..connections)
            .map(|_| (self.collections.start(self.rng.fork()), self.rng.fork()))
            .collect();
        let ended = thread::scope(|scope| {
            let _ended = SetOnDrop(&over);
            let (round, world) = (&round, &world);
            let _world_ended = SetOnDrop(&world.over);
            let driven = clients.into_iter().map(|(client, rng)| {
                scope.spawn(move || {
                    collections::drive(world, client, rng, || true, || round.kill_victims())
                })
            });
            let driven: Vec<_> = driven.collect();
            let mut drivers = Vec::new();
            for (connection, rng) in rngs.into_iter().enumerate() {
                let addr = addresses[connection % addresses.len()];
                drivers.push(scope.spawn(move || drive(round, addr, connection, rng)));
            }
            let ended = self.disturb(round);
            over.store(true, Ordering::SeqCst);
            world.over.store(true, Ordering::SeqCst);
            let driven = driven.into_iter();
            let driven = driven
                .map(|one| one.join().expect("a client panicked"))
                .collect();
            let logs = drivers
                .into_iter()
                .map(|d| d.join().expect("a driver panicked"))
                .collect();
            ended.map(|refusal| (logs, driven, refusal))
        });
        self.ticks = ticks;
        self.wrong = world.wrong.into_inner();
        self.refused = refused.into_inner();
        self.coverage.refused += self.refused.len() as u64;
        ended
    }

    /// Kills nodes and starts them again. Returns the reason if one did not start.
    fn disturb(&mut self, round: &CrashNodeRound<'_>) -> Result<Option<String>> {
        self.pause(1000..LOAD_MS * 1000);
        let victims = self.choose();
        self.kill(&victims, round)?;
        self.pause(0..30_000);
        for &index in &victims {
            while self.rng.u32(0..8) == 0 {
                self.start(index)?;
                self.pause(0..20_000);
                self.server_of(index).kill()?;
                self.events
                    .push(format!("node {} killed while it started", index + 1));
            }
            self.start(index)?;
        }
        if let Err(error) = self.nodes.wait_together() {
            interrupt::check()?;
            return Ok(Some(format!("what the nodes held: {error:#}")));
        }
        for &index in &victims {
            self.coverage.prepared += self.prepared_of(index);
        }
        self.pause(0..LOAD_MS * 1000);
        Ok(None)
    }

    /// Chooses nodes: mostly one, sometimes two, seldom all.
    fn choose(&mut self) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.nodes.count()).collect();
        self.rng.shuffle(&mut all);
        let count = match self.rng.u32(0..8) {
            0..5 => 1,
            5..7 => 2,
            _ => all.len(),
        };
        all.truncate(count);
        all
    }

    fn kill(&mut self, victims: &[usize], round: &CrashNodeRound<'_>) -> Result<()> {
        let names: Vec<_> = victims.iter().map(|index| index + 1).collect();
        let at_reply = self.rng.bool();
        self.events
            .push(format!("nodes {names:?} killed, at a reply: {at_reply}"));
        if at_reply {
            let pids: Vec<Pid> = victims.iter().map(|&i| self.server_of(i).pid()).collect();
            *round.victims.lock() = pids;
            let deadline = Instant::now() + REPLY_WAIT;
            while Instant::now() < deadline && !round.victims.lock().is_empty() {
                thread::sleep(Duration::from_micros(200));
            }
            round.victims.lock().clear();
        }
        for &index in victims {
            self.server_of(index).kill()?;
            self.coverage.killed += 1;
        }
        Ok(())
    }

    fn server_of(&mut self, index: usize) -> &mut crate::server::ServerUnderTest {
        self.nodes.server(index).expect("it was started")
    }

    fn pause(&mut self, micros: std::ops::Range<u64>) {
        thread::sleep(Duration::from_micros(self.rng.u64(micros)));
    }

    /// Returns the number of transactions that a node reported as prepared.
    fn prepared_of(&self, index: usize) -> u64 {
        let log = self.dir.path().join(format!("node{}.log", index + 1));
        let said = fs::read_to_string(log).unwrap_or_default();
        let after = said.split("prepared=").skip(1);
        let digits = after.map(|text| text.split(|c: char| !c.is_ascii_digit()).next());
        digits.flatten().filter_map(|n| n.parse::<u64>().ok()).sum()
    }

    /// Reads every key through every node; the values must agree.
    fn read(&self) -> Result<FoundKeys> {
        let mut first: Option<FoundKeys> = None;
        for addr in self.nodes.addresses() {
            let mut client = Client::try_connect(addr)?;
            client.set_patience(PATIENCE)?;
            let found = self.read_through(&mut client)?;
            let Some(first) = &first else {
                first = Some(found);
                continue;
            };
            for name in self.ledger.names() {
                if first.bytes(name) != found.bytes(name) {
                    bail!("{name} is one thing through one node and another through {addr}");
                }
            }
        }
        first.context("a cluster has nodes")
    }

    /// Reads through one node: single keys are answered by their own node alone; a transaction over
    /// many keys by each.
    fn read_through(&self, client: &mut Client) -> Result<FoundKeys> {
        let names: Vec<&str> = self.ledger.names().collect();
        let mut cells = BTreeMap::new();
        for names in names.chunks(CHUNK) {
            let read_at = Instant::now();
            client.push(&["MULTI"]);
            for name in names {
                client.push(&["GET", name]);
                client.push(&["PTTL", name]);
            }
            client.push(&["EXEC"]);
            client.flush()?;
            let mut last = Reply::Null;
            for _ in 0..2 * names.len() + 2 {
                let reply = client.try_reply();
                last = reply.with_context(|| format!("{names:?} are not readable"))?;
            }
            let Reply::Array(replies) = last else {
                bail!("EXEC of GET and PTTL of {names:?} says {last:?}");
            };
            for (name, pair) in names.iter().zip(replies.chunks(2)) {
                match pair {
                    [Reply::Bulk(bytes), Reply::Int(ttl_ms)] => {
                        let cell = FoundCell {
                            bytes: bytes.clone(),
                            ttl_ms: *ttl_ms,
                            read_at,
                        };
                        cells.insert((*name).to_owned(), cell);
                    }
                    [Reply::Null, Reply::Int(-2)] => {}
                    other => bail!("GET and PTTL of {name} say {other:?}"),
                }
            }
        }
        Ok(FoundKeys {
            cells,
            ..FoundKeys::default()
        })
    }

    /// Begins with an empty directory.
    fn renew(&mut self) -> Result<()> {
        for index in 0..self.nodes.count() {
            self.server_of(index).kill()?;
        }
        self.dir = TempDir::with_prefix("kumiki-crash-")?;
        self.nodes = ClusterNodes::anywhere(self.program, self.dir.path(), self.options.nodes)?;
        self.ledger = CrashLedger::scattered(self.options.connections * self.nodes.count());
        self.collections = Collections::default();
        self.events.clear();
        self.start_all()?;
        collections::set_up(&self.collections, self.nodes.addresses())
    }

    fn explain(&mut self, verdict: &CrashVerdict, round: u64) {
        print!("{}", verdict.complaints());
        let place = self.place(round);
        println!("crash: this was {place}; the last events were:");
        for event in &self.events[self.events.len().saturating_sub(8)..] {
            println!("  {event}");
        }
        if self.options.keep {
            println!("crash: the data stays at {}", self.keep().display());
        }
    }

    /// Stops the nodes and leaves their data in place. Returns the directory.
    fn keep(&mut self) -> PathBuf {
        for index in 0..self.nodes.count() {
            // It has ended by itself if this fails, and the guard reaps it.
            let _ = self.nodes.server(index).map(|server| server.kill());
        }
        let books = [("refused.txt", &self.refused), ("told.txt", &self.told)];
        for (name, lines) in books {
            if let Err(error) = fs::write(self.dir.path().join(name), lines.join("\n")) {
                println!("crash: cannot write {name}: {error}");
            }
        }
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }
}
