//! Building the programs that are judged, and those that judge.

use std::env;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lints::{self, LintingCompiler};
use crate::process;

/// The profile of everything that is only run to judge: see the workspace's manifest.
pub const PROFILE: &str = "ci";

/// The environment variable by which a process of a build with planted bugs chooses its bug; without it the process
/// has none. All that is built in one go with the harnesses has the bugs, unless default features are off.
pub const PLANTED: &str = "KUMIKI_PLANTED";

/// The option without which the harnesses, and what is built in one go with them, can have planted bugs.
const HONEST: &str = "--no-default-features";

/// Where cargo keeps what it compiles on the way, if that is not the target directory.
pub const BUILD_DIR: &str = "CARGO_BUILD_BUILD_DIR";

/// Returns the cargo that runs us, or the one on the path.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Cargo describes package xtask to us in these variables. Build scripts read them (ring's does), and would run
    // again whenever cargo is started by us and by a user in turn.
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(ours) {
            command.env_remove(name);
        }
    }
    command
}

static LINTS: OnceLock<LintingCompiler> = OnceLock::new();

/// Has this process lint the workspace's crates whenever it builds them.
///
/// # Errors
/// If the compiler that lints cannot be installed.
pub(crate) fn lint() -> Result<()> {
    if LINTS.get().is_none() {
        let _ = LINTS.set(LintingCompiler::install(&target_dir()?)?);
    }
    Ok(())
}

/// Returns the cargo that builds the workspace's crates.
pub(crate) fn workspace_cargo() -> Command {
    let mut command = cargo();
    if let Some(compiler) = LINTS.get() {
        compiler.apply(&mut command);
    }
    command
}

/// Returns `cargo test` for all packages. What runs for the sake of one crate is then compiled as for all.
#[must_use]
pub fn cargo_test() -> Command {
    let mut command = workspace_cargo();
    command.args(["test", "--workspace"]);
    run_more_tests(&mut command);
    command
}

/// Has test programs run twice as many tests at a time as there are processors: most of them wait for servers,
/// time-outs and disks.
pub fn run_more_tests(command: &mut Command) {
    const THREADS: &str = "RUST_TEST_THREADS";
    if env::var_os(THREADS).is_none() {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        command.env(THREADS, (2 * processors).to_string());
    }
}

/// Returns the workspace's root.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the workspace's root as cargo writes it: without `..`.
#[must_use]
pub fn root_path() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Returns the name of a package, given its id in cargo's messages: its directory's name stands for its own.
#[must_use]
pub fn package_of(id: &str) -> &str {
    let Some((path, version)) = id.rsplit_once('#') else {
        return id;
    };
    match version.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// Returns the output of `cargo metadata` for the workspace, without dependencies from outside.
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

/// Returns the directory into which cargo builds.
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

/// Programs that are built to judge.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The product.
    pub kumiki: PathBuf,
    /// The harnesses.
    pub torture: PathBuf,
}

/// Builds the product as it is judged, with planted bugs in it on request, and returns where it lies.
///
/// # Errors
/// If the build fails.
pub fn kumiki(with_bugs: bool) -> Result<PathBuf> {
    if with_bugs {
        return Ok(programs(JudgedBuild::Optimised, true)?.kumiki);
    }
    let built = messages(build(PROFILE, &["kumiki-cli"]))?;
    executable(&built, "kumiki")
}

/// Builds the program that runs experiments, and in the same directory the product, whose servers it
/// measures. Returns where both lie: kumiki-bench, then kumiki.
///
/// # Errors
/// If the build fails.
pub fn bench() -> Result<[PathBuf; 2]> {
    let built = messages(build(PROFILE, &["kumiki-bench", "kumiki-cli"]))?;
    Ok([
        executable(&built, "kumiki-bench")?,
        executable(&built, "kumiki")?,
    ])
}

/// Builds the harnesses alone and returns where they lie.
///
/// # Errors
/// If the build fails.
pub fn torture() -> Result<PathBuf> {
    let mut command = build(PROFILE, &["kumiki-torture"]);
    command.arg(HONEST);
    executable(&messages(command)?, "torture")
}

