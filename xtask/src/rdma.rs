//! Tests that meet real verbs: in a small machine that has an RDMA device in software.
//!
//! `cargo xtask peers` makes the machine (module `peers::rdma`). Here programs of this machine are
//! carried into it with the libraries that they need, run, and judged. It is emulated, so its times
//! say nothing; what it shows is that the code and the kernel's verbs understand each other.

pub(crate) mod archive;
mod machine;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::build::{self, cargo};
use crate::{peers, process};

pub(crate) use machine::{INIT, libraries, place};
pub use machine::{Job, MachineJobResult, has_machine, run_job};

/// Tests that are run in the machine.
struct Suite {
    package: &'static str,
    /// The program of its tests.
    program: &'static str,
    /// Those whose names contain this; the others need no device.
    only: &'static str,
    /// Megabytes of memory that the machine has.
    memory: u32,
}

const SUITES: &[Suite] = &[
    Suite {
        package: "kumiki-fabric",
        program: "it",
        only: "verbs",
        memory: 1024,
    },
    Suite {
        package: "kumiki-pages",
        program: "it",
        only: "verbs",
        memory: 1024,
    },
    Suite {
        package: "kumiki-operators",
        program: "it",
        only: "verbs",
        memory: 1024,
    },
    // Writes that clients coordinate, and clients that die.
    Suite {
        package: "kumiki",
        program: "client_writes",
        only: "verbs",
        memory: 2048,
    },
    // Processes of the real binary, which is carried into the machine as well.
    Suite {
        package: "kumiki-cli",
        program: "it",
        only: "read_atomic::verbs::",
        memory: 2048,
    },
];
/// The test that is no test: the second process of others.
const SECOND_PROCESS: &str = "plays_a_peer_if_told_to";
/// Told to the tests there: a missing device is a failure.
const REQUIRE: (&str, &str) = ("KUMIKI_REQUIRE_RDMA", "1");
/// An experiment whose points over a device are run in the machine.
struct Measured {
    experiment: &'static str,
    /// A part of the names of those points.
    only: &'static str,
    /// Values of the column of that number which must have been measured, each in this many rows.
    column: usize,
    transports: &'static [&'static str],
    rows: usize,
    /// The number of the first column that is measured.
    first: usize,
}

const EXPERIMENTS: &[Measured] = &[
    // Reader, share of reads, transport, and the figures.
    Measured {
        experiment: "ramp-transport",
        only: "verbs",
        column: 2,
        transports: &["verbs-send", "verbs-ring", "verbs-one-sided"],
        rows: 2,
        first: 3,
    },
    // Share of reads, log, transport, coordinator of writes, and the figures.
    Measured {
        experiment: "ramp-writes",
        only: "verbs",
        column: 2,
        transports: &["verbs-send", "verbs-ring"],
        rows: 4,
        first: 4,
    },
];
/// How long a suite may take, the machine's start included. It is emulated, and this machine may
/// be busy.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Runs the tests over verbs in the machine, all or those whose names contain `filter`, and prints
/// which ones ran; with all of them, also experiments. A filter that is an experiment's name runs that one
/// alone. Says so and does nothing where the machine is missing, unless peers are required.
///
/// # Errors
/// If a test fails, none ran, or the machine is missing and required.
pub fn run(filter: Option<&str>) -> Result<()> {
    if !has_machine() {
        let what = "there is no machine with an RDMA device; `cargo xtask peers` makes it";
        if peers::are_required() {
            bail!("{what}");
        }
        println!("rdma: skipped: {what}");
        return Ok(());
    }
    let is_chosen = |measured: &&Measured| filter.is_none_or(|name| measured.experiment == name);
    let experiments: Vec<&Measured> = EXPERIMENTS.iter().filter(is_chosen).collect();
    if filter.is_some() && !experiments.is_empty() {
        return run_experiments(&experiments);
    }
    let mut passed = 0;
    for suite in SUITES {
        passed += suite.run(filter)?;
    }
    if passed == 0 {
        bail!("no test ran in the machine");
    }
    if filter.is_none() {
        run_experiments(&experiments)?;
    }
    println!("rdma: {passed} tests ran over real verbs, and passed");
    Ok(())
}

