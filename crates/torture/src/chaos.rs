//! Chaos runs: the nodes of a replicated partition as real processes, each in a network namespace
//! of its own, under load and under faults, judged by what their clients saw.
//!
//! In one round, clients drive load; several faults strike, each at its time; they end, and the
//! partition must serve again soon; the observations of all clients must be strictly serializable,
//! no acknowledged write may be missing, and all nodes must reach the same state. Six rounds are a
//! *life* of a partition: three without reads by lease and then, after all of its nodes were killed
//! at once, three with them.
//!
//! | module | what |
//! |---|---|
//! | [`network`] | namespaces, cables, routes |
//! | [`volume`] | small disks that can be full |
//! | [`nodes`] | processes |
//! | [`fault`], [`fault_injection`] | what goes wrong, and how it is brought about |
//! | [`session`], [`load`], [`sticky_reader`] | clients |
//! | [`convergence`], [`partition_run`] | judgement; that of histories is the crate `history`'s, that of counters and accounts their workloads' |
//! | [`summary`] | what a run showed as a whole |
//!
//! Every other life is on a disk that forgets unsynced data when its process dies.

pub mod convergence;
pub mod fault;
pub mod fault_injection;
pub mod load;
pub mod network;
pub mod nodes;
pub mod partition_run;
pub mod session;
pub mod sticky_reader;
pub mod summary;
pub mod volume;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::fault::Terms;
use self::network::ChaosNetwork;
use self::partition_run::{ChaosReport, ChaosRound, Complaint, Life, PromiseKind};
use self::summary::ChaosSummary;
use crate::server::Program;
use xtask::interrupt;
use xtask::process;

/// Rounds of one partition; before the middle one all of its nodes are killed.
const LIFE: u64 = 6;
/// The shortest time after which a silent leader is replaced.
const ELECTION: Duration = Duration::from_millis(500);
/// The partition must serve within so many election time-outs after the faults have ended, or after
/// the restarted nodes answer, whichever is later.
const ELECTIONS: u32 = 5;
/// Faults strike within this time.
const SPAN: Duration = Duration::from_millis(2500);
/// Clients that do all kinds of operations.
const WORKERS: usize = 12;

/// The most complaints that are printed.
const MOST: usize = 10;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes: 3 or 5.
    pub nodes: u16,
    /// Seed of load and faults.
    pub seed: u64,
    /// When to end: after so many rounds, …
    pub rounds: u64,
    /// … or after this time.
    pub time: Duration,
    /// The file for the history of the last round.
    pub history: Option<PathBuf>,
    /// The bug that the nodes have, if any.
    pub planted: Option<ChaosBug>,
}

/// A bug that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ChaosBug {
    /// A leader believes in its lease without reading the clock.
    StaleLease,
    /// A former leader keeps transactions that it had executed and that were not committed.
    KeptOverlay,
}

impl ChaosBug {
    /// Returns the name by which it is planted.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ChaosBug::StaleLease => "stale-lease",
            ChaosBug::KeptOverlay => "kept-overlay",
        }
    }

    /// Returns the number of rounds in which it must be found.
    #[must_use]
    pub fn rounds(self) -> u64 {
        30
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct ChaosVerdict {
    /// Rounds that were played.
    pub rounds: u64,
    /// The complaints of the last one.
    pub complaints: Vec<Complaint>,
}

/// Runs rounds up to the first complaint, and prints their results. The caller's own network does
/// not change.
///
/// # Errors
/// Returns an error if rounds cannot be run; a complaint is no error here.
pub fn run(program: &Program, options: &Options) -> Result<ChaosVerdict> {
    if !matches!(options.nodes, 3 | 5) {
        bail!("a chaos run has 3 or 5 nodes, not {}", options.nodes);
    }
    let network = ChaosNetwork::build(options.nodes)?;
    // A thread that has entered a network stays in it.
    thread::scope(|scope| {
        let playing = scope.spawn(|| play(program, options, network));
        playing.join().expect("no panic")
    })
}

fn play(program: &Program, options: &Options, network: ChaosNetwork) -> Result<ChaosVerdict> {
    network.enter()?;
    let mut chaos = Chaos {
        program,
        options,
        network,
        dir: Directory(volume::directory()?),
        rng: fastrand::Rng::with_seed(options.seed),
        sum: ChaosSummary::default(),
    };
    chaos.run()
}

/// Returns `true` if the system permits runs of so many nodes. Otherwise prints why not.
///
/// # Errors
/// Returns an error with the reason, if it is not permitted although it `is_required`.
pub fn is_permitted(nodes: u16, is_required: bool) -> Result<bool> {
    match ChaosNetwork::build(nodes) {
        Ok(_) => Ok(true),
        Err(error) if is_required => Err(error),
        Err(error) => {
            println!("chaos: skipped: {error:#}");
            Ok(false)
        }
    }
}

/// Turns a verdict with complaints into an error.
///
/// # Errors
/// Returns an error if there is a complaint.
pub fn require_clean(verdict: &ChaosVerdict) -> Result<()> {
    if let [first, ..] = &verdict.complaints[..] {
        bail!("the partition broke its promise: {}", first.text);
    }
    Ok(())
}

/// Checks that the planted bug was found; otherwise the harness is blind. The end of a node, or a
/// missing end, is none of these bugs.
///
/// # Errors
/// Returns an error if there is no complaint of that kind.
pub fn require_found(verdict: &ChaosVerdict) -> Result<()> {
    let mut complaints = verdict.complaints.iter();
    if complaints.all(|complaint| complaint.kind == PromiseKind::Failed) {
        bail!("the planted bug was not found in {} rounds", verdict.rounds);
    }
    println!(
        "chaos: the planted bug was found in round {}",
        verdict.rounds
    );
    Ok(())
}

/// The run's directory. Dropping it removes the directory; the volumes in it must be dropped
/// before.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // The next run tries again.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Chaos<'a> {
    program: &'a Program,
    options: &'a Options,
    network: ChaosNetwork,
    dir: Directory,
    rng: fastrand::Rng,
    sum: ChaosSummary,
}

