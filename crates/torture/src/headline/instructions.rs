//! Instructions in user space, counted by valgrind's callgrind.
//!
//! They vary little, and need no counters of the processor, which virtual machines often lack. Each
//! binary runs once up to the point at which its server has its keys and connections, and once
//! through the operations as well. The difference, divided by the operations, is the figure. Both
//! binaries run at the same time.
//!
//! Threads that look for work from time to time, or wait in a loop, add instructions in proportion
//! to the time of a run. They never reduce the count, so that the least count of some runs is kept.
//! Of several servers that wait for each other most instructions would be such ones: these are not
//! counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use xtask::process;

use super::comparison::Sides;
use super::figure::{Figure, FigureKind, Served};
use super::load::Stop;
use super::subject::{Setting, Subject};
use super::timed::Task;

/// The keys of servers: as few as show the cost of an operation, because loading them is slow.
const KEYS: u32 = 2000;
/// The least number of operations that are counted.
const OPERATIONS: u64 = 15_000;
/// Runs of which the least count is kept.
const RUNS: usize = 2;

/// The program that counts.
#[derive(Debug)]
pub(super) struct Counter;

impl Counter {
    /// Looks for valgrind.
    pub(super) fn find() -> Result<Counter> {
        let mut command = Command::new("valgrind");
        process::output("valgrind", command.arg("--version"))
            .context("instructions are counted by valgrind, which is not installed (cargo xtask peers redis)")?;
        Ok(Counter)
    }

    /// Returns its name in results.
    pub(super) fn name(&self) -> &'static str {
        "callgrind"
    }

    /// Returns the instructions of one operation, or of the whole command.
    pub(super) fn compare(
        &self,
        figure: &Figure,
        subjects: &Sides<Subject>,
        dir: &Path,
    ) -> Result<Sides<f64>> {
        if let FigureKind::Served(served) = &figure.kind {
            ensure!(
                matches!(served.setting, Setting::Ephemeral | Setting::Group),
                "instructions of several servers are not counted"
            );
        }
        let count = |subject: &Subject| {
            let dir = tempfile::tempdir_in(dir)?;
            match &figure.kind {
                FigureKind::Served(served) => of_operation(served, subject, dir.path()),
                FigureKind::Timed(task) => of_command(*task, subject, dir.path()),
            }
        };
        let (old, new) = thread::scope(|scope| {
            let old = scope.spawn(|| count(&subjects.old));
            let new = count(&subjects.new);
            (old.join().expect("it does not panic"), new)
        });
        Ok(Sides {
            old: old.context("old")?,
            new: new.context("new")?,
        })
    }
}

fn of_operation(served: &Served, subject: &Subject, dir: &Path) -> Result<f64> {
    let least = |operations: u64| -> Result<(u64, u64)> {
        let mut runs = Vec::new();
        for run in 0..RUNS {
            let dir = dir.join(format!("{operations}-{run}"));
            runs.push(count(served, subject, &dir, operations)?);
        }
        runs.into_iter().min().context("there were no runs")
    };
    let (before, _) = least(0)?;
    let (all, done) = least(OPERATIONS)?;
    ensure!(
        all > before,
        "{all} instructions with operations, {before} without"
    );
    Ok((all - before) as f64 / done as f64)
}

/// Returns the instructions of a run, and the number of its operations.
fn count(served: &Served, subject: &Subject, dir: &Path, operations: u64) -> Result<(u64, u64)> {
    let counts = counted(subject, dir)?;
    let mut driven = served.start(&counts.subject, &dir.join("servers"), KEYS)?;
    let sample = driven.drive(Stop::Operations(operations))?;
    served.check(&driven, KEYS)?;
    driven.running.stop()?;
    Ok((counts.total()?, sample.operations))
}

fn of_command(task: Task, subject: &Subject, dir: &Path) -> Result<f64> {
    let files = task.files(subject)?;
    let mut least = u64::MAX;
    for run in 0..RUNS {
        let dir = dir.join(run.to_string());
        let counts = counted(subject, &dir)?;
        task.time(&counts.subject, &files, &dir)?;
        least = least.min(counts.total()?);
    }
    Ok(least as f64)
}

/// A binary under callgrind, and the directory with the counts of its processes.
struct Counted {
    subject: Subject,
    dir: PathBuf,
}

fn counted(subject: &Subject, dir: &Path) -> Result<Counted> {
    let dir = dir.join("counts");
    fs::create_dir_all(&dir)?;
    let words = format!(
        "valgrind --quiet --tool=callgrind --callgrind-out-file='{}/%p'",
        dir.display()
    );
    Ok(Counted {
        subject: subject.wrapped(&words, &dir.join("script"))?,
        dir,
    })
}

impl Counted {
    /// Returns the count of the only process, which has ended.
    fn total(&self) -> Result<u64> {
        let mut counts = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.is_file() {
                let text = fs::read_to_string(&path)?;
                counts
                    .push(total(&text).with_context(|| format!("no total in {}", path.display()))?);
            }
        }
        match counts[..] {
            [count] => Ok(count),
            _ => bail!(
                "{} processes have left a count instead of one",
                counts.len()
            ),
        }
    }
}

/// Returns the sum that callgrind writes at the end of its file.
fn total(text: &str) -> Option<u64> {
    let of = |line: &str| line.strip_prefix("totals:")?.trim().parse().ok();
    text.lines().rev().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_callgrind_file_is_read() {
        let text =
            "# callgrind format\nevents: Ir\nsummary: 12\n\nfn=(1) main\n0 12\n\ntotals: 1234567\n";
        assert_eq!(total(text), Some(1_234_567));
        assert_eq!(total("events: Ir\nfn=(1) main\n0 12\n"), None);
    }
}
