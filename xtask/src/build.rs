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

/// The environment variable by which a process of a planted build chooses its bug; without it the process
/// has none.
pub const PLANTED: &str = "KUMIKI_PLANTED";

/// Where cargo keeps what it compiles on the way, if that is not the target directory.
pub const BUILD_DIR: &str = "CARGO_BUILD_BUILD_DIR";

/// The feature with which bugs can be planted. Without it they are not in the program.
const FEATURE: &str = "base/planted";

/// Returns the cargo that runs us, or the one on the path.
#[must_use]
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
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

/// Has a command build what can have planted bugs. What comes of it lies in a directory of its own, so that
/// it never replaces the honest build; what both have in common is compiled once. It is not linted: the honest build
/// is.
///
/// # Errors
/// If cargo fails.
pub fn planted(command: &mut Command) -> Result<()> {
    let honest = target_dir()?;
    lints::turn_off(command);
    command.args(["--features", FEATURE]);
    command.arg("--target-dir").arg(honest.join("planted"));
    if env::var_os(BUILD_DIR).is_none() {
        command.env(BUILD_DIR, honest);
    }
    Ok(())
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
    let built = build(&["kumiki-cli"], with_bugs)?;
    executable(&built, "kumiki")
}

/// Builds the program that runs experiments, and in the same directory the product, whose servers it
/// measures. Returns where both lie: kumiki-bench, then kumiki.
///
/// # Errors
/// If the build fails.
pub fn bench() -> Result<[PathBuf; 2]> {
    let built = build(&["kumiki-bench", "kumiki-cli"], false)?;
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
    executable(&build(&["kumiki-torture"], false)?, "torture")
}

/// Builds the product as it is published, and as it is measured, and returns where it lies.
///
/// # Errors
/// If the build fails.
pub fn published() -> Result<PathBuf> {
    executable(&build_with("dist", &["kumiki-cli"], false)?, "kumiki")
}

/// How programs that are judged are built.
#[derive(Clone, Copy, Debug)]
pub enum JudgedBuild {
    /// With the profile [`PROFILE`].
    Optimised,
    /// As `cargo test --workspace` builds them, so that little is compiled for them alone.
    LikeTests,
}

/// Builds the product and the harnesses, both in one go, so that what they share is compiled once.
///
/// # Errors
/// If the build fails.
pub fn programs(how: JudgedBuild, with_bugs: bool) -> Result<Programs> {
    let built = match how {
        JudgedBuild::Optimised => build(&["kumiki-cli", "kumiki-torture"], with_bugs)?,
        JudgedBuild::LikeTests => messages(judged_like_tests(with_bugs)?)?,
    };
    Ok(Programs {
        kumiki: executable(&built, "kumiki")?,
        torture: executable(&built, "torture")?,
    })
}

/// Builds the programs of packages and returns what cargo says of them, as lines of JSON.
fn build(packages: &[&str], with_bugs: bool) -> Result<String> {
    build_with(PROFILE, packages, with_bugs)
}

fn build_with(profile: &str, packages: &[&str], with_bugs: bool) -> Result<String> {
    let mut command = workspace_cargo();
    command.args(["build", "--bins", "--profile", profile]);
    for package in packages {
        command.args(["--package", package]);
    }
    if with_bugs {
        planted(&mut command)?;
    }
    messages(command)
}

/// Returns the command that builds the product and the harnesses as `cargo test --workspace` does.
///
/// # Errors
/// If cargo fails.
pub(crate) fn judged_like_tests(with_bugs: bool) -> Result<Command> {
    let mut command = workspace_cargo();
    command.args(["build", "--workspace"]);
    // An example asks for the features that dependencies have in tests.
    command.args(["--bin", "kumiki", "--bin", "torture", "--example", "judge"]);
    if with_bugs {
        planted(&mut command)?;
    }
    Ok(command)
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
    fn packages_are_told_apart() {
        let fabric = "path+file:///some/where/crates/fabric#kumiki-fabric@0.1.0";
        assert_eq!(package_of(fabric), "kumiki-fabric");
        assert_eq!(package_of("path+file:///some/kumiki#0.1.0"), "kumiki");
    }
}
