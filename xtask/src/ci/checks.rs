//! The checks that are commands of cargo.

use std::process::Command;
use std::thread;

use anyhow::{Result, bail};

use super::step::execute;
use super::tests;
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

/// Makes the documentation; a warning is an error.
pub(super) fn docs() -> Result<()> {
    let mut command = cargo();
    command
        .args(["doc", "--workspace", "--no-deps"])
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

/// Models whose interleavings loom explores.
const MODELS: &[(&str, &str)] = &[
    ("kumiki-journal", "loom_handover"),
    ("kumiki-engine", "loom_word"),
    ("kumiki-fabric", "loom_ring"),
    ("kumiki-cluster", "slots_loom"),
];

/// Explores the models. Loom replaces the atomics of the whole build, which therefore lies in a
/// directory of its own. A model runs in one thread, so that all of them run at a time.
pub(super) fn loom() -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--profile", build::PROFILE]);
    for (package, test) in MODELS {
        command.args(["--package", package, "--test", test]);
    }
    command
        .arg("--target-dir")
        .arg(build::target_dir()?.join("loom"));
    command.env_remove(build::BUILD_DIR);
    command.env("RUSTFLAGS", "--cfg loom");
    // What the exploration takes is more than the compilation saves.
    command.env("CARGO_PROFILE_CI_OPT_LEVEL", "2");
    let programs = tests::build_programs(&mut command)?;
    thread::scope(|scope| {
        let runs: Vec<_> = programs
            .values()
            .flatten()
            .map(|program| {
                scope.spawn(move || {
                    let name = program.display().to_string();
                    process::run(&name, Command::new(program).current_dir(build::root()))
                })
            })
            .collect();
        let ended = runs.into_iter().map(|run| {
            let panicked = |_| bail!("a model's thread has panicked");
            run.join().unwrap_or_else(panicked)
        });
        ended.collect()
    })
}
