//! What is concluded of each figure, and the table.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use super::measurement::Figure;
use super::statistics::{Interval, interval};

/// An interval that is wider than this to either side says little, so that instructions are counted as well.
pub(super) const WIDE: f64 = 0.03;

/// What is concluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The interval lies wholly beyond the bound, on the worse side.
    Worse,
    /// The interval is too wide to decide, and so many more instructions are worse than the bound.
    WorseByInstructions,
    /// The interval lies wholly on the better side of 1.
    Better,
    /// Nothing speaks for a change beyond the bound.
    Same,
    /// The interval is too wide to decide; instructions show no change beyond the bound.
    SameByInstructions,
    /// The interval is too wide to decide, and no instructions were counted.
    Unclear,
    NotMeasured(String),
}

impl Verdict {
    /// Judges a figure of which more is better; bound and ratios of others are turned over before.
    fn of(found: &Interval, instructions: Option<f64>, bound: f64) -> Verdict {
        if found.high < 1.0 - bound {
            return Verdict::Worse;
        }
        if found.low > 1.0 {
            return Verdict::Better;
        }
        match instructions {
            _ if found.half_width() <= WIDE => Verdict::Same,
            Some(ratio) if ratio > 1.0 + bound => Verdict::WorseByInstructions,
            Some(_) => Verdict::SameByInstructions,
            None => Verdict::Unclear,
        }
    }

    /// Returns `true` if the command fails for it.
    pub(super) fn is_worse(&self) -> bool {
        matches!(self, Verdict::Worse | Verdict::WorseByInstructions)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Worse => "WORSE",
            Verdict::WorseByInstructions => "WORSE by instructions",
            Verdict::Better => "better",
            Verdict::Same => "same",
            Verdict::SameByInstructions => "same by instructions",
            Verdict::Unclear => "unclear: the interval is wide",
            Verdict::NotMeasured(error) => return write!(f, "not measured: {error}"),
        })
    }
}

/// A figure and what is concluded of it.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    pub(super) figure: &'a Figure,
    interval: Option<Interval>,
    pub(super) verdict: Verdict,
}

