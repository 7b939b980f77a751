//! Everything that must hold before a change is taken, in one command.
//!
//! Steps run in the order in which a mistake is found fastest; the tests come last, so that their
//! lines end the output, followed by a summary. The first failure ends the run.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arch;
use crate::build::{self, Build, cargo};
use crate::chaos;
use crate::crash::verdict::Verdict;
use crate::crash::{self, Disk};
use crate::failover;
use crate::fuzz;
use crate::peers;
use crate::process;
use crate::rdma;
use crate::server::Program;
use crate::sim::{self, Bug, Protocol};
use crate::smoke;
use crate::trace;

/// How long each parser is fuzzed.
const FUZZ: Duration = Duration::from_secs(5);
/// Crash rounds on each disk.
const ROUNDS: u64 = 100;
/// Crash rounds with checkpoints; the next number is their longest time.
const CHECKPOINT_ROUNDS: u64 = 200;
const CHECKPOINT_TIME: Duration = Duration::from_secs(180);
/// Crash rounds over a cluster of three nodes, without checkpoints and with them.
const NODE_ROUNDS: u64 = 25;
/// Leaders of a replicated partition that are killed, and that are stopped.
const KILLS: usize = 5;
const STOPS: usize = 2;
/// How long a replicated partition is hurt.
const CHAOS: Duration = Duration::from_secs(75);
/// Seeds of the simulation, and seeds of which one must show a planted bug.
const SEEDS: u64 = 1000;
const PLANTED_SEEDS: u64 = 400;
/// Crash rounds in which the planted bug must show; the first loss ends them.
const PLANTED_ROUNDS: u64 = 100;

/// A step: its name and what it does.
type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("format", || {
        execute(cargo().args(["fmt", "--all", "--check"]))
    }),
    ("architecture", arch::check),
    ("clippy", || {
        clippy(&[])?;
        // With all packages, so that nothing is checked for the sake of other features.
        clippy(&["--features", "kumiki/sql"])
    }),
    ("docs", || {
        let mut command = cargo();
        command
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings");
        execute(&mut command)
    }),
    ("fuzz", || fuzz::run_all(FUZZ)),
    ("loom: journal", || loom("kumiki-journal", "loom_handover")),
    ("loom: engine", || loom("kumiki-engine", "loom_word")),
    ("loom: fabric", || loom("kumiki-fabric", "loom_ring")),
    ("loom: slots", || loom("kumiki-cluster", "slots_loom")),
    ("verbs", || rdma::run(None)),
    ("smoke", smoke::run),
    ("crash on the real disk", || {
        crash::require_clean(&crash(Disk::Real, Build::Honest, ROUNDS, true)?)
    }),
    ("crash on the forgetful disk", || {
        crash::require_clean(&crash(Disk::Forgetful, Build::Honest, ROUNDS, false)?)
    }),
    ("crash during checkpoints", crash_during_checkpoints),
    ("crash of cluster nodes", || {
        let verdict = crash_nodes(Build::Honest, NODE_ROUNDS, false)?;
        let with_checkpoints = crash_nodes(Build::Honest, NODE_ROUNDS, true)?;
        crash::require_clean(&verdict)?;
        crash::require_clean(&with_checkpoints)
    }),
    ("fail-over", fail_over),
    ("chaos", chaos),
    ("simulation", || {
        let mut tests = cargo();
        tests.args(["test", "--workspace", "--test", "simulation"]);
        let packages = ["kumiki-cluster", "kumiki-locks", "kumiki-replica"];
        for package in packages {
            tests.args(["--features", &format!("{package}/simulation")]);
        }
        execute(&mut tests)?;
        sim::run(Protocol::Locks, SEEDS, None, None)?;
        sim::run(Protocol::TwoPhaseCommit, SEEDS, None, None)?;
        sim::run(Protocol::Replica, SEEDS, None, None)?;
        sim::run(Protocol::Ramp, SEEDS, None, None)
    }),
    ("simulation with the planted bugs", || {
        let find = |bug: Bug| sim::run(bug.protocol(), PLANTED_SEEDS, None, Some(bug));
        Bug::ALL.iter().copied().try_for_each(find)
    }),
    ("benchmarks", benchmarks),
    ("trace", || trace::require_clean(&trace(Build::Honest)?)),
    ("crash with the planted bug", || {
        crash::require_loss(&crash(
            Disk::Forgetful,
            Build::PlantedEarlyReply,
            PLANTED_ROUNDS,
            false,
        )?)
    }),
    ("crash of cluster nodes with the planted bug", || {
        let verdict = crash_nodes(Build::PlantedEarlyDecision, PLANTED_ROUNDS, false)?;
        crash::nodes::require_found(&verdict)
    }),
    ("chaos with the planted bug", chaos_planted),
    ("trace with the planted bug", || {
        trace::require_early(&trace(Build::PlantedEarlyReply)?)
    }),
    ("log with the planted bug", || {
        planted("kumiki-journal/planted-early-reply", "crash")
    }),
    ("holds with the planted bug", || {
        planted("kumiki-engine/planted-ignored-holds", "ignored_holds")
    }),
    ("histories with the planted bug", || {
        planted("kumiki-store/planted-no-validation", "histories")
    }),
    ("sql in the binary", || {
        // With all packages, so that nothing is compiled for the sake of other features.
        let test = "test --workspace --features kumiki/sql --test sql";
        execute(cargo().args(test.split(' ')))
    }),
    ("tests", || execute(cargo().args(["test", "--workspace"]))),
];

