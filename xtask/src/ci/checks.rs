//! The checks that are commands of cargo.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::step::execute;
use crate::build::{self, cargo};
use crate::process;

/// Checks that all packages are formatted.
pub(super) fn format() -> Result<()> {
    execute(cargo().args(["fmt", "--all", "--check"]))
}

/// Lints all packages, also with what only the feature `sql` compiles.
pub(super) fn clippy() -> Result<()> {
    lint(&[])?;
    // With all packages, so that nothing is checked for the sake of other features.
    lint(&["--features", "kumiki-cli/sql"])
}

/// Lints all packages with these features of cargo.
pub(super) fn lint(features: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets"]);
    command.args(features).args(["--", "-D", "warnings"]);
    execute(&mut command)
}

/// Makes the documentation; a warning is an error. What clippy has compiled is used again: cargo starts the same
/// compiler, and the examples ask for the same features of dependencies as tests do.
pub(super) fn docs() -> Result<()> {
    let sysroot = process::output("rustc", Command::new("rustc").args(["--print", "sysroot"]))?;
    let mut command = cargo();
    command
        .args(["doc", "--workspace", "--no-deps"])
        .args(["--lib", "--bins", "--examples"])
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            Path::new(sysroot.trim()).join("bin/clippy-driver"),
        )
        .env(
            "CLIPPY_ARGS",
            "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
        )
        .env("RUSTDOCFLAGS", "-D warnings");
    execute(&mut command)
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

/// Runs each test with its bug chosen; the test must find it.
pub(crate) fn planted_in_tests() -> Result<()> {
    for (bug, package, program, filter) in PLANTED_TESTS {
        let mut command = cargo();
        command.args(["test", "--profile", build::PROFILE]);
        command.args(["--package", package, program]);
        build::planted(&mut command)?;
        command.args(["--", filter]).env(build::PLANTED, bug);
        execute(&mut command)?;
    }
    Ok(())
}
