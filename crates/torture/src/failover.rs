//! How long a replicated partition is without a leader: the leader dies under load, again and again.
//!
//! In one round, the serving node gets a signal at a random moment, while clients count up, others change
//! collections ([`testkit::workload::collections`]), and all follow redirects, as clients of Redis Cluster do; another
//! node serves; the ended one is started again, and the next round begins when it has all entries. Real processes on
//! loopback, with the defaults of `kumiki serve` and logs on the disk.
//!
//! | module | what |
//! |---|---|
//! | [`writer`] | clients, and what was acknowledged to them |
//! | [`round`] | what a round showed; medians, percentiles, the aim |

pub mod round;
pub mod writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use serde::Serialize;
use tempfile::TempDir;
use testkit::workload::{self, Collections, Counts, Seen, Workload};

use self::round::{End, FailoverRound};
use self::writer::Ack;
use crate::bench::machine::Host;
use crate::chaos::convergence;
use crate::chaos::session::{ChaosSession, World};
use crate::cluster::ClusterNodes;
use crate::server::{Program, settings_of_node};
use crate::status::ReportedStatus;
use testkit::SetOnDrop;
use xtask::interrupt;

/// Clients that count, and as many that change collections.
const WRITERS: usize = 4;
/// How long a client waits for a reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Within this time, or twenty election time-outs if that is longer, another node must serve, or
/// the run fails.
const RECOVERY: Duration = Duration::from_secs(20);
/// How long a node may take to have all entries again.
const LEVEL: Duration = Duration::from_secs(60);
/// How long to wait between looks.
const LOOK: Duration = Duration::from_millis(5);
/// The least and the most load before a leader ends, in milliseconds.
const CALM_MS: std::ops::Range<u64> = 200..1200;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of nodes that hold the partition.
    pub nodes: u16,
    /// The shortest time after which a silent leader is replaced.
    pub election: Duration,
    /// The number of leaders that get SIGKILL.
    pub kills: usize,
    /// The number of leaders that get SIGTERM, afterwards.
    pub stops: usize,
    /// Seed of the moments.
    pub seed: u64,
    /// The directory for the JSON file, if one is written.
    pub out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    host: Host,
    nodes: u16,
    election_ms: u64,
    seed: u64,
    rounds: &'a [FailoverRound],
}

/// Runs all rounds, and prints their results.
///
/// # Errors
/// Returns an error if no node leads again or a node does not come back; if an acknowledged write
/// is missing, or one has happened twice; if a node gives an answer that no node should give. A
/// missed aim is no error: it is reported.
pub fn run(program: &Program, options: &Options) -> Result<()> {
    ensure!(
        options.nodes >= 3,
        "less than three nodes cannot do without their leader"
    );
    let dir = TempDir::with_prefix("kumiki-failover-")?;
    let election = format!("{}ms", options.election.as_millis());
    let program = program.with(&["--election-timeout", &election]);
    let count = options.nodes;
    let mut nodes = ClusterNodes::replicated_anywhere(&program, dir.path(), count, count)?;
    (0..nodes.count()).try_for_each(|index| nodes.start(index, settings_of_node(index)))?;
    nodes.wait_together()?;
    let world = World::new(nodes.addresses());
    let mut field = FaultInjector {
        nodes,
        world: &world,
        acks: &Mutex::default(),
        options,
        rng: fastrand::Rng::with_seed(options.seed),
    };
    let rounds = field.play()?;
    field.nodes.stop()?;
    for end in [End::Killed, End::Stopped] {
        print!("{}", round::table(&rounds, end, options.election));
    }
    if options.kills > 0 {
        let met = match round::is_met(&rounds, options.election) {
            true => "met",
            false => "missed",
        };
        println!(
            "aim: p99 to the first write after a kill within {} election time-outs: {met}",
            round::AIM
        );
    }
    options
        .out
        .as_ref()
        .map_or(Ok(()), |out| save(out, options, &rounds))
}