/// Runs all steps, or those whose names contain `only`.
///
/// # Errors
/// With the first step that fails, or if there is none.
pub fn run(only: Option<&str>) -> Result<()> {
    let started = Instant::now();
    let mut times = Vec::new();
    let is_wanted = |(name, _): &&Step| only.is_none_or(|only| name.contains(only));
    for (name, step) in STEPS.iter().filter(is_wanted) {
        println!("\n==> {name}");
        let begun = Instant::now();
        step().with_context(|| format!("ci stopped at the step '{name}'"))?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("<== {name}: passed in {seconds:.1} s");
        times.push((name, seconds));
    }
    if times.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|(name, _)| *name).collect();
        bail!("no step is called so; there are: {}", names.join(", "));
    }
    println!("\nci: all {} steps passed", times.len());
    for (name, seconds) in times {
        println!("  {seconds:>7.1} s  {name}");
    }
    println!("  {:>7.1} s  together", started.elapsed().as_secs_f64());
    Ok(())
}

fn execute(command: &mut Command) -> Result<()> {
    let name = format!("{:?}", command.get_args().next().unwrap_or_default());
    process::run(&name, command.current_dir(build::root()))
}

/// Checks all packages, with these arguments besides.
fn clippy(features: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets"]);
    command.args(features).args(["--", "-D", "warnings"]);
    execute(&mut command)
}

/// A test that must find the bug which a feature of a package plants. It is built, as all tests are, with
/// the features that all packages want: nothing is compiled twice for it.
fn planted(feature: &str, test: &str) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--test", test]);
    build::planted(&mut command, feature)?;
    execute(&mut command)
}

/// Loom explores the interleavings of a small model; it replaces the atomics of the whole build,
/// which therefore lies in a directory of its own.
fn loom(package: &str, test: &str) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--release", "--package", package, "--test", test]);
    command
        .arg("--target-dir")
        .arg(build::target_dir()?.join("loom"));
    // Models are small: what links them for longer gains nothing.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    execute(command.env("RUSTFLAGS", "--cfg loom"))
}

/// One experiment, with its checks, and its report. What it measures is not judged: the machine
/// may be busy.
fn benchmarks() -> Result<()> {
    let binary = build::kumiki(Build::Honest)?;
    let results = build::target_dir()?.join("bench-results");
    let mut experiment = Command::new(&binary);
    experiment.args(["bench", "run", "silo-latency", "--quick", "--out"]);
    execute(experiment.arg(&results))?;
    execute(
        Command::new(&binary)
            .args(["bench", "report"])
            .arg(&results),
    )
}

fn crash_during_checkpoints() -> Result<()> {
    let begun = Instant::now();
    let verdict = crash(Disk::Forgetful, Build::Honest, CHECKPOINT_ROUNDS, true)?;
    crash::require_clean(&verdict)?;
    let took = begun.elapsed();
    if took > CHECKPOINT_TIME {
        bail!("{CHECKPOINT_ROUNDS} rounds took {took:?}, longer than {CHECKPOINT_TIME:?}");
    }
    Ok(())
}

fn crash(disk: Disk, build: Build, rounds: u64, checkpoints: bool) -> Result<Verdict> {
    let keep = build == Build::Honest;
    let options = crash::Options {
        rounds,
        seed: fastrand::u64(..),
        connections: 4,
        checkpoints,
        keep,
        server: vec![],
    };
    crash::run(&kumiki(build)?.with(disk.arguments()), &options)
}

fn crash_nodes(build: Build, rounds: u64, checkpoints: bool) -> Result<Verdict> {
    let options = crash::nodes::Options {
        rounds,
        seed: fastrand::u64(..),
        nodes: 3,
        connections: 4,
        checkpoints,
        keep: build == Build::Honest,
    };
    let program = kumiki(build)?.with(Disk::Forgetful.arguments());
    crash::nodes::run(&program, &options)
}

/// What it measures is not judged: the machine may be busy. Nothing may be missing, and every node
/// comes back.
fn fail_over() -> Result<()> {
    let options = failover::Options {
        nodes: 3,
        election: Duration::from_secs(1),
        kills: KILLS,
        stops: STOPS,
        seed: fastrand::u64(..),
        out: None,
    };
    failover::run(&kumiki(Build::Honest)?, &options)
}

fn chaos() -> Result<()> {
    play(None, chaos::require_clean)
}

/// Chaos runs find the other bug as well, and the simulation finds both; a build of each takes longer
/// than finding it.
fn chaos_planted() -> Result<()> {
    play(Some(chaos::Bug::StaleLease), chaos::require_found)
}

fn play(planted: Option<chaos::Bug>, judge: fn(&chaos::Verdict) -> Result<()>) -> Result<()> {
    let options = chaos::Options {
        nodes: 3,
        seed: fastrand::u64(..),
        rounds: planted.map_or(u64::MAX, chaos::Bug::rounds),
        time: planted.map_or(CHAOS, |_| Duration::MAX),
        history: None,
        planted,
    };
    if !chaos::is_permitted(options.nodes, peers::are_required())? {
        return Ok(());
    }
    let build = planted.map_or(Build::Honest, chaos::Bug::build);
    judge(&chaos::run(&kumiki(build)?, &options)?)
}

fn trace(build: Build) -> Result<Vec<String>> {
    trace::run(&kumiki(build)?)
}

fn kumiki(build: Build) -> Result<Program> {
    Ok(Program::Kumiki {
        binary: build::kumiki(build)?,
        args: vec![],
    })
}
