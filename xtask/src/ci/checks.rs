//! The checks that are commands of cargo.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::step::execute;
use super::tests::{self, LIBRARY};
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
    let lines = [
        "build --workspace --all-targets",
        "build --workspace --features kumiki-cli/sql --bin kumiki --test sql",
    ];
    lines.map(|line| {
        let mut command = build::workspace_cargo();
        command.args(line.split(' '));
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
    let line = "--features kumiki-cli/sql --test sql";
    execute(build::cargo_test().args(line.split(' ')))
}

/// Tests that must find a bug, each with the bug chosen that it finds: the bug, the package, the test program, and
/// the name.
const PLANTED_TESTS: &[(&str, &str, &str, &str)] = &[
    ("early-reply", "kumiki-journal", "it", "crash::one_logger"),
    ("forgotten-hold", "kumiki-backup", "it", "moments::"),
    ("ignored-holds", "kumiki-engine", "it", "ignored_holds::"),
    ("no-validation", "kumiki-store", "it", "histories::"),
    (
        "early-renewal",
        "kumiki-cluster",
        "it",
        "protocol::renewals::",
    ),
    (
        "forgotten-elements",
        "kumiki-engine",
        "it",
        "collection_models::",
    ),
    (
        "repeated-elements",
        "kumiki-engine",
        "it",
        "collection_models::",
    ),
    ("old-elements", "kumiki-engine", "it", "collection_models::"),
    ("shared-node", "kumiki-engine", "it", "collection_models::"),
    (
        "early-freeing",
        "kumiki-values",
        LIBRARY,
        "models::planted_bugs",
    ),
];

/// Runs each test with its bug chosen; the test must find it.
pub(crate) fn planted_in_tests() -> Result<()> {
    let workspace = Workspace::read()?;
    let programs = tests::build_programs(build::cargo_test().arg("--tests"))?;
    for (bug, package, target, filter) in PLANTED_TESTS {
        let mut own = programs.get(*package).into_iter().flatten();
        let program = own.find(|program| program.target == *target);
        let program = program.with_context(|| format!("{package} has no tests '{target}'"))?;
        let listed = Command::new(&program.path)
            .args([filter, "--list"])
            .output()?;
        if !String::from_utf8_lossy(&listed.stdout).contains(": test") {
            bail!("{package} has no test {filter}");
        }
        let one = workspace.crates().find(|one| one.package == *package);
        let mut command = Command::new(&program.path);
        command.arg(filter).env(build::PLANTED, bug);
        tests::run_command(one.context("no such package")?, command)?;
    }
    Ok(())
}
