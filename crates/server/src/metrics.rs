//! The figures that `INFO` and the admin endpoint show, from one table: module [`table`].
//!
//! The admin endpoint has Prometheus's text format (version 0.0.4):
//!
//! ```text
//! # HELP kumiki_commands_total Commands from clients, by what they do.
//! # TYPE kumiki_commands_total counter
//! kumiki_commands_total{kind="read"} 12
//! kumiki_commands_total{kind="write"} 3
//! ```
//!
//! `docs/metrics.md` lists every row that has a metric; tests compare the page with the table, and
//! the metrics of a running server with its `INFO`. Families without a sample, such as those of the
//! log where there is none, are left out.

mod table;

use std::fmt::Write;
use std::sync::LazyLock;

use admin::exposition::{self, Kind, Samples};
use admin::process;

use crate::figures::Figures;
use crate::shared::Shared;
use table::TABLE;

/// A row of the table: one figure.
pub(crate) struct Row {
    /// The section of `INFO` that shows it.
    pub(crate) section: Section,
    /// Its name in `INFO`; empty if `INFO` does not show it.
    pub(crate) info: &'static str,
    /// Its metric, if it has one.
    metric: Option<Metric>,
    show: Show,
}

/// A figure as Prometheus shows it. Rows of one name stand together.
struct Metric {
    kind: Kind,
    name: &'static str,
    /// The label that distinguishes it from others of the name: its name and value; empty if there
    /// are none.
    label: (&'static str, &'static str),
    help: &'static str,
}

/// Sections of `INFO`, in the order in which it shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    Server,
    Clients,
    Memory,
    Persistence,
    Log,
    Checkpoints,
    Recovery,
    Stats,
    Replication,
    Cpu,
    Cluster,
    Keyspace,
}

