//! What steps have in common: their inputs, the summary of a run, and the commands that they execute.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

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

/// A step that has passed.
struct PassedStep {
    name: String,
    elapsed: Duration,
    /// The processor time of the processes that it started. On a busy machine it says more than `elapsed`.
    processor: Duration,
}

/// What has been done, and how long it took.
#[derive(Default)]
pub(crate) struct StepSummary {
    passed: Vec<PassedStep>,
    pub(super) skipped: Vec<String>,
}

impl StepSummary {
    /// Runs a step, with lines before and after it.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n==> {name}");
        let (begun, processor) = (Instant::now(), processor_time());
        step().with_context(|| format!("stopped at the step '{name}'"))?;
        let step = PassedStep {
            name: name.to_owned(),
            elapsed: begun.elapsed(),
            processor: processor_time().saturating_sub(processor),
        };
        println!(
            "<== {name}: passed in {:.1} s, {:.1} s of processor time",
            step.elapsed.as_secs_f64(),
            step.processor.as_secs_f64()
        );
        self.passed.push(step);
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
        println!("  elapsed, processor time");
        let line = |elapsed: Duration, processor: Duration, name: &str| {
            let [elapsed, processor] = [elapsed, processor].map(|time| time.as_secs_f64());
            println!("  {elapsed:>7.1} s {processor:>7.1} s  {name}");
        };
        for step in &self.passed {
            line(step.elapsed, step.processor, &step.name);
        }
        let steps = || self.passed.iter();
        line(
            steps().map(|step| step.elapsed).sum(),
            steps().map(|step| step.processor).sum(),
            "together",
        );
    }
}

/// Returns the processor time of the processes that this one has started and waited for, and of those that
/// they have waited for in turn; zero if the system does not say.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in parentheses, which can contain spaces; the fields 16 and 17 are the
    // ticks of children in user mode and in the kernel.
    let fields = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let ticks = fields.split(' ').skip(13).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Runs a command in the root of the repository.
///
/// # Errors
/// Returns an error if the command fails.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    let name = format!("{:?}", command.get_args().next().unwrap_or_default());
    process::run(&name, command.current_dir(build::root()))
}
