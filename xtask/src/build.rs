//! Building the real binary, and with a planted bug on request.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// Which binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// As users run it.
    Honest,
    /// It acknowledges before the sync. Every harness must find that out.
    PlantedEarlyReply,
    /// As a part of a transaction over several partitions it votes before its part is durable.
    PlantedEarlyDecision,
    /// As a leader it believes in its lease without a look at the clock.
    PlantedStaleLease,
    /// As a former leader it keeps what it had executed and what was not committed.
    PlantedKeptOverlay,
}

impl Build {
    /// The feature that plants the bug.
    fn planted(self) -> Option<&'static str> {
        match self {
            Build::Honest => None,
            Build::PlantedEarlyReply => Some("store/planted-early-reply"),
            Build::PlantedEarlyDecision => Some("cluster/planted-early-decision"),
            Build::PlantedStaleLease => Some("replica/planted-stale-lease"),
            Build::PlantedKeptOverlay => Some("replica/planted-kept-overlay"),
        }
    }
}

/// The cargo that runs us, or the one on the path.
#[must_use]
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The workspace's root.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// What `cargo metadata` says of the workspace, without dependencies from outside.
///
/// # Errors
/// If cargo fails.
pub fn metadata() -> Result<Value> {
    let text = process::output(
        "cargo metadata",
        cargo()
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .current_dir(root()),
    )?;
    serde_json::from_str(&text).context("cargo metadata is not JSON")
}

/// Where cargo builds to.
///
/// # Errors
/// If cargo fails.
pub fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    let dir = metadata["target_directory"]
        .as_str()
        .context("no target_directory in metadata")?;
    Ok(PathBuf::from(dir))
}

/// Has a command build things with a planted bug: what comes of it lies in a directory of its own, so that
/// it never replaces the honest build. What both have in common is compiled once.
///
/// # Errors
/// If cargo fails.
pub fn planted(command: &mut Command, feature: &str) -> Result<()> {
    let honest = target_dir()?;
    command.args(["--features", feature]);
    command.arg("--target-dir").arg(honest.join("planted"));
    command.env("CARGO_BUILD_BUILD_DIR", honest);
    Ok(())
}

/// Builds `kumiki` with optimisation and returns where it lies, for planted bugs as [`planted`] does.
///
/// # Errors
/// If the build fails.
pub fn kumiki(build: Build) -> Result<PathBuf> {
    let mut command = cargo();
    command
        .current_dir(root())
        .args(["build", "--release", "--package", "kumiki"]);
    command.args([
        "--bin",
        "kumiki",
        "--message-format",
        "json-render-diagnostics",
    ]);
    if let Some(feature) = build.planted() {
        planted(&mut command, feature)?;
    }
    command.stderr(std::process::Stdio::inherit());
    let messages = process::output("cargo build", &mut command)?;
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's message is not JSON")?;
        if message["target"]["name"] == "kumiki"
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("cargo built no binary named kumiki")
}
