//! The headline figures of two binaries, side by side, by one load generator.
//!
//! The binaries may be of different commits: they are started from outside and used over RESP, so
//! that the load generator is the same for both. In a round, each figure starts both binaries
//! afresh, and they take turns in short slices, ABBA: a machine that becomes slower does so for
//! both. A round is one independent observation of a figure; slices of one round are not
//! independent, because they share processes (addresses of memory, seeds of hash tables).
//!
//! Standard output has one JSON object a line, which `cargo xtask pairs` reads:
//!
//! | line | when |
//! |---|---|
//! | `{"figures": [{"name", "unit", "higher", "measures"}]}` | first |
//! | `{"figure", "round", "old", "new", "ratio", "cpu_old", "cpu_new"}` | after each figure of each round |
//! | `{"figure", "tool", "old", "new"}` | instructions of one operation, if these are asked for |
//! | `{"figure", "error"}` | a figure could not be measured; it is left out from then on |
//!
//! `ratio` is new by old; `cpu_…` are microseconds of processor time of all servers for one operation.

mod comparison;
mod figure;
mod instructions;
mod load;
mod preload;
mod process_time;
mod subject;
mod timed;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xtask::interrupt;

use self::comparison::{Observation, Sides};
pub use self::figure::FIGURES;
use self::figure::{Figure, FigureKind};
use self::subject::Subject;

/// The quantity that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Rates and times, in so many rounds.
    Speed {
        /// Rounds.
        rounds: u32,
    },
    /// Instructions in user space of one operation.
    Instructions,
}

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary that the other is compared with.
    pub old: PathBuf,
    /// The binary that is judged.
    pub new: PathBuf,
    /// The quantity.
    pub quantity: Quantity,
    /// Only figures whose names contain one of these; all if there is none.
    pub only: Vec<String>,
    /// The directory for the servers' files.
    pub data: PathBuf,
}

impl Options {
    fn figures(&self) -> Vec<&'static Figure> {
        let chosen = |figure: &&Figure| {
            self.only.is_empty() || self.only.iter().any(|text| figure.name.contains(&**text))
        };
        FIGURES.iter().filter(chosen).collect()
    }
}

/// Measures the figures and prints one JSON object a line.
///
/// # Errors
/// Returns an error if no figure has such a name, a binary cannot be started at all, or the user
/// asked to stop. A figure that fails by itself is reported in its line.
pub fn run(options: &Options) -> Result<()> {
    let mut figures = options.figures();
    ensure!(
        !figures.is_empty(),
        "no figure's name contains {}; there are: {}",
        options.only.join(" or "),
        FIGURES
            .iter()
            .map(|figure| figure.name)
            .collect::<Vec<_>>()
            .join(", ")
    );
    let parent = tempfile::Builder::new()
        .prefix("kumiki-pairs-")
        .tempdir_in(&options.data)?;
    let subjects = Sides {
        old: Subject::new(&options.old, &parent.path().join("old"))?,
        new: Subject::new(&options.new, &parent.path().join("new"))?,
    };
    println!(
        "{}",
        json!({ "figures": figures.iter().map(|figure| figure.describe()).collect::<Vec<_>>() })
    );
    match options.quantity {
        Quantity::Speed { rounds } => {
            subject::leave_the_servers_alone()?;
            for round in 1..=rounds {
                each(&mut figures, |figure| {
                    let seen = observe(figure, round, &subjects, parent.path())?;
                    Ok(json!({
                        "figure": figure.name,
                        "round": round,
                        "old": seen.value.old,
                        "new": seen.value.new,
                        "ratio": seen.ratio,
                        "cpu_old": seen.cpu_us.map(|us| us.old),
                        "cpu_new": seen.cpu_us.map(|us| us.new),
                    }))
                })?;
            }
        }
        Quantity::Instructions => {
            let counter = instructions::Counter::find()?;
            each(&mut figures, |figure| {
                let count = counter.compare(figure, &subjects, parent.path())?;
                Ok(json!({
                    "figure": figure.name,
                    "tool": counter.name(),
                    "old": count.old,
                    "new": count.new,
                }))
            })?;
        }
    }
    Ok(())
}

/// Prints a line for each figure; one that fails is left out from then on.
fn each(
    figures: &mut Vec<&'static Figure>,
    mut measure: impl FnMut(&Figure) -> Result<Value>,
) -> Result<()> {
    let mut failed = Vec::new();
    for figure in &*figures {
        interrupt::check()?;
        let line = measure(figure).or_else(|error| {
            // A failure after the user asked to stop says nothing about the figure.
            interrupt::check()?;
            failed.push(figure.name);
            anyhow::Ok(json!({ "figure": figure.name, "error": format!("{error:#}") }))
        })?;
        println!("{line}");
    }
    figures.retain(|figure| !failed.contains(&figure.name));
    Ok(())
}

fn observe(
    figure: &Figure,
    round: u32,
    subjects: &Sides<Subject>,
    dir: &Path,
) -> Result<Observation> {
    match &figure.kind {
        FigureKind::Served(served) => {
            let dir = tempfile::tempdir_in(dir)?;
            served.observe(round, subjects, dir.path())
        }
        FigureKind::Timed(task) => task.observe(round, subjects, dir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_few_have_names_of_their_own_and_are_in_the_documentation() {
        assert!(FIGURES.len() <= 12, "{}", FIGURES.len());
        let mut names: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
        let page = include_str!("../../../docs/performance.md");
        for name in names {
            assert!(
                page.contains(&format!("`{name}`")),
                "docs/performance.md lacks {name}"
            );
        }
    }
}
