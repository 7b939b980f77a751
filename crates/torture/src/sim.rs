//! Simulations of protocols: whole clusters in one thread and in virtual time, from one seed each.
//!
//! Seeds run on all processors; the result of one depends on nothing but its number. By default,
//! each call runs new seeds, and prints the first of them.
//!
//! A bug is looked for by a program that has it: one that was built with planted bugs, in whose
//! environment the bug is chosen.

use std::fmt::Debug;
use std::panic;
use std::thread;

use anyhow::{Result, bail, ensure};
use base::planted;
use cluster::simulation::Scenario;
use simulation::{Counts, Point, Report, Run, Seeds};
use xtask::interrupt;

/// A point that fewer of a thousand seeds reach is not reached often enough.
const LEAST_PER_THOUSAND: u64 = 3;

/// The protocol that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SimulatedProtocol {
    /// Transactions over several partitions.
    #[value(name = "2pc")]
    TwoPhaseCommit,
    /// The same, with read-atomic keys.
    Ramp,
    /// A partition that several nodes hold.
    Replica,
    /// A table of locks that several proxies share, or that one has in its memory.
    Locks,
}

/// A bug that a simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SimulationBug {
    /// Transactions of one partition ignore the holds of two-phase locking.
    IgnoredHolds,
    /// Participants vote before their part is durable.
    EarlyDecision,
    /// Read-atomic reads leave out the second round.
    OneRound,
    /// A client that coordinates a write commits it when one participant has prepared.
    EarlyCommit,
    /// A leader takes its lease for valid without reading the clock.
    StaleLease,
    /// Transactions that were executed and not committed outlive the leadership.
    KeptOverlay,
    /// Staged versions outlive the leadership.
    KeptChain,
    /// A lock is taken over when its lease has ended by the wall clock.
    TrustedWallClock,
    /// A token is drawn without regard to the last one of the key.
    ForgottenToken,
    /// A table that has lost its memory grants at once.
    ForgottenGrace,
}

impl SimulationBug {
    /// Returns the protocol whose simulation finds it.
    #[must_use]
    pub fn protocol(self) -> SimulatedProtocol {
        match self {
            SimulationBug::IgnoredHolds | SimulationBug::EarlyDecision => {
                SimulatedProtocol::TwoPhaseCommit
            }
            SimulationBug::OneRound | SimulationBug::EarlyCommit => SimulatedProtocol::Ramp,
            SimulationBug::StaleLease | SimulationBug::KeptOverlay | SimulationBug::KeptChain => {
                SimulatedProtocol::Replica
            }
            SimulationBug::TrustedWallClock
            | SimulationBug::ForgottenToken
            | SimulationBug::ForgottenGrace => SimulatedProtocol::Locks,
        }
    }

    fn planted(self) -> planted::Bug {
        match self {
            SimulationBug::IgnoredHolds => planted::Bug::IgnoredHolds,
            SimulationBug::EarlyDecision => planted::Bug::EarlyDecision,
            SimulationBug::OneRound => planted::Bug::OneRound,
            SimulationBug::EarlyCommit => planted::Bug::EarlyCommit,
            SimulationBug::StaleLease => planted::Bug::StaleLease,
            SimulationBug::KeptOverlay => planted::Bug::KeptOverlay,
            SimulationBug::KeptChain => planted::Bug::KeptChain,
            SimulationBug::TrustedWallClock => planted::Bug::TrustedWallClock,
            SimulationBug::ForgottenToken => planted::Bug::ForgottenToken,
            SimulationBug::ForgottenGrace => planted::Bug::ForgottenGrace,
        }
    }
}

/// The seeds that are run, and the expected result.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    pub seeds: u64,
    /// The first seed; drawn and printed if not given.
    #[arg(long)]
    pub first: Option<u64>,
    /// Run this seed alone, and print everything that happens.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    pub seed: Option<u64>,
    /// Print the history of that seed as well, as JSON lines.
    #[arg(long, requires = "seed")]
    pub history: bool,
    /// Build with this planted bug, and succeed only if a seed finds it.
    #[arg(long, value_enum)]
    pub planted: Option<SimulationBug>,
}

