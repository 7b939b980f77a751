//! `cargo xtask nightly`: what takes too long for each change. Parts can be run one by one.
//!
//! | part | what |
//! |---|---|
//! | `harnesses` | crashes, faults and fail-overs of the real binary, fuzzing and simulations, in full numbers |
//! | `peers` | all tests, with all clients and peers installed and required |
//! | `verbs` | the tests over real verbs, in a machine that has an RDMA device in software |
//! | `benchmarks` | experiments with their checks, and their report |

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::build;
use crate::ci::harness::{Amount, Harness};
use crate::ci::step::{StepSummary, execute};
use crate::ci::{self, checks};
use crate::peers::{self, PeerGroup};
use crate::{process, rdma};

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Crashes, faults and fail-overs of the real binary, fuzzing and simulations.
    Harnesses,
    /// All tests, with all clients and peers.
    Peers,
    /// The tests over real verbs.
    Verbs,
    /// Experiments with their checks, and their report.
    Benchmarks,
}

impl Part {
    const ALL: &[Part] = &[Part::Harnesses, Part::Peers, Part::Verbs, Part::Benchmarks];
}

/// The longest time of a part.
const LONGEST: Duration = Duration::from_secs(3600);

/// The environment variable that says how much tests do: see crate `testkit`.
const AMOUNT: &str = "KUMIKI_TESTS";

/// The experiments that are run: one for each kind of subject.
const EXPERIMENTS: &[&str] = &["silo-latency", "raft-grouping", "lock-latency", "remote-io"];

/// Runs one part, or all of them.
///
/// # Errors
/// With the first step that fails, or after a part that took longer than an hour.
pub fn run(only: Option<Part>) -> Result<()> {
    let mut summary = StepSummary::default();
    for part in Part::ALL
        .iter()
        .filter(|part| only.is_none_or(|only| only == **part))
    {
        let begun = std::time::Instant::now();
        match part {
            Part::Harnesses => harnesses(&mut summary)?,
            Part::Peers => all_peers(&mut summary)?,
            Part::Verbs => summary.step("verbs", || {
                peers::install(&[PeerGroup::Rdma])?;
                rdma::run(None)
            })?,
            Part::Benchmarks => summary.step("benchmarks", benchmarks)?,
        }
        let took = begun.elapsed();
        println!(
            "nightly: {part:?} took {:.1} minutes",
            took.as_secs_f64() / 60.0
        );
        if took > LONGEST {
            bail!("{part:?} took longer than {LONGEST:?}: split it");
        }
    }
    summary.print();
    Ok(())
}

fn harnesses(summary: &mut StepSummary) -> Result<()> {
    summary.step("peers are installed", || {
        peers::install(&[PeerGroup::Redis])
    })?;
    let harness = Harness::new(Amount::NIGHTLY);
    for (name, run) in ci::HARNESSES.iter().chain(ci::PLANTED_HARNESSES) {
        summary.step(name, || run(&harness))?;
    }
    summary.step("planted bugs: tests", checks::planted_in_tests)
}

/// Runs every test, with every peer: a test that lacks one fails.
fn all_peers(summary: &mut StepSummary) -> Result<()> {
    summary.step("peers are installed", || peers::install(PeerGroup::ALL))?;
    summary.step("sql in the binary", checks::sql)?;
    summary.step("tests", || {
        let mut command = build::cargo_test();
        command
            .env(peers::REQUIRED, "1")
            .env(AMOUNT, "nightly")
            .env_remove(peers::SELECTED);
        execute(&mut command)
    })
}

/// Experiments with their checks. What they measure is not judged: the machine may be busy.
fn benchmarks() -> Result<()> {
    let [binary, _] = build::bench()?;
    let results = build::target_dir()?.join("bench-results");
    for name in EXPERIMENTS {
        let mut experiment = Command::new(&binary);
        experiment.args(["run", name, "--quick", "--out"]);
        process::run(name, experiment.arg(&results))?;
    }
    let mut report = Command::new(&binary);
    process::run("the report", report.arg("report").arg(&results))
}