impl<'a> Judged<'a> {
    pub(super) fn new(figure: &'a Figure, confidence: f64, bound: f64) -> Judged<'a> {
        let interval = interval(&figure.ratios(), confidence);
        let instructions = figure.instructions.map(|(old, new)| new / old);
        let verdict = match (&figure.error, &interval) {
            (Some(error), _) => Verdict::NotMeasured(error.clone()),
            (None, None) => Verdict::NotMeasured("there are too few rounds".to_owned()),
            (None, Some(found)) if figure.higher => Verdict::of(found, instructions, bound),
            (None, Some(found)) => Verdict::of(&turned(found), instructions, bound),
        };
        Judged {
            figure,
            interval,
            verdict,
        }
    }

    pub(super) fn describe(&self) -> Value {
        let figure = self.figure;
        let observations = figure.observations.iter().map(|seen| {
            json!({
                "old": seen.old,
                "new": seen.new,
                "ratio": seen.ratio,
                "cpu_us": seen.cpu_us,
            })
        });
        json!({
            "name": figure.name,
            "unit": figure.unit,
            "higher_is_better": figure.higher,
            "measures": figure.measures,
            "ratio": self.interval.map(|found| found.ratio),
            "interval": self.interval.map(|found| [found.low, found.high]),
            "instructions": figure.instructions,
            "verdict": self.verdict.to_string(),
            "observations": observations.collect::<Vec<_>>(),
        })
    }

    /// Medians over the rounds: of values, and of processor time, new by old.
    fn medians(&self) -> (f64, f64, Option<f64>) {
        let seen = &self.figure.observations;
        let cpu = seen
            .iter()
            .map(|one| one.cpu_us.map(|(old, new)| new / old));
        (
            median(seen.iter().map(|one| one.old).collect()),
            median(seen.iter().map(|one| one.new).collect()),
            cpu.collect::<Option<Vec<f64>>>()
                .filter(|all| !all.is_empty())
                .map(median),
        )
    }
}

/// Returns the interval of old by new: of a figure of which less is better, as of one of which more is.
fn turned(found: &Interval) -> Interval {
    Interval {
        ratio: 1.0 / found.ratio,
        low: 1.0 / found.high,
        high: 1.0 / found.low,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Returns a table for the terminal, which is Markdown as well.
pub(super) fn table(judged: &[Judged<'_>]) -> String {
    let mut text = format!(
        "| {:<15} | {:<14} | {:>9} | {:>9} | ratio | interval      | CPU   | instr.  | verdict\n\
         |{}|{}|{}|{}|------:|---------------|------:|--------:|---\n",
        "figure",
        "unit",
        "old",
        "new",
        "-".repeat(17),
        "-".repeat(16),
        "-".repeat(10) + ":",
        "-".repeat(10) + ":",
    );
    for one in judged {
        let (old, new, cpu) = one.medians();
        let better = if one.figure.higher { "" } else { ", less" };
        let unit = format!("{}{better}", one.figure.unit);
        let (ratio, interval) = one
            .interval
            .map_or((String::new(), String::new()), |found| {
                (
                    format!("{:.3}", found.ratio),
                    format!("{:.3}–{:.3}", found.low, found.high),
                )
            });
        let cpu = cpu.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let instructions = one.figure.instructions;
        let instructions =
            instructions.map_or(String::new(), |(old, new)| format!("{:.4}", new / old));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {:<15} | {unit:<14} | {old:>9.0} | {new:>9.0} | {ratio:>5} | {interval:<13} | {cpu:>5} | {instructions:>7} | {}",
            one.figure.name, one.verdict
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::measurement::Observation;
    use super::*;

    fn figure(higher: bool, ratios: &[f64]) -> Figure {
        let observations = ratios.iter().map(|ratio| Observation {
            old: 100.0,
            new: 100.0 * ratio,
            ratio: *ratio,
            cpu_us: None,
        });
        Figure {
            name: "get".to_owned(),
            unit: "1/s".to_owned(),
            higher,
            observations: observations.collect(),
            ..Figure::default()
        }
    }

    fn verdict(figure: &Figure) -> Verdict {
        Judged::new(figure, 0.95, 0.03).verdict
    }

    #[test]
    fn an_interval_wholly_beyond_the_bound_is_worse_in_the_direction_that_is_worse() {
        let less = [0.90, 0.91, 0.89, 0.90];
        assert_eq!(verdict(&figure(true, &less)), Verdict::Worse);
        assert_eq!(verdict(&figure(false, &less)), Verdict::Better);
        let more = less.map(|ratio| 1.0 / ratio);
        assert_eq!(verdict(&figure(true, &more)), Verdict::Better);
        assert_eq!(verdict(&figure(false, &more)), Verdict::Worse);
    }

    #[test]
    fn an_interval_that_reaches_within_the_bound_is_no_failure() {
        assert_eq!(
            verdict(&figure(true, &[0.97, 0.98, 0.96, 0.97])),
            Verdict::Same
        );
        assert_eq!(
            verdict(&figure(false, &[1.0, 1.01, 0.99, 1.0])),
            Verdict::Same
        );
    }

    #[test]
    fn where_the_interval_is_wide_instructions_decide() {
        let mut wide = figure(true, &[0.8, 1.2, 1.0, 0.9]);
        assert_eq!(verdict(&wide), Verdict::Unclear);
        wide.instructions = Some((1000.0, 1020.0));
        assert_eq!(verdict(&wide), Verdict::SameByInstructions);
        wide.instructions = Some((1000.0, 1040.0));
        assert_eq!(verdict(&wide), Verdict::WorseByInstructions);
        assert!(verdict(&wide).is_worse());
    }

    #[test]
    fn a_figure_that_failed_has_its_reason_in_the_table() {
        let mut failed = figure(true, &[]);
        failed.error = Some("old: it does not start".to_owned());
        let good = figure(true, &[1.0, 1.01, 1.0]);
        let judged = [&failed, &good].map(|figure| Judged::new(figure, 0.95, 0.03));
        let text = table(&judged);
        assert!(
            text.contains("not measured: old: it does not start"),
            "{text}"
        );
        assert!(text.contains("| 1.003 | 0.989–1.018"), "{text}");
        assert_eq!(text.lines().count(), 4);
    }
}