/// Simulates a protocol.
///
/// # Errors
/// Returns an error if a seed breaks a promise, or if the seeds together reach too little. With a
/// planted bug, returns an error if no seed breaks a promise.
pub fn run(protocol: SimulatedProtocol, options: &Options) -> Result<()> {
    if let Some(bug) = options.planted {
        ensure!(
            bug.protocol() == protocol,
            "this bug is not of this protocol"
        );
        ensure!(
            planted::is(bug.planted()),
            "this process does not have the bug: it takes a build with planted bugs, and the bug's \
             name in its environment"
        );
    }
    match protocol {
        SimulatedProtocol::TwoPhaseCommit => of_cluster(Scenario::TwoPhaseCommit, options),
        SimulatedProtocol::Ramp => of_cluster(Scenario::Ramp, options),
        SimulatedProtocol::Replica => play(options, replica::simulation::run, |_| true),
        SimulatedProtocol::Locks => play(options, locks::simulation::run, |_| true),
    }
}

fn of_cluster(scenario: Scenario, options: &Options) -> Result<()> {
    let run = |seed, keep_trace| cluster::simulation::run(scenario, seed, keep_trace);
    play(options, run, |point| scenario.has(point))
}

/// Runs seeds of a simulation whose runs can reach the points that `has` names.
fn play<P, C>(
    options: &Options,
    run: impl Fn(u64, bool) -> Run<P, C> + Sync,
    has: impl Fn(P) -> bool,
) -> Result<()>
where
    P: Point + Send,
    C: Counts + Debug,
{
    if let Some(seed) = options.seed {
        let run = run(seed, true);
        print(&run, options.history);
        return judge(options, run.failure.map(|failure| (seed, failure)), 1);
    }
    let seeds = Seeds {
        first: options
            .first
            .unwrap_or_else(|| u64::from(fastrand::u32(..))),
        count: options.seeds,
        threads: thread::available_parallelism().map_or(1, usize::from),
    };
    println!("{} seeds from {}", seeds.count, seeds.first);
    let report = without_messages(|| {
        seeds.run(|seed| match interrupt::check() {
            Ok(()) => run(seed, false),
            Err(error) => Run::failed(seed, error.to_string()),
        })
    });
    interrupt::check()?;
    let is_whole = report.failed.is_none();
    if is_whole {
        print_report(&report);
    }
    let failed = report
        .failed
        .map(|run| (run.seed, run.failure.unwrap_or_default()));
    judge(options, failed, report.runs)?;
    let rarer = seeds.count * LEAST_PER_THOUSAND / 1000;
    let rare = report.reached.rarer_than(rarer).filter(|point| has(*point));
    let rare: Vec<P> = rare.collect();
    ensure!(
        rare.is_empty() || !is_whole,
        "not reached often enough: {rare:?}"
    );
    Ok(())
}

/// Runs `work` without messages of panics: a panic of a run is the failure of its seed, which is
/// reported as such.
fn without_messages<R>(work: impl FnOnce() -> R) -> R {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = work();
    panic::set_hook(hook);
    result
}

fn print<P: Point, C: Counts>(run: &Run<P, C>, with_history: bool) {
    for line in &run.trace {
        println!("{line}");
    }
    if with_history {
        print!("{}", run.history);
    }
    print!("{}{}", run.counts.text(), run.reached);
    println!("seed {}: trace {:016x}", run.seed, run.hash);
}

fn print_report<P: Point, C: Counts>(report: &Report<P, C>) {
    let seconds = report.took.as_secs_f64();
    let each_ms = seconds * 1000.0 / report.runs.max(1) as f64;
    println!(
        "{} seeds passed in {seconds:.1} s, {each_ms:.2} ms each",
        report.runs
    );
    print!("{}seeds in which\n{}", report.counts.text(), report.reached);
}

/// Returns an error unless a seed failed exactly if a planted bug was to be found.
fn judge(options: &Options, failed: Option<(u64, String)>, runs: u64) -> Result<()> {
    match (failed, options.planted) {
        (None, None) => Ok(()),
        (Some((seed, failure)), None) => {
            bail!("seed {seed} failed: {failure}\nrun it again with --seed {seed}")
        }
        (Some((seed, failure)), Some(_)) => {
            println!("the planted bug was found, by seed {seed} of {runs}: {failure}");
            Ok(())
        }
        (None, Some(_)) => bail!("the planted bug was not found by {runs} seeds"),
    }
}