/// The function that returns the value of a figure.
#[derive(Clone, Copy)]
enum Show {
    Whole(fn(&Figures<'_>) -> u64),
    /// Shown if it has a value.
    Maybe(fn(&Figures<'_>) -> Option<u64>),
    /// Shown where there is a log.
    Durable(fn(&Figures<'_>) -> u64),
    /// `INFO` shows it always, since Redis does, and Prometheus where there is a log.
    Saves(fn(&Figures<'_>) -> u64),
    Seconds(fn(&Figures<'_>) -> Option<f64>),
    /// `INFO` shows whole seconds.
    WholeSeconds(fn(&Figures<'_>) -> f64),
    /// For `INFO` alone.
    Text(fn(&Figures<'_>) -> Option<String>),
    /// For Prometheus alone: samples of another form.
    Samples(fn(&Figures<'_>, &mut Samples<'_>)),
}

impl Row {
    /// Returns the value as `INFO` shows it.
    fn text(&self, figures: &Figures<'_>) -> Option<String> {
        match self.show {
            Show::Whole(value) | Show::Saves(value) => Some(value(figures).to_string()),
            Show::Maybe(value) => value(figures).map(|value| value.to_string()),
            Show::Durable(value) => figures.is_durable().then(|| value(figures).to_string()),
            Show::Seconds(value) => value(figures).map(|value| format!("{value:.6}")),
            Show::WholeSeconds(value) => Some((value(figures) as u64).to_string()),
            Show::Text(value) => value(figures).map(|text| one_line(&text)),
            Show::Samples(_) => None,
        }
    }

    /// Adds the metric's samples.
    fn sample(&self, label: (&str, &str), figures: &Figures<'_>, samples: &mut Samples<'_>) {
        let labels = [label];
        let labels = if label.0.is_empty() { &[] } else { &labels[..] };
        match self.show {
            Show::Whole(value) => samples.labelled(labels, value(figures)),
            Show::Maybe(value) => {
                if let Some(value) = value(figures) {
                    samples.labelled(labels, value);
                }
            }
            Show::Durable(value) | Show::Saves(value) => {
                if figures.is_durable() {
                    samples.labelled(labels, value(figures));
                }
            }
            Show::Seconds(value) => {
                if let Some(value) = value(figures) {
                    samples.labelled_seconds(labels, value);
                }
            }
            Show::WholeSeconds(value) => samples.labelled_seconds(labels, value(figures)),
            Show::Text(_) => {}
            Show::Samples(fill) => fill(figures, samples),
        }
    }
}

/// Joins the lines of a text into one.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// Writes the lines of a section of `INFO`.
pub(crate) fn write_section(section: Section, figures: &Figures<'_>, out: &mut String) {
    let rows = TABLE.iter().filter(|row| row.section == section);
    for row in rows.filter(|row| !row.info.is_empty()) {
        if let Some(text) = row.text(figures) {
            write!(out, "{}:{text}\r\n", row.info).expect("a String takes any text");
        }
    }
}

/// Rows of one metric.
type Family = exposition::Family<&'static [Row]>;

static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let name = |row: &Row| row.metric.as_ref().map(|metric| metric.name);
    let rows = TABLE.chunk_by(|a, b| name(a).is_some() && name(a) == name(b));
    let family = |rows: &'static [Row]| {
        let metric = rows[0].metric.as_ref()?;
        Some(Family {
            name: metric.name,
            kind: metric.kind,
            help: metric.help,
            fill: rows,
        })
    };
    rows.filter_map(family).collect()
});

/// Returns all metrics, as the admin endpoint serves them.
fn report(figures: &Figures<'_>) -> String {
    let own = exposition::text(FAMILIES.iter(), |family, samples| {
        for row in family.fill {
            let label = row.metric.as_ref().map_or(("", ""), |metric| metric.label);
            row.sample(label, figures, samples);
        }
    });
    own + &process::text(&figures.process, figures.shared.started_at)
}

impl admin::Subject for Shared {
    fn metrics(&self) -> String {
        report(&Figures::now(self))
    }

    fn trouble(&self) -> Option<String> {
        let replicated = self.partition.replicated();
        if let Some(reason) = self.partition.failed() {
            return Some(match replicated {
                None => reason,
                Some(_) => format!(
                    "this node's replica has stopped, and nothing is served until the node is \
                     restarted: {reason}"
                ),
            });
        }
        let waiting = replicated.and_then(|own| own.member().status().log_trouble);
        if let Some(reason) = waiting {
            return Some(format!("this node's replica cannot write: {reason}"));
        }
        self.is_stopping().then(|| "stopping".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_says_its_kind() {
        exposition::check(FAMILIES.iter());
        let mut names = BTreeSet::new();
        for row in TABLE.iter().filter(|row| !row.info.is_empty()) {
            assert!(names.insert(row.info), "{} is there twice", row.info);
        }
    }

    /// Returns the rows of the table of figures in `docs/metrics.md`: metric and name in `INFO`.
    fn documented() -> Vec<(String, String)> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (_, table) = page.split_once("\n## The figures\n").expect("the table");
        let (table, _) = table.split_once("\n## ").expect("the next section");
        let mut rows = Vec::new();
        for line in table.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if let [_, metric, _, info, _, _] = cells[..]
                && metric.starts_with('`')
            {
                let plain = |cell: &str| cell.trim_matches('`').to_owned();
                rows.push((plain(metric), plain(info)));
            }
        }
        rows
    }

    #[test]
    fn the_documentation_names_the_figures_of_the_table() {
        let documented = documented();
        for row in TABLE {
            let Some(metric) = &row.metric else { continue };
            let name = match metric.label {
                ("", _) => metric.name.to_owned(),
                (label, value) => format!("{}{{{label}=\"{value}\"}}", metric.name),
            };
            if let Show::Samples(_) = row.show {
                let found = documented.iter().any(|(own, _)| own.starts_with(&name));
                assert!(found, "{name} is not documented");
                continue;
            }
            let found = documented.iter().find(|(own, _)| *own == name);
            let (_, info) = found.unwrap_or_else(|| panic!("{name} is not documented"));
            match row.info {
                "" => assert!(info == "–" || info.contains(' '), "{name}: {info}"),
                own => assert_eq!(info, own, "{name}"),
            }
        }
        let known: BTreeSet<&str> = TABLE.iter().map(|row| row.info).collect();
        for (metric, info) in &documented {
            let mut words = info
                .split(' ')
                .filter(|word| !["+", "-", "–"].contains(word));
            assert!(words.all(|word| known.contains(word)), "{metric}: {info}");
        }
    }
}