/// Runs the experiments, as far as they need a device: for function. What they measure in an emulated machine
/// is no figure of anything, and their reports say so.
fn run_experiments(experiments: &[&Measured]) -> Result<()> {
    let [program, kumiki] = build::bench()?;
    for measured in experiments {
        let experiment = measured.experiment;
        println!("rdma: {experiment}: starting the machine");
        let mut job = Job::new(&program);
        (job.memory, job.patience) = (2048, PATIENCE);
        job.beside.push(kumiki.clone());
        let arguments = [
            "run",
            experiment,
            "--quick",
            "--seconds",
            "1",
            "--repetitions",
            "1",
            "--only",
            measured.only,
            "--out",
            "/tmp/results",
            "--log-level",
            "error",
        ];
        job.arguments.extend(arguments.map(str::to_owned));
        let ended = run_job(&job)?;
        if ended.status != 0 {
            let status = ended.status;
            bail!("{experiment}: failed in the machine (status {status})");
        }
        for transport in measured.transports {
            let rows = measured.rows(&ended.output, transport);
            if rows < measured.rows {
                let wanted = measured.rows;
                bail!(
                    "{experiment}: {rows} of {wanted} rows were measured over {transport} in the machine"
                );
            }
        }
    }
    Ok(())
}

impl Measured {
    /// Returns the number of rows of a report that were measured over a transport.
    fn rows(&self, report: &str, transport: &str) -> usize {
        let rows = report
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let was_measured = |row: &Vec<&str>| {
            let figure = row.get(self.first);
            row.get(self.column) == Some(&transport)
                && figure.is_some_and(|figure| figure.starts_with(|c: char| c.is_ascii_digit()))
        };
        rows.filter(was_measured).count()
    }
}

impl Suite {
    /// Runs it in the machine, and tells how many tests ran.
    fn run(&self, filter: Option<&str>) -> Result<usize> {
        let Suite {
            package,
            program,
            only,
            memory,
        } = self;
        let (program, placed) = build_test(package, program)?;
        println!("rdma: {package}: starting the machine");
        let mut job = Job::new(&program);
        (job.beside, job.placed) = (placed.clone(), placed);
        (job.memory, job.patience) = (*memory, PATIENCE);
        job.environment.push((REQUIRE.0.into(), REQUIRE.1.into()));
        // One device, and time that is emulated: tests would only wait for each other.
        job.arguments.push("--test-threads=1".into());
        // By itself it does nothing; tests start it as their second process.
        job.arguments
            .extend(["--skip".into(), SECOND_PROCESS.into()]);
        job.arguments.push(filter.unwrap_or(only).to_owned());
        let ended = run_job(&job)?;
        if ended.status != 0 {
            let status = ended.status;
            bail!("{package}: failed in the machine (status {status})");
        }
        let ran = passed_tests(&ended.output).len();
        if ran == 0 && filter.is_none() {
            bail!("{package}: no test ran in the machine");
        }
        Ok(ran)
    }
}

/// Returns the names of the tests that passed, of what Rust's test harness prints.
fn passed_tests(output: &str) -> Vec<&str> {
    let tests = output.lines().filter_map(|line| line.strip_prefix("test "));
    tests
        .filter_map(|line| line.strip_suffix(" ... ok"))
        .collect()
}

/// Builds a test and returns where its program lies, and where the package's programs do that it may
/// start. With the features that all packages want, as all tests are built: nothing is compiled twice.
fn build_test(package: &str, program: &str) -> Result<(PathBuf, Vec<PathBuf>)> {
    let mut command = cargo();
    command.current_dir(build::root()).stderr(Stdio::inherit());
    command.args([
        "test",
        "--no-run",
        "--workspace",
        "--test",
        program,
        "--bins",
    ]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let messages = process::output("cargo test --no-run", &mut command)?;
    let (mut built, mut programs) = (None, Vec::new());
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's message is not JSON")?;
        let Some(path) = message["executable"].as_str().map(PathBuf::from) else {
            continue;
        };
        let target = &message["target"];
        let id = message["package_id"].as_str().unwrap_or_default();
        if build::package_of(id) != package {
            continue;
        }
        if target["kind"][0] == "bin" {
            programs.push(path);
        } else if target["name"] == program && target["kind"][0] == "test" {
            built = Some(path);
        }
    }
    let built = built.with_context(|| format!("cargo built no tests of {package}"))?;
    Ok((built, programs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_skipped_was_not_measured() {
        let report = "reader  reads  transport   throughput\n\
                      client  95     verbs-send               skipped: it is none\n\
                      client  95     verbs-ring  120 (100-130)\n\
                      client  100    verbs-ring  120 (100-130)\n";
        let of = |transport| EXPERIMENTS[0].rows(report, transport);
        assert_eq!(["verbs-ring", "verbs-send", "tcp"].map(of), [2, 0, 0]);
        let report = "0  memory  verbs-ring  server  12.3k\n\
                      0  memory  verbs-ring  client  skipped: it is none\n";
        assert_eq!(EXPERIMENTS[1].rows(report, "verbs-ring"), 1);
    }

    #[test]
    fn tests_that_passed_are_counted() {
        let output = "machine\n\nrunning 3 tests\ntest a::one ... ok\ntest two ... FAILED\n\
                      test three ... ok\ntest result: FAILED. 2 passed; 1 failed\n";
        assert_eq!(passed_tests(output), ["a::one", "three"]);
    }
}
