//! `cargo xtask ci`: everything that must hold before a change is taken.
//!
//! Steps run in the order in which a mistake is found fastest, and so that all processors have work: what later steps
//! need is built while earlier ones wait. A summary ends the output. The first failure ends the run.
//!
//! | where | which steps run |
//! |---|---|
//! | with `CI=true` in the environment | all of them; the peers of [`PEERS`] are installed meanwhile |
//! | otherwise | those whose inputs have changed since they last passed (`ci/records.rs`); the peers that are installed are used |
//!
//! `cargo xtask ci --quick` is [`quick`], `cargo xtask nightly` is [`nightly`](crate::nightly).

mod background;
pub(crate) mod checks;
pub mod harness;
pub mod quick;
mod records;
pub(crate) mod step;
mod tests;

use std::env;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use anyhow::{Result, bail};

use crate::peers::{self, PeerGroup};
use crate::workspace::Workspace;
use crate::{arch, build};

use background::BackgroundBuilds;
use harness::{Amount, Harness};
use records::Records;
use step::{StepInputs, StepSummary, execute};

/// The peers that CI tests with; `cargo xtask nightly` has all of them.
pub const PEERS: &[PeerGroup] = &[
    PeerGroup::Redis,
    PeerGroup::Python,
    PeerGroup::Node,
    PeerGroup::Go,
    PeerGroup::Postgres,
    PeerGroup::Etcd,
];

type Run = fn(&Harness) -> Result<()>;

/// A step: its name, what it reads, and what it does.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    reads: StepInputs,
    run: Run,
}

/// What harnesses are made of, and what they judge.
const JUDGED: StepInputs = StepInputs::CratesAndPeers(&["cli", "torture", "xtask"]);
const PLANTED: StepInputs =
    StepInputs::Crates(&["journal", "engine", "store", "cluster", "values"]);
const PARSERS: StepInputs = StepInputs::Crates(&["torture"]);
const SQL: StepInputs = StepInputs::CratesAndPeers(&["cli", "sql"]);

#[rustfmt::skip] // One line for each step.
const FIRST: &[Step] = &[
    Step { name: "format", reads: StepInputs::Any, run: |_| checks::format() },
    Step { name: "architecture", reads: StepInputs::Any, run: |_| arch::check() },
];

#[rustfmt::skip] // One line for each step.
const LAST: &[Step] = &[
    Step { name: "lints and documentation", reads: StepInputs::Tree, run: |_| checks::lints() },
    Step { name: "planted bugs: tests", reads: PLANTED, run: |_| checks::planted_in_tests() },
    Step { name: "sql in the binary", reads: SQL, run: |_| checks::sql() },
];

/// The steps that start harnesses with the programs as they are.
#[rustfmt::skip] // One line for each step.
pub(crate) const HARNESSES: &[(&str, Run)] = &[
    ("fuzz", Harness::fuzz),
    ("simulation", Harness::simulation),
    ("smoke", Harness::smoke),
    ("Redis's tests", Harness::redis_suite),
    ("crash on the real disk", Harness::crash_on_the_real_disk),
    ("crash on the forgetful disk", Harness::crash_on_the_forgetful_disk),
    ("crash during checkpoints", Harness::crash_during_checkpoints),
    ("crash of cluster nodes", Harness::crash_of_cluster_nodes),
    ("fail-over", Harness::fail_over),
    ("chaos", Harness::chaos),
    ("trace", Harness::trace),
];

/// The steps that start harnesses with programs that can have bugs.
#[rustfmt::skip] // One line for each step.
pub(crate) const PLANTED_HARNESSES: &[(&str, Run)] = &[
    ("planted bugs: none by default", Harness::planted_nowhere_by_default),
    ("planted bugs: simulation", Harness::planted_in_simulations),
    ("planted bugs: crash", Harness::planted_in_crashes),
    ("planted bugs: crash of cluster nodes", Harness::planted_in_cluster_crashes),
    ("planted bugs: chaos", Harness::planted_in_chaos),
    ("planted bugs: trace", Harness::planted_in_traces),
];

/// When a step runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before anything is built to be executed.
    Checks,
    /// With the harnesses and the product. In CI the tests are built meanwhile: these steps mostly wait, for servers,
    /// disks and time.
    Harnesses,
    /// After the tests. In CI everything else is built while they run.
    Last,
}

/// Returns all steps but the tests, which run before those of [`Phase::Last`].
fn steps() -> impl Iterator<Item = (Phase, Step)> {
    let harness = |(name, run): &(&'static str, Run)| {
        let reads = if NEEDS_NO_SERVER.contains(name) {
            PARSERS
        } else {
            JUDGED
        };
        Step {
            name,
            reads,
            run: *run,
        }
    };
    let checks = FIRST.iter().copied().map(|step| (Phase::Checks, step));
    let harnesses = HARNESSES.iter().chain(PLANTED_HARNESSES).map(harness);
    let last = LAST.iter().copied();
    checks
        .chain(harnesses.map(|step| (Phase::Harnesses, step)))
        .chain(last.map(|step| (Phase::Last, step)))
}

