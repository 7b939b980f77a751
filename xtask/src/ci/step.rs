//! What steps have in common: their inputs, the summary of a run, and the commands that they execute.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{build, process};

/// What a step reads. A change to anything else cannot change its result.
#[derive(Clone, Copy)]
pub(super) enum StepInputs {
    /// So much, or so little, that it always runs.
    Any,
    /// The whole working tree.
    Tree,
    /// These crates, and those that they use.
    Crates(&'static [&'static str]),
    /// The same, and the peers that are installed.
    CratesAndPeers(&'static [&'static str]),
}

/// What has been done, and how long it took.
#[derive(Default)]
pub(crate) struct StepSummary {
    passed: Vec<(String, f64)>,
    pub(super) skipped: Vec<String>,
}

impl StepSummary {
    /// Runs a step, with lines before and after it.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n==> {name}");
        let begun = Instant::now();
        step().with_context(|| format!("stopped at the step '{name}'"))?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("<== {name}: passed in {seconds:.1} s");
        self.passed.push((name.to_owned(), seconds));
        Ok(())
    }

    /// Returns `true` if no step has run or been left out.
    pub(super) fn is_empty(&self) -> bool {
        self.passed.is_empty() && self.skipped.is_empty()
    }

    /// Prints what passed, and what was left out.
    pub(crate) fn print(&self) {
        if !self.skipped.is_empty() {
            println!("\nleft out, because nothing that they read has changed since they passed:");
            self.skipped.iter().for_each(|name| println!("  {name}"));
        }
        println!("\n{} steps passed", self.passed.len());
        for (name, seconds) in &self.passed {
            println!("  {seconds:>7.1} s  {name}");
        }
        let sum: f64 = self.passed.iter().map(|(_, seconds)| seconds).sum();
        println!("  {sum:>7.1} s  together");
    }
}

/// Runs a command in the root of the repository.
///
/// # Errors
/// Returns an error if the command fails.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    let name = format!("{:?}", command.get_args().next().unwrap_or_default());
    process::run(&name, command.current_dir(build::root()))
}
