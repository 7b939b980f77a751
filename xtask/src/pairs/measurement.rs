//! The harness that measures, and what its lines say.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{build, interrupt};

/// How long the harness may take to stop its servers.
const END: Duration = Duration::from_secs(60);
/// How long it may take before it is sent a signal: Ctrl-C in a terminal has reached it already.
const GRACE: Duration = Duration::from_secs(5);
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// One round of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observation {
    pub(super) old: f64,
    pub(super) new: f64,
    pub(super) ratio: f64,
    /// Microseconds of processor time for one operation, old and new.
    pub(super) cpu_us: Option<(f64, f64)>,
}

/// A headline figure and all that was found out about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: String,
    /// `true` if more is better.
    pub(super) higher: bool,
    pub(super) measures: String,
    pub(super) observations: Vec<Observation>,
    /// Instructions of one operation, old and new.
    pub(super) instructions: Option<(f64, f64)>,
    pub(super) error: Option<String>,
}

impl Figure {
    /// Returns the ratio of new to old in each round.
    pub(super) fn ratios(&self) -> Vec<f64> {
        self.observations.iter().map(|seen| seen.ratio).collect()
    }
}

/// All figures.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    pub(super) figures: Vec<Figure>,
}

impl Measurement {
    /// Takes a line of the harness, and returns what is told of it.
    fn take(&mut self, line: &str, rounds: u32) -> Result<Option<String>> {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        if let Some(figures) = line["figures"].as_array() {
            // The second list, of figures whose instructions are counted, says nothing new.
            if self.figures.is_empty() {
                self.figures = figures
                    .iter()
                    .map(described)
                    .collect::<Option<_>>()
                    .context("a figure lacks a field")?;
            }
            return Ok(None);
        }
        let name = line["figure"].as_str().context("no figure is named")?;
        let figure = self.figures.iter_mut().find(|figure| figure.name == name);
        let figure = figure.with_context(|| format!("no figure {name} was announced"))?;
        let number = |field: &str| line[field].as_f64();
        let sides = number("old").zip(number("new"));
        if let Some(error) = line["error"].as_str() {
            figure.error = Some(error.to_owned());
            return Ok(Some(format!("{name}: {error}")));
        }
        let (old, new) = sides.with_context(|| format!("no values of {name}"))?;
        if line["tool"].is_string() {
            figure.instructions = Some((old, new));
            return Ok(Some(format!(
                "{name}: {old:.0} and {new:.0} instructions, {:.4}",
                new / old
            )));
        }
        let ratio = number("ratio").with_context(|| format!("no ratio of {name}"))?;
        let cpu_us = number("cpu_old").zip(number("cpu_new"));
        figure.observations.push(Observation {
            old,
            new,
            ratio,
            cpu_us,
        });
        let round = &line["round"];
        let unit = &figure.unit;
        Ok(Some(format!(
            "round {round} of {rounds}: {name:<15} {old:>9.0} {new:>9.0} {unit:<14} {ratio:.3}"
        )))
    }
}

fn described(figure: &Value) -> Option<Figure> {
    let text = |field: &str| figure[field].as_str().map(str::to_owned);
    Some(Figure {
        name: text("name")?,
        unit: text("unit")?,
        higher: figure["higher"].as_bool()?,
        measures: text("measures")?,
        ..Figure::default()
    })
}

/// The harness with the two binaries.
#[derive(Debug)]
pub(super) struct Harness {
    torture: PathBuf,
    old: PathBuf,
    new: PathBuf,
    data: PathBuf,
}

impl Harness {
    pub(super) fn build(old: &Path, new: &Path, data: &Path) -> Result<Harness> {
        Ok(Harness {
            torture: build::torture()?,
            old: old.to_owned(),
            new: new.to_owned(),
            data: data.to_owned(),
        })
    }

    /// Takes times, in so many rounds.
    pub(super) fn measure(&self, rounds: u32, only: &[String]) -> Result<Measurement> {
        let mut measurement = Measurement::default();
        let mut words = vec!["--rounds".to_owned(), rounds.to_string()];
        words.extend(
            only.iter()
                .flat_map(|text| ["--only".to_owned(), text.clone()]),
        );
        self.run(&words, |line| measurement.take(line, rounds))?;
        Ok(measurement)
    }

