//! `cargo xtask ci`: everything that must hold before a change is taken.
//!
//! Steps run in the order in which a mistake is found fastest. The tests come last, so that their lines end
//! the output, followed by a summary. The first failure ends the run.
//!
//! | where | which steps run |
//! |---|---|
//! | with `CI=true` in the environment | all of them; the peers of [`PEERS`] are installed meanwhile |
//! | otherwise | those whose inputs have changed since they last passed (`ci/records.rs`); the peers that are installed are used |
//!
//! `cargo xtask ci --quick` is [`quick`], `cargo xtask nightly` is [`nightly`](crate::nightly).

pub mod harness;
pub mod quick;
mod records;
mod tests;

use std::env;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::build::{self, cargo};
use crate::peers::{self, Group};
use crate::workspace::Workspace;
use crate::{arch, process};

use harness::{Amount, Harness};
use records::Records;

/// The peers that CI tests with; `cargo xtask nightly` has all of them.
pub const PEERS: &[Group] = &[
    Group::Redis,
    Group::Python,
    Group::Node,
    Group::Postgres,
    Group::Etcd,
];

/// What a step reads. A change to anything else cannot change its result.
#[derive(Clone, Copy)]
enum Reads {
    /// So much, or so little, that it always runs.
    Any,
    /// The whole working tree.
    Tree,
    /// These crates, and those that they use.
    Crates(&'static [&'static str]),
    /// The same, and the peers that are installed.
    CratesAndPeers(&'static [&'static str]),
}

type Run = fn(&Harness) -> Result<()>;

/// A step: its name, what it reads, and what it does.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    reads: Reads,
    run: Run,
}

/// What harnesses are made of, and what they judge.
const JUDGED: Reads = Reads::CratesAndPeers(&["cli", "torture", "xtask"]);
const LOOM: Reads = Reads::Crates(&["journal", "engine", "fabric", "cluster"]);
const PLANTED: Reads = Reads::Crates(&["journal", "engine", "store"]);
const PARSERS: Reads = Reads::Crates(&["torture"]);
const SQL: Reads = Reads::CratesAndPeers(&["cli", "sql"]);

#[rustfmt::skip] // One line for each step.
const FIRST: &[Step] = &[
    Step { name: "format", reads: Reads::Any, run: |_| format() },
    Step { name: "architecture", reads: Reads::Any, run: |_| arch::check() },
    Step { name: "clippy", reads: Reads::Tree, run: |_| clippy() },
    Step { name: "docs", reads: Reads::Tree, run: |_| docs() },
    Step { name: "loom", reads: LOOM, run: |_| loom() },
];

#[rustfmt::skip] // One line for each step.
const LAST: &[Step] = &[
    Step { name: "planted bugs: tests", reads: PLANTED, run: |_| planted_in_tests() },
    Step { name: "sql in the binary", reads: SQL, run: |_| sql() },
];

/// The steps that start harnesses.
#[rustfmt::skip] // One line for each step.
pub(crate) const HARNESSES: &[(&str, Run)] = &[
    ("fuzz", Harness::fuzz),
    ("simulation", Harness::simulation),
    ("smoke", Harness::smoke),
    ("crash on the real disk", Harness::crash_on_the_real_disk),
    ("crash on the forgetful disk", Harness::crash_on_the_forgetful_disk),
    ("crash during checkpoints", Harness::crash_during_checkpoints),
    ("crash of cluster nodes", Harness::crash_of_cluster_nodes),
    ("fail-over", Harness::fail_over),
    ("chaos", Harness::chaos),
    ("trace", Harness::trace),
    ("planted bugs: none by default", Harness::planted_nowhere_by_default),
    ("planted bugs: simulation", Harness::planted_in_simulations),
    ("planted bugs: crash", Harness::planted_in_crashes),
    ("planted bugs: crash of cluster nodes", Harness::planted_in_cluster_crashes),
    ("planted bugs: chaos", Harness::planted_in_chaos),
    ("planted bugs: trace", Harness::planted_in_traces),
];

/// All steps but the tests, which come last.
fn steps() -> impl Iterator<Item = Step> {
    let harnesses = HARNESSES.iter().map(|(name, run)| {
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
    });
    FIRST
        .iter()
        .copied()
        .chain(harnesses)
        .chain(LAST.iter().copied())
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
    let harness = Harness::new(Amount::CI);
    let workspace = Workspace::read()?;
    let records = Records::open(&workspace)?;
    let is_skipped = |key: &str| !ci && !options.all && records.has(key);
    let is_wanted = |name: &str| {
        let only = options.only.as_deref();
        only.is_none_or(|only| name.contains(only))
    };
    let mut run = Summary::default();
    let mut installing = ci.then(|| thread::spawn(|| peers::install(PEERS)));
    if ci {
        println!("ci: peers: {}", peers::names(PEERS));
    }
    for step in steps().filter(|step| is_wanted(step.name)) {
        let key = records.key(step.name, &step.reads)?;
        if key.as_deref().is_some_and(is_skipped) {
            run.skipped.push(step.name.to_owned());
            continue;
        }
        if matches!(step.reads, Reads::CratesAndPeers(_)) {
            join(installing.take())?;
        }
        run.step(step.name, || (step.run)(&harness))?;
        records.passed(key.as_deref())?;
    }
    if is_wanted("tests") {
        join(installing.take())?;
        if ci {
            run.step("tests", || {
                let mut command = build::cargo_test();
                execute(command.env(peers::SELECTED, peers::names(PEERS)))
            })?;
        } else {
            tests::run(&workspace, &records, options.all, &mut run)?;
        }
    }
    join(installing)?;
    run.print()
}

