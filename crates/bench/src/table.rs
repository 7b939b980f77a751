//! Results as a table on a terminal.

use std::fmt::Write;

use crate::experiment::Experiment;
use crate::metric;
use crate::plot::{Aim, Compare};
use crate::report::findings::{self, Finding};
use crate::result::{MetricSummary, PointResult, Results};

/// Returns the table, the comparisons with the paper, and remarks on the run.
#[must_use]
pub fn show(experiment: &Experiment, results: &Results) -> String {
    let mut text = format!("{}: {}\n\n", results.experiment, results.title);
    let rows: Vec<Vec<String>> = results
        .points
        .iter()
        .map(|point| row(experiment, point))
        .collect();
    text += &grid(&header(experiment), &rows);
    text += &compared(experiment, results);
    text += &remarks(results);
    text
}

fn header(experiment: &Experiment) -> Vec<String> {
    let title = |name: &&str| match metric::named(name) {
        Some(metric) => format!("{}, {}", metric.title, metric.unit),
        None => (*name).to_owned(),
    };
    let mut header: Vec<String> = experiment.columns.iter().map(title).collect();
    header.push("of baseline".to_owned());
    header.push(String::new());
    header
}

/// Returns the first column: the metric whose share of the baseline is shown.
fn leading(experiment: &Experiment) -> Option<&'static str> {
    let metrics = experiment.columns.iter();
    metrics.copied().find(|name| metric::named(name).is_some())
}

fn row(experiment: &Experiment, point: &PointResult) -> Vec<String> {
    let cell = |name: &&str| {
        if let Some(param) = point.params.get(*name) {
            return param.to_string();
        }
        point.summary.get(*name).map_or_else(String::new, spread)
    };
    let mut row: Vec<String> = experiment.columns.iter().map(cell).collect();
    let lead = leading(experiment).and_then(|name| point.summary.get(name));
    let share = lead.and_then(|summary| summary.share);
    row.push(share.map_or_else(String::new, |share| format!("{share:.2}")));
    row.push(remark(point));
    row
}

/// Returns the median, and the spread if there is one.
fn spread(summary: &MetricSummary) -> String {
    let median = metric::show(summary.median);
    let (min, max) = (metric::show(summary.min), metric::show(summary.max));
    if min == max {
        median
    } else {
        format!("{median} ({min}–{max})")
    }
}

fn remark(point: &PointResult) -> String {
    if let Some(check) = point.failure() {
        return format!("FAILED: {}", check.name);
    }
    if let Some(why) = &point.skipped {
        return format!("skipped: {why}");
    }
    let noisy = point.noisy.then(|| "noisy".to_owned());
    let all: Vec<String> = noisy.into_iter().chain(point.note.clone()).collect();
    all.join("; ")
}

/// Returns rows of columns that are as wide as their widest cell.
pub(crate) fn grid(header: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(header).chain(rows.iter().map(Vec::as_slice));
    let width = |column: usize| all().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|c| width(c).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn compared(experiment: &Experiment, results: &Results) -> String {
    let rows: Vec<Compare> = (experiment.compare)();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["beside the paper", "paper", "here", "aim", ""].map(str::to_owned);
    let line = |finding: Finding| {
        vec![
            finding.what.to_owned(),
            finding.paper.unwrap_or("–").to_owned(),
            finding.value.map_or("–".to_owned(), metric::show),
            finding.aim.map_or(String::new(), show_aim),
            match finding.met() {
                Some(true) => "met".to_owned(),
                Some(false) => "missed".to_owned(),
                None => String::new(),
            },
        ]
    };
    let lines: Vec<Vec<String>> = findings::of(&rows, results).into_iter().map(line).collect();
    format!("\n{}", grid(&header, &lines))
}

/// Returns a bound in words.
#[must_use]
pub fn show_aim(aim: Aim) -> String {
    match aim {
        Aim::AtLeast(bound) => format!("≥ {bound}"),
        Aim::AtMost(bound) => format!("≤ {bound}"),
    }
}

fn remarks(results: &Results) -> String {
    let mut text = String::new();
    if !results.complete {
        text += "\nstopped before its end: some points have fewer runs, or none\n";
    }
    if results.recorded {
        text += "\ntransactions were recorded: the checks count, the figures do not\n";
    }
    if let Some(what) = results.shortened() {
        let _ = writeln!(text, "\n{what}");
    }
    if let Some(why) = results.busy() {
        let _ = writeln!(text, "\nmeasured on a busy machine: {why}");
    }
    let noisy = results.points.iter().filter(|point| point.noisy).count();
    if noisy > 0 {
        let all = results.points.len();
        let _ = writeln!(
            text,
            "\n{noisy} of {all} points are noisy: others used the machine in all of their runs"
        );
    }
    for (point, check) in results.failures() {
        let what = check.failure.as_deref().unwrap_or_default();
        let _ = writeln!(text, "\nFAILED {}: {}: {what}", point.id, check.name);
    }
    text
}
