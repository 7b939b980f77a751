//! `cargo xtask ci --quick`: the verdict of a few minutes while one works.
//!
//! Format, architecture, lints, and the unit tests of the crates that have changed and of those that use
//! them. What has changed is what differs from a commit, in the index, the working tree and new files.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::checks::{clippy, format};
use super::records::git;
use super::step::StepSummary;
use super::tests;
use crate::workspace::Workspace;
use crate::{arch, build};

/// Checks what differs from the commit `since`; by default from the last commit if the working tree has
/// changes, and otherwise from the one before it.
///
/// # Errors
/// With the first check that fails, or if there is no such commit.
pub fn run(since: Option<&str>) -> Result<()> {
    let workspace = Workspace::read()?;
    let is_clean = git(&["status", "--porcelain"])?.is_empty();
    let since = since.unwrap_or(if is_clean { "HEAD~1" } else { "HEAD" });
    let changed = git(&["diff", "--name-only", since]);
    let changed = changed.with_context(|| format!("cannot compare with the commit '{since}'"))?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let files: BTreeSet<&str> = changed.lines().chain(new.lines()).collect();
    let crates = reached(&workspace, &files);
    let names: Vec<&str> = crates.iter().map(String::as_str).collect();
    println!("{} files differ from {since}", files.len());
    println!(
        "crates: {}",
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    );
    let mut summary = StepSummary::default();
    summary.step("format", format)?;
    summary.step("architecture", arch::check)?;
    if !crates.is_empty() {
        summary.step("clippy", clippy)?;
        let mut programs = Default::default();
        summary.step("unit tests are built", || {
            programs = tests::build_programs(build::cargo_test().args(["--lib", "--bins"]))?;
            Ok(())
        })?;
        for one in workspace.crates().filter(|one| crates.contains(&one.name)) {
            let own = programs.get(&one.package).map_or(&[][..], Vec::as_slice);
            let run = || {
                own.iter()
                    .try_for_each(|program| tests::run_program(one, program))
            };
            summary.step(&format!("unit tests of {}", one.name), run)?;
        }
    }
    summary.print();
    Ok(())
}

/// Returns the crates that files belong to, and those that use them; all of them after a change to what all read.
fn reached(workspace: &Workspace, files: &BTreeSet<&str>) -> BTreeSet<String> {
    if files
        .iter()
        .any(|file| matches!(*file, "Cargo.toml" | "Cargo.lock"))
    {
        return workspace.crates().map(|one| one.name.clone()).collect();
    }
    let owners = files
        .iter()
        .filter_map(|file| workspace.owner(Path::new(file)));
    workspace.with_users(&owners.map(|one| one.name.clone()).collect())
}