fn save(out: &Path, options: &Options, rounds: &[FailoverRound]) -> Result<()> {
    let report = Report {
        host: Host::here(),
        nodes: options.nodes,
        election_ms: options.election.as_millis() as u64,
        seed: options.seed,
        rounds,
    };
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let path = out.join("failover.json");
    fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("failover: every round is in {}", path.display());
    Ok(())
}

struct FaultInjector<'a> {
    nodes: ClusterNodes,
    world: &'a World,
    /// Acknowledgements since the last round's end.
    acks: &'a Mutex<Vec<Ack>>,
    options: &'a Options,
    rng: fastrand::Rng,
}

impl FaultInjector<'_> {
    /// Runs all rounds, under load, and the judgement.
    fn play(&mut self) -> Result<Vec<FailoverRound>> {
        let (world, acks) = (self.world, self.acks);
        let (counters, collections) = (writer::counters(WRITERS), Collections::default());
        for plan in [counters.setup(), collections.setup()] {
            convergence::set_up(world, PATIENCE, &plan)?;
        }
        let rngs: Vec<_> = (0..WRITERS).map(|_| self.rng.fork()).collect();
        let (rounds, counted, collected) = thread::scope(|scope| {
            let _ended = SetOnDrop(&world.over);
            let session = |rng| ChaosSession::new(world, PATIENCE, rng);
            let (mut counting, mut collecting) = (Vec::new(), Vec::new());
            for mut rng in rngs {
                let (client, own) = (counters.start(rng.fork()), session(rng.fork()));
                counting.push(scope.spawn(move || writer::write(world, client, own, Some(acks))));
                let (client, own) = (collections.start(rng.fork()), session(rng));
                collecting.push(scope.spawn(move || writer::write(world, client, own, None)));
            }
            let rounds = self.rounds();
            world.over.store(true, Ordering::SeqCst);
            let counted = counting
                .into_iter()
                .map(|one| one.join().expect("no panic"));
            let collected = collecting
                .into_iter()
                .map(|one| one.join().expect("no panic"));
            (
                rounds,
                counted.collect::<Vec<_>>(),
                collected.collect::<Vec<_>>(),
            )
        });
        // A wrong answer is more specific than the failure of a round.
        if let [wrong, ..] = &world.wrong.lock()[..] {
            bail!("{wrong}");
        }
        let rounds = rounds?;
        let nodes = self.options.nodes;
        println!(
            "failover: {nodes} nodes, election time-out {:?}, seed {}",
            self.options.election, self.options.seed
        );
        self.judge("writes", counters, counted)?;
        self.judge("transactions on collections", collections, collected)?;
        Ok(rounds)
    }

    fn rounds(&mut self) -> Result<Vec<FailoverRound>> {
        let (kills, stops) = (self.options.kills, self.options.stops);
        let mut rounds = Vec::new();
        self.wait_level()?;
        for number in 1..=kills + stops {
            let end = if number <= kills {
                End::Killed
            } else {
                End::Stopped
            };
            let place = format!("round {number} of {}", kills + stops);
            let round = self.round(end).with_context(|| place.clone())?;
            eprintln!(
                "failover: {place}: node {} {end}, node {} served after {} ms, in {} terms",
                round.node,
                round.next,
                round.serving.as_millis(),
                round.terms
            );
            rounds.push(round);
        }
        Ok(rounds)
    }

    fn round(&mut self, end: End) -> Result<FailoverRound> {
        self.acks.lock().clear();
        self.calm()?;
        let leader = self.acks.lock().last().map(|ack| ack.node);
        let leader =
            leader.context("no node has acknowledged a write although nothing had failed")?;
        let term = self.status(leader)?.term;
        let ended = self.world.now();
        let server = self.nodes.server(leader).expect("it was started");
        match end {
            End::Killed => server.kill().map(drop)?,
            End::Stopped => server.stop()?,
        }
        let first = self.wait_served(leader, ended)?;
        let started = Instant::now();
        self.nodes.start(leader, settings_of_node(leader))?;
        let server = self.nodes.server(leader).expect("it was started");
        server.wait_ready()?;
        self.wait_level()?;
        let level = started.elapsed();
        self.check()?;
        let pause = round::longest_pause(&self.acks.lock());
        Ok(FailoverRound {
            end,
            node: leader + 1,
            next: first.node + 1,
            terms: self.status(first.node)?.term - term,
            serving: Duration::from_nanos(first.at - ended),
            pause,
            level,
        })
    }

    /// Runs load without faults, up to a random moment.
    fn calm(&mut self) -> Result<()> {
        let micros = self.rng.u64(CALM_MS.start * 1000..CALM_MS.end * 1000);
        thread::sleep(Duration::from_micros(micros));
        interrupt::check()?;
        self.check()
    }

    /// Returns an error if anything is wrong already, so that the run does not wait for a later
    /// round.
    fn check(&mut self) -> Result<()> {
        for index in 0..self.nodes.count() {
            let server = self.nodes.server(index).expect("it was started");
            if let Some(status) = server.exited()? {
                let (node, tail) = (index + 1, server.log_tail());
                bail!("node {node} has ended by itself ({status})\n{tail}");
            }
        }
        ensure!(self.world.wrong.lock().is_empty(), "a reply was wrong");
        Ok(())
    }

    /// Returns the first write that another node than `leader` acknowledges after `ended`.
    fn wait_served(&self, leader: usize, ended: u64) -> Result<Ack> {
        let bound = RECOVERY.max(20 * self.options.election);
        let deadline = Instant::now() + bound;
        loop {
            interrupt::check()?;
            if let Some(first) = round::first_of_another(&self.acks.lock(), leader, ended) {
                return Ok(first);
            }
            if Instant::now() > deadline {
                bail!(
                    "no node serves {bound:?} after the leader, node {}, has ended",
                    leader + 1
                );
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits until every node has the entries that were committed at the time of the call.
    fn wait_level(&mut self) -> Result<()> {
        let deadline = Instant::now() + LEVEL;
        let all = 0..self.nodes.count();
        let mut wanted = None;
        loop {
            interrupt::check()?;
            let said: Result<Vec<ReportedStatus>> =
                all.clone().map(|index| self.status(index)).collect();
            let told = match said {
                Ok(all) => {
                    let committed = all.iter().map(|one| one.committed).max().unwrap_or(0);
                    let wanted = *wanted.get_or_insert(committed);
                    if all.iter().all(|one| one.is_level(wanted)) {
                        return Ok(());
                    }
                    format!("entry {wanted} is not everywhere: {all:?}")
                }
                Err(error) => format!("{error:#}"),
            };
            if Instant::now() > deadline {
                bail!("the nodes are not level within {LEVEL:?}: {told}");
            }
            thread::sleep(LOOK);
        }
    }

    fn status(&self, index: usize) -> Result<ReportedStatus> {
        ReportedStatus::of(self.world.addresses[index])
    }

    /// Judges a workload whose clients have ended.
    fn judge<W: Workload>(
        &mut self,
        transactions: &str,
        mut workload: W,
        done: Vec<(W::Client, Counts)>,
    ) -> Result<()> {
        let (clients, counts): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        let mut session = ChaosSession::new(self.world, PATIENCE, self.rng.fork());
        let deadline = Instant::now() + RECOVERY;
        let found: Vec<Seen> = loop {
            interrupt::check()?;
            if let Some(found) = workload::read(&mut session, &workload.reads()) {
                break found;
            }
            ensure!(
                Instant::now() < deadline,
                "the keys of a workload cannot be read in the end"
            );
        };
        if let [wrong, ..] = &workload.check(clients, Some(&found))[..] {
            bail!("{wrong}");
        }
        let acknowledged: u64 = counts.iter().map(|counts| counts.committed).sum();
        let unknown: u64 = counts.iter().map(|counts| counts.unknown).sum();
        ensure!(acknowledged > 0, "no {transactions} took effect");
        println!(
            "failover: {acknowledged} {transactions} were acknowledged and are there, each once; \
             {unknown} had an unknown outcome"
        );
        Ok(())
    }
}