/// Harnesses that run in their own process alone.
const NEEDS_NO_SERVER: &[&str] = &["fuzz", "simulation", "planted bugs: simulation"];

/// What is asked of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only the steps whose names contain this.
    pub only: Option<String>,
    /// All steps, also those that have passed before.
    pub all: bool,
}

/// Runs the steps.
///
/// # Errors
/// With the first step that fails, or if no name contains what is asked for.
pub fn run(options: &Options) -> Result<()> {
    let ci = is_ci();
    build::lint()?;
    let harness = Harness::new(Amount::CI);
    let workspace = Workspace::read()?;
    let records = Records::open(&workspace)?;
    let is_skipped = |key: &str| !ci && !options.all && records.has(key);
    let is_wanted = |name: &str| {
        let only = options.only.as_deref();
        only.is_none_or(|only| name.contains(only))
    };
    let mut run = StepSummary::default();
    let mut installing = ci.then(|| thread::spawn(|| peers::install(PEERS)));
    if ci {
        println!("ci: peers: {}", peers::names(PEERS));
    }
    let is_whole = ci && options.only.is_none();
    let mut programs = is_whole.then(|| BackgroundBuilds::start(vec![build::judged_like_tests()]));
    let mut building = None;
    let mut has_harnesses = false;
    let mut tests_left = is_wanted("tests");
    for (phase, step) in steps().filter(|(_, step)| is_wanted(step.name)) {
        let key = records.key(step.name, &step.reads)?;
        if key.as_deref().is_some_and(is_skipped) {
            run.skipped.push(step.name.to_owned());
            continue;
        }
        if phase == Phase::Harnesses && !has_harnesses {
            run.step("programs are built", || {
                programs.take().map_or(Ok(()), BackgroundBuilds::finish)?;
                harness.honest().map(drop)
            })?;
            building = ci.then(|| BackgroundBuilds::start(vec![test_build()]));
            has_harnesses = true;
        }
        if phase == Phase::Last && std::mem::take(&mut tests_left) {
            join(installing.take())?;
            run_tests(building.take(), &workspace, &records, options, &mut run)?;
        }
        if matches!(step.reads, StepInputs::CratesAndPeers(_)) {
            join(installing.take())?;
        }
        run.step(step.name, || (step.run)(&harness))?;
        records.passed(key.as_deref())?;
    }
    if tests_left {
        join(installing.take())?;
        run_tests(building.take(), &workspace, &records, options, &mut run)?;
    }
    join(installing)?;
    if run.is_empty() {
        let names: Vec<_> = steps().map(|(_, step)| step.name).collect();
        bail!(
            "no step has this name; there are: {}, tests",
            names.join(", ")
        );
    }
    run.print();
    Ok(())
}

/// Returns `true` on a machine that runs every step: the environment has `CI=true`.
#[must_use]
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

/// Runs the tests: in CI all of them, as `cargo test --workspace` does; elsewhere those without a record. In CI, returns
/// when the programs of later steps are built as well.
fn run_tests(
    building: Option<BackgroundBuilds>,
    workspace: &Workspace,
    records: &Records<'_>,
    options: &Options,
    run: &mut StepSummary,
) -> Result<()> {
    if !is_ci() {
        return tests::run(workspace, records, options.all, run);
    }
    run.step("tests are built", || match building {
        Some(building) => building.finish(),
        None => execute(&mut test_build()),
    })?;
    let (begun, has_begun) = mpsc::channel();
    let build_others = move || {
        let others = BackgroundBuilds::start(checks::lint_builds().into());
        // If the tests have failed, the builds are stopped.
        let _ = begun.send(others);
    };
    let mut command = build::cargo_test();
    command.env(peers::SELECTED, peers::names(PEERS));
    run.step("tests", || tests::run_all(command, build_others))?;
    if let Ok(others) = has_begun.recv() {
        run.step("the other programs are built", || others.finish())?;
    }
    Ok(())
}

fn test_build() -> Command {
    let mut command = build::cargo_test();
    command.arg("--no-run");
    command
}

/// Waits for the installation of peers.
fn join(installing: Option<thread::JoinHandle<Result<()>>>) -> Result<()> {
    let Some(installing) = installing else {
        return Ok(());
    };
    let installed = installing.join();
    installed.unwrap_or_else(|_| bail!("the installation of peers has panicked"))
}