    /// Counts the instructions of these figures.
    pub(super) fn count(&self, names: &[String], measurement: &mut Measurement) -> Result<()> {
        let mut words = vec!["--instructions".to_owned()];
        words.extend(
            names
                .iter()
                .flat_map(|name| ["--only".to_owned(), name.clone()]),
        );
        let mut counts = Measurement {
            figures: measurement.figures.clone(),
        };
        // The names of others may contain one of these; what is said of them does no harm.
        let ran = self.run(&words, |line| counts.take(line, 0));
        if let Err(error) = ran {
            interrupt::check()?;
            println!("pairs: instructions could not be counted: {error:#}");
        }
        for (figure, count) in measurement.figures.iter_mut().zip(counts.figures) {
            figure.instructions = count.instructions;
        }
        Ok(())
    }

    /// Runs the harness to its end; each of its lines is taken, and what is said of it printed.
    fn run(
        &self,
        words: &[String],
        mut take: impl FnMut(&str) -> Result<Option<String>>,
    ) -> Result<()> {
        let mut command = Command::new(&self.torture);
        command.arg("headline");
        command
            .arg("--old")
            .arg(&self.old)
            .arg("--new")
            .arg(&self.new);
        command.arg("--data").arg(&self.data).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().context("cannot start the harness")?;
        let mut running = Running(child);
        let output = running.0.stdout.take().context("its output is a pipe")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        loop {
            interrupt::check()?;
            match lines.recv_timeout(LOOK) {
                Ok(line) => {
                    if let Some(said) = take(&line.context("cannot read the harness's output")?)? {
                        println!("pairs: {said}");
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = running.0.wait().context("cannot wait for the harness")?;
        if !status.success() {
            bail!("the harness failed ({status})");
        }
        Ok(())
    }
}

/// The harness, which gets the time to stop its servers if this goes before it has ended.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if has_ended(&mut self.0) {
            return;
        }
        // A second signal would end it without its servers; from the terminal it may have had one.
        let deadline = Instant::now() + GRACE;
        while !has_ended(&mut self.0) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        if has_ended(&mut self.0) {
            return;
        }
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let deadline = Instant::now() + END;
        while !has_ended(&mut self.0) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: &str = r#"{"figures":[{"name":"get","unit":"1/s","higher":true,"measures":"GET"},
        {"name":"recovery","unit":"ms","higher":false,"measures":"start"}]}"#;

    fn taken(lines: &[&str]) -> Result<Measurement> {
        let mut measurement = Measurement::default();
        for line in lines {
            measurement.take(line, 3)?;
        }
        Ok(measurement)
    }

    #[test]
    fn lines_of_the_harness_become_figures() {
        let found = taken(&[
            FIGURES,
            r#"{"figure":"get","round":1,"old":100.0,"new":110.0,"ratio":1.1,"cpu_old":5.0,"cpu_new":4.0}"#,
            r#"{"figure":"recovery","round":1,"old":10,"new":10,"ratio":1.0,"cpu_old":null,"cpu_new":null}"#,
            r#"{"figure":"get","tool":"callgrind","old":1000.0,"new":900.0}"#,
            r#"{"figure":"recovery","error":"old: it does not start"}"#,
        ]);
        let [get, recovery] = &found.unwrap().figures[..] else {
            panic!("there are two");
        };
        assert_eq!(get.ratios(), [1.1]);
        assert_eq!(get.observations[0].cpu_us, Some((5.0, 4.0)));
        assert_eq!(get.instructions, Some((1000.0, 900.0)));
        assert!(!recovery.higher && recovery.observations[0].cpu_us.is_none());
        assert_eq!(recovery.error.as_deref(), Some("old: it does not start"));
    }

    #[test]
    fn lines_that_say_something_else_are_refused() {
        for wrong in [
            "GET",
            r#"{"figure":"set","old":1,"new":1}"#,
            r#"{"figure":"get","old":1}"#,
            "{}",
        ] {
            assert!(taken(&[FIGURES, wrong]).is_err(), "{wrong}");
        }
    }
}
