//! The tests of the crates that have changed, or that use one that has: on a developer's machine.
//!
//! All test programs are built as `cargo test --workspace` builds them, so that nothing is compiled twice,
//! and each crate's programs are a step.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;

use super::records::Records;
use super::step::{StepInputs, StepSummary, execute};
use crate::build;
use crate::process;
use crate::workspace::{Crate, Workspace};

/// Runs a `cargo test`, and calls `begun` when everything is compiled: cargo then lets others build.
pub(super) fn run_all(mut command: Command, begun: impl FnOnce() + Send + 'static) -> Result<()> {
    let (lines, errors) = io::pipe()?;
    command.stderr(errors);
    thread::spawn(move || {
        let mut begun = Some(begun);
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            eprintln!("{line}");
            if line.trim_start().starts_with("Running")
                && let Some(begun) = begun.take()
            {
                begun();
            }
        }
    });
    execute(&mut command)
}

/// Builds the tests and runs those of the crates that have no record.
pub(super) fn run(
    workspace: &Workspace,
    records: &Records<'_>,
    all: bool,
    summary: &mut StepSummary,
) -> Result<()> {
    let mut left = Vec::new();
    for one in workspace.crates() {
        let name = format!("tests of {}", one.name);
        let names: &'static [&'static str] = vec![one.name.clone().leak() as &str].leak();
        let key = records.key(&name, &StepInputs::CratesAndPeers(names))?;
        if !all && key.as_deref().is_some_and(|key| records.has(key)) {
            summary.skipped.push(name);
        } else {
            left.push((name, one, key));
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let mut programs = BTreeMap::new();
    summary.step("tests are built", || {
        programs = build_programs(build::cargo_test().arg("--tests"))?;
        Ok(())
    })?;
    for (name, one, key) in left {
        let own = programs.get(&one.package).map_or(&[][..], Vec::as_slice);
        summary.step(&name, || {
            own.iter().try_for_each(|program| run_program(one, program))
        })?;
        records.passed(key.as_deref())?;
    }
    let name = "tests in the documentation";
    let key = records.key(name, &StepInputs::Tree)?;
    if !all && key.as_deref().is_some_and(|key| records.has(key)) {
        summary.skipped.push(name.to_owned());
        return Ok(());
    }
    summary.step(name, || execute(build::cargo_test().arg("--doc")))?;
    records.passed(key.as_deref())
}

/// The target of the tests within a library.
pub(super) const LIBRARY: &str = "lib";

/// A test program.
pub(super) struct TestProgram {
    /// The target that it is of: [`LIBRARY`], or the name of a program.
    pub(super) target: String,
    pub(super) path: PathBuf,
}

/// Builds the programs of a `cargo test`, and returns them by package.
pub(super) fn build_programs(command: &mut Command) -> Result<BTreeMap<String, Vec<TestProgram>>> {
    command.current_dir(build::root()).stderr(Stdio::inherit());
    command.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let messages = process::output("cargo test --no-run", command)?;
    let mut programs: BTreeMap<String, Vec<TestProgram>> = BTreeMap::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's message is not JSON")?;
        let is_test = message["profile"]["test"] == true;
        let id = message["package_id"].as_str().unwrap_or_default();
        if let Some(path) = message["executable"].as_str().filter(|_| is_test) {
            let of = programs
                .entry(build::package_of(id).to_owned())
                .or_default();
            let target = &message["target"];
            let target = match target["kind"][0].as_str() {
                Some(LIBRARY) => LIBRARY,
                _ => target["name"].as_str().unwrap_or_default(),
            };
            of.push(TestProgram {
                target: target.to_owned(),
                path: PathBuf::from(path),
            });
        }
    }
    Ok(programs)
}

/// Runs a test program as cargo would.
pub(super) fn run_program(one: &Crate, program: &TestProgram) -> Result<()> {
    run_command(one, Command::new(&program.path))
}

/// Runs a command that starts a test program of a crate, as cargo would.
pub(super) fn run_command(one: &Crate, mut command: Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    println!("     Running {program}");
    command.current_dir(&one.dir);
    command.env("CARGO_MANIFEST_DIR", &one.dir);
    build::run_more_tests(&mut command);
    process::run(&program, &mut command)
}
