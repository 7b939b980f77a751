//! The checks that are commands of cargo.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::step::execute;
use super::tests;
use crate::build::{self, cargo};
use crate::workspace::Workspace;

/// Checks that all packages are formatted.
pub(super) fn format() -> Result<()> {
    execute(cargo().args(["fmt", "--all", "--check"]))
}

/// Lints all packages, and reads their documentation, also with what only the feature `sql` compiles. What was built
/// before has been linted ([`build::lint`]).
pub(super) fn lints() -> Result<()> {
    lint_builds().iter_mut().try_for_each(execute)
}

/// Returns the builds of everything that is linted.
pub(super) fn lint_builds() -> [Command; 2] {
    // With all packages, so that nothing is compiled for the sake of other features.
    [&[][..], &["--features", "kumiki-cli/sql"]].map(|features| {
        let mut command = build::workspace_cargo();
        command.args(["build", "--workspace", "--all-targets"]);
        command.args(features);
        command
    })
}

/// Lints all packages without building them.
pub(super) fn clippy() -> Result<()> {
    let line = "clippy --workspace --all-targets -- -D warnings";
    execute(cargo().args(line.split(' ')))
}

/// Tests the shell and the servers of SQL, which are in the binary with the feature `sql` alone.
pub(crate) fn sql() -> Result<()> {
    // With all packages, so that nothing is compiled for the sake of other features.
    let line = "--features kumiki-cli/sql --test it -- sql::";
    execute(build::cargo_test().args(line.split(' ')))
}

/// Tests that must find a bug, each with the bug chosen that it finds: the bug, the package, the test program, and
/// the name.
const PLANTED_TESTS: &[(&str, &str, &str, &str)] = &[
    (
        "early-reply",
        "kumiki-journal",
        "--test=it",
        "crash::one_logger",
    ),
    (
        "ignored-holds",
        "kumiki-engine",
        "--test=it",
        "ignored_holds::",
    ),
    ("no-validation", "kumiki-store", "--test=it", "histories::"),
    (
        "early-renewal",
        "kumiki-cluster",
        "--test=it",
        "protocol::renewals::",
    ),
    (
        "forgotten-elements",
        "kumiki-engine",
        "--test=it",
        "collection_models::",
    ),
    (
        "repeated-elements",
        "kumiki-engine",
        "--test=it",
        "collection_models::",
    ),
    (
        "old-elements",
        "kumiki-engine",
        "--test=it",
        "collection_models::",
    ),
    (
        "shared-node",
        "kumiki-engine",
        "--test=it",
        "collection_models::",
    ),
    (
        "early-freeing",
        "kumiki-values",
        "--lib",
        "models::planted_bugs",
    ),
];

/// The kinds of their test programs.
const PLANTED_TARGETS: &[&str] = &["--test=it", "--lib"];

/// Returns the command that builds the tests of [`PLANTED_TESTS`] in the test programs of this kind.
fn planted_tests(target: &str) -> Result<Command> {
    // All in one go, so that what they use is compiled once.
    let mut command = build::workspace_cargo();
    command.args(["test", target]);
    let own = PLANTED_TESTS.iter().filter(|test| test.2 == target);
    let packages: BTreeSet<&str> = own.map(|test| test.1).collect();
    for package in packages {
        command.args(["--package", package]);
    }
    build::planted(&mut command)?;
    Ok(command)
}

/// Returns the builds of the tests that must find bugs.
pub(super) fn planted_test_builds() -> Result<Vec<Command>> {
    let build = |target: &&str| {
        let mut command = planted_tests(target)?;
        command.arg("--no-run");
        Ok(command)
    };
    PLANTED_TARGETS.iter().map(build).collect()
}

/// Runs each test with its bug chosen; the test must find it.
pub(crate) fn planted_in_tests() -> Result<()> {
    let workspace = Workspace::read()?;
    for target in PLANTED_TARGETS {
        let programs = tests::build_programs(&mut planted_tests(target)?)?;
        let own = PLANTED_TESTS.iter().filter(|test| test.2 == *target);
        for (bug, package, _, filter) in own {
            let program = programs.get(*package).and_then(|programs| programs.first());
            let program = program.with_context(|| format!("{package} has no tests"))?;
            let listed = Command::new(program).args([filter, "--list"]).output()?;
            if !String::from_utf8_lossy(&listed.stdout).contains(": test") {
                bail!("{package} has no test {filter}");
            }
            let one = workspace.crates().find(|one| one.package == *package);
            let mut command = Command::new(program);
            command.arg(filter).env(build::PLANTED, bug);
            tests::run_command(one.context("no such package")?, command)?;
        }
    }
    Ok(())
}