/// Builds the product as it is published, and as it is measured, and returns where it lies.
///
/// # Errors
/// If the build fails.
pub fn published() -> Result<PathBuf> {
    executable(&messages(build("dist", &["kumiki-cli"]))?, "kumiki")
}

/// How programs that are judged are built.
#[derive(Clone, Copy, Debug)]
pub enum JudgedBuild {
    /// With the profile [`PROFILE`]. Those that can have planted bugs are others.
    Optimised,
    /// As `cargo test --workspace` builds them, so that nothing is compiled for them alone. All can have planted bugs.
    LikeTests,
}

/// Builds the product and the harnesses, both in one go, so that what they share is compiled once.
///
/// # Errors
/// If the build fails.
pub fn programs(how: JudgedBuild, with_bugs: bool) -> Result<Programs> {
    let built = match how {
        JudgedBuild::Optimised => {
            let mut command = build(PROFILE, &["kumiki-cli", "kumiki-torture"]);
            if with_bugs {
                // In a directory of their own, so that they never replace the honest ones; what both have in common
                // is compiled once. They are not linted: the honest ones are.
                let honest = target_dir()?;
                lints::turn_off(&mut command);
                command.arg("--target-dir").arg(honest.join("planted"));
                if env::var_os(BUILD_DIR).is_none() {
                    command.env(BUILD_DIR, honest);
                }
            } else {
                command.arg(HONEST);
            }
            messages(command)?
        }
        JudgedBuild::LikeTests => messages(judged_like_tests())?,
    };
    Ok(Programs {
        kumiki: executable(&built, "kumiki")?,
        torture: executable(&built, "torture")?,
    })
}

/// Returns the command that builds the programs of packages.
fn build(profile: &str, packages: &[&str]) -> Command {
    let mut command = workspace_cargo();
    command.args(["build", "--bins", "--profile", profile]);
    for package in packages {
        command.args(["--package", package]);
    }
    command
}

/// Returns the command that builds the product and the harnesses as `cargo test --workspace` does.
pub(crate) fn judged_like_tests() -> Command {
    let mut command = workspace_cargo();
    command.args(["build", "--workspace"]);
    // An example asks for the features that dependencies have in tests.
    command.args(["--bin", "kumiki", "--bin", "torture", "--example", "judge"]);
    command
}

/// Returns the features with which cargo compiles crate base for a package, or for what it builds by default.
///
/// # Errors
/// If cargo fails.
pub fn features_of_base(package: Option<&str>) -> Result<String> {
    let mut command = cargo();
    let line = "tree --edges normal,build --prefix none --format";
    command.args(line.split(' ')).arg("{p} ({f})");
    if let Some(package) = package {
        command.args(["--package", package]);
    }
    let tree = process::output("cargo tree", command.current_dir(root()))?;
    let mut lines = tree.lines();
    let base = lines.find(|line| line.starts_with("kumiki-base "));
    let base = base.context("cargo's tree lacks crate base")?;
    Ok(base.to_owned())
}

/// Runs a build and returns what cargo says of it, as lines of JSON.
fn messages(mut command: Command) -> Result<String> {
    command.current_dir(root());
    command.args(["--message-format", "json-render-diagnostics"]);
    command.stderr(std::process::Stdio::inherit());
    process::output("cargo build", &mut command)
}

fn executable(messages: &str, name: &str) -> Result<PathBuf> {
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's message is not JSON")?;
        if message["target"]["name"] == name
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("cargo built no program named {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_gets_no_description_of_this_package() {
        let given = |name| env::var_os(name).is_some();
        assert!(given("CARGO_PKG_NAME") && given("CARGO_MANIFEST_DIR"));
        let command = cargo();
        let removed = |name: &str| {
            let mut variables = command.get_envs();
            variables.any(|(one, value)| one == name && value.is_none())
        };
        assert!(removed("CARGO_PKG_NAME") && removed("CARGO_MANIFEST_DIR"));
        assert!(!removed("PATH"));
    }

    #[test]
    fn packages_are_told_apart() {
        let fabric = "path+file:///some/where/crates/fabric#kumiki-fabric@0.1.0";
        assert_eq!(package_of(fabric), "kumiki-fabric");
        assert_eq!(package_of("path+file:///some/kumiki#0.1.0"), "kumiki");
    }
}