impl Chaos<'_> {
    fn run(&mut self) -> Result<ChaosVerdict> {
        let (begun, seed) = (Instant::now(), self.options.seed);
        let mut verdict = ChaosVerdict::default();
        let mut life = None;
        while verdict.rounds < self.options.rounds
            && begun.elapsed() < self.options.time
            && verdict.complaints.is_empty()
        {
            interrupt::check()?;
            let number = verdict.rounds;
            verdict.rounds += 1;
            let played = self.round(number, &mut life);
            let report = match played {
                Ok(report) => report,
                Err(error) => {
                    self.keep(life.as_ref())?;
                    return Err(error).context(format!("round {} of seed {seed}", number + 1));
                }
            };
            println!("chaos: round {}: {report}", number + 1);
            self.sum.add(&report);
            if !report.complaints.is_empty() {
                report.tell();
                println!("chaos: this was round {} of seed {seed}", number + 1);
                self.keep(life.as_ref())?;
            }
            verdict.complaints = report.complaints;
            let is_failure = |complaint: &Complaint| complaint.kind == PromiseKind::Failed;
            if self.options.planted.is_some() && verdict.complaints.iter().all(is_failure) {
                // A node has ended because of the bug, which does not show what the bug breaks. A
                // new partition begins.
                life = life.filter(|_| verdict.complaints.is_empty());
                if verdict.rounds < self.options.rounds {
                    verdict.complaints.clear();
                }
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "chaos: {} rounds in {seconds:.0} s (seed {seed})",
            verdict.rounds
        );
        self.sum.print();
        Ok(verdict)
    }

    fn round(&mut self, number: u64, life: &mut Option<Life>) -> Result<ChaosReport> {
        let at = number % LIFE;
        let has_leases = self.is_drowsy() || at >= LIFE / 2;
        let forgets = number / LIFE % 2 == 1;
        let program = self.arguments(has_leases, forgets);
        if at == 0 || life.is_none() {
            if let Some(old) = life.take() {
                old.end()?;
            }
            let dir = self.dir.0.join(format!("life{number}"));
            *life = Some(Life::begin(
                &self.network,
                &program,
                dir,
                self.options.nodes,
            )?);
        }
        let life = life.as_mut().expect("it has begun");
        if at == LIFE / 2 {
            life.turn_into(&self.network, program)?;
        }
        let terms = Terms {
            nodes: self.options.nodes,
            election: ELECTION,
            span: SPAN,
            // A disk that forgets reports only at a sync that there is no room.
            may_fill: !forgets,
            drowsy: self.is_drowsy(),
        };
        let round = ChaosRound {
            number,
            terms,
            workers: WORKERS,
            history: self.options.history.as_deref(),
        };
        let mut report = life.round(&self.network, &round, &mut self.rng)?;
        let bound = ELECTIONS * ELECTION + report.restarting;
        if report.serving > bound {
            let text = format!(
                "it took {:?} until a write was acknowledged after the faults had ended, and may \
                 take {bound:?}",
                report.serving
            );
            report.complain(PromiseKind::Unavailable, [text]);
        }
        Ok(report)
    }

    /// Returns `true` if leaders sleep longer than their leases.
    fn is_drowsy(&self) -> bool {
        self.options.planted == Some(ChaosBug::StaleLease)
    }

    fn arguments(&self, has_leases: bool, forgets: bool) -> Program {
        let election = format!("{}ms", ELECTION.as_millis());
        let mut arguments = vec!["--election-timeout", &election];
        // Their network has no other users.
        arguments.push("--insecure");
        // Small enough that snapshots are made, and new files begun, in every round.
        arguments.extend(["--checkpoint-log-size", "256KiB"]);
        arguments.extend(["--log-segment-size", "128KiB"]);
        if has_leases {
            arguments.push("--lease-reads");
        }
        if forgets {
            arguments.extend(["--disk", "forgetful"]);
        }
        self.program.with(&arguments)
    }

    /// Copies the nodes' data and output to a place that is kept.
    fn keep(&self, life: Option<&Life>) -> Result<()> {
        let Some(life) = life.filter(|_| self.options.planted.is_none()) else {
            return Ok(());
        };
        let name = format!("kumiki-chaos-kept-{}", self.options.seed);
        let kept = std::env::temp_dir().join(name);
        let from: &Path = life.dir();
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--no-target-directory"]);
        process::run("cp", copy.arg(from).arg(&kept))?;
        println!("chaos: the nodes' files are at {}", kept.display());
        Ok(())
    }
}

impl ChaosReport {
    /// Prints the complaints, and the actions of the round.
    fn tell(&self) {
        for event in &self.events {
            println!("  {event}");
        }
        for complaint in self.complaints.iter().take(MOST) {
            println!("chaos: {}", complaint.text);
        }
        if self.complaints.len() > MOST {
            println!("chaos: … and {} more", self.complaints.len() - MOST);
        }
    }
}

impl std::fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [served, _, unknown] = self.served;
        let ms = |time: Duration| time.as_millis();
        write!(
            f,
            "{} faults, {served} served, {unknown} unknown; serves after {} ms (nodes answer after \
             {} ms), equal after {} ms; {} transactions judged in {} ms",
            self.faults,
            ms(self.serving),
            ms(self.restarting),
            ms(self.catching_up),
            self.transactions,
            ms(self.judging)
        )
    }
}