/// Returns `true` on a machine that runs every step: the environment has `CI=true`.
#[must_use]
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

/// Waits for the installation of peers.
fn join(installing: Option<thread::JoinHandle<Result<()>>>) -> Result<()> {
    let Some(installing) = installing else {
        return Ok(());
    };
    let installed = installing.join();
    installed.unwrap_or_else(|_| bail!("the installation of peers has panicked"))
}

/// What has been done, and how long it took.
#[derive(Default)]
pub(crate) struct Summary {
    passed: Vec<(String, f64)>,
    skipped: Vec<String>,
}

impl Summary {
    /// Runs a step, with lines before and after it.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n==> {name}");
        let begun = Instant::now();
        step().with_context(|| format!("stopped at the step '{name}'"))?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("<== {name}: passed in {seconds:.1} s");
        self.passed.push((name.to_owned(), seconds));
        Ok(())
    }

    /// Prints what passed, and what was left out.
    ///
    /// # Errors
    /// If there was nothing to do.
    pub(crate) fn print(&self) -> Result<()> {
        if self.passed.is_empty() && self.skipped.is_empty() {
            let names: Vec<_> = steps().map(|step| step.name).collect();
            bail!(
                "no step has this name; there are: {}, tests",
                names.join(", ")
            );
        }
        if !self.skipped.is_empty() {
            println!("\nleft out, because nothing that they read has changed since they passed:");
            self.skipped.iter().for_each(|name| println!("  {name}"));
        }
        println!("\n{} steps passed", self.passed.len());
        for (name, seconds) in &self.passed {
            println!("  {seconds:>7.1} s  {name}");
        }
        let sum: f64 = self.passed.iter().map(|(_, seconds)| seconds).sum();
        println!("  {sum:>7.1} s  together");
        Ok(())
    }
}

pub(crate) fn execute(command: &mut Command) -> Result<()> {
    let name = format!("{:?}", command.get_args().next().unwrap_or_default());
    process::run(&name, command.current_dir(build::root()))
}

fn format() -> Result<()> {
    execute(cargo().args(["fmt", "--all", "--check"]))
}

/// Lints all packages, also with what only the feature `sql` compiles.
fn clippy() -> Result<()> {
    lint(&[])?;
    // With all packages, so that nothing is checked for the sake of other features.
    lint(&["--features", "kumiki-cli/sql"])
}

fn lint(features: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets"]);
    command.args(features).args(["--", "-D", "warnings"]);
    execute(&mut command)
}

fn docs() -> Result<()> {
    let mut command = cargo();
    command
        .args(["doc", "--workspace", "--no-deps"])
        .env("RUSTDOCFLAGS", "-D warnings");
    execute(&mut command)
}

/// The shell and the servers of SQL, which are in the binary with the feature `sql` alone.
pub(crate) fn sql() -> Result<()> {
    // With all packages, so that nothing is compiled for the sake of other features.
    let line = "--features kumiki-cli/sql --test it -- sql::";
    execute(build::cargo_test().args(line.split(' ')))
}

/// Tests that must find a bug, each with the bug chosen that it finds.
const PLANTED_TESTS: &[(&str, &str, &str)] = &[
    ("early-reply", "kumiki-journal", "crash::one_logger"),
    ("ignored-holds", "kumiki-engine", "ignored_holds::"),
    ("no-validation", "kumiki-store", "histories::"),
];

/// Each test runs with its bug chosen, and must find it.
pub(crate) fn planted_in_tests() -> Result<()> {
    for (bug, package, filter) in PLANTED_TESTS {
        let mut command = cargo();
        command.args(["test", "--profile", build::PROFILE]);
        command.args(["--package", package, "--test", "it"]);
        build::planted(&mut command)?;
        command.args(["--", filter]).env(build::PLANTED, bug);
        execute(&mut command)?;
    }
    Ok(())
}

/// Models whose interleavings loom explores.
const MODELS: &[(&str, &str)] = &[
    ("kumiki-journal", "loom_handover"),
    ("kumiki-engine", "loom_word"),
    ("kumiki-fabric", "loom_ring"),
    ("kumiki-cluster", "slots_loom"),
];

/// Loom replaces the atomics of the whole build, which therefore lies in a directory of its own.
fn loom() -> Result<()> {
    let place = build::target_dir()?.join("loom");
    for (package, test) in MODELS {
        let mut command = cargo();
        command.args(["test", "--profile", build::PROFILE]);
        command.args(["--package", package, "--test", test]);
        command.arg("--target-dir").arg(&place);
        command.env_remove(build::BUILD_DIR);
        execute(command.env("RUSTFLAGS", "--cfg loom"))?;
    }
    Ok(())
}
