//! The metrics that `INFO` and the admin endpoint show, from one table: module [`table`].
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

mod row;
mod table;

use std::fmt::Write;
use std::sync::LazyLock;

use admin::{exposition, process};

use crate::server_state::ServerState;
use crate::server_status::ServerStatus;
pub(crate) use row::InfoSection;
use row::MetricRow;
use table::TABLE;
pub(crate) use table::write_databases;

/// Writes the lines of a section of `INFO`.
pub(crate) fn write_section(section: InfoSection, status: &ServerStatus<'_>, out: &mut String) {
    let rows = TABLE.iter().filter(|row| row.section == section);
    for row in rows.filter(|row| !row.info.is_empty()) {
        if let Some(text) = row.text(status) {
            write!(out, "{}:{text}\r\n", row.info).expect("a String takes any text");
        }
    }
}

/// Rows of one metric.
type Family = exposition::Family<&'static [MetricRow]>;

static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let name = |row: &MetricRow| row.metric.as_ref().map(|metric| metric.name);
    let rows = TABLE.chunk_by(|a, b| name(a).is_some() && name(a) == name(b));
    let family = |rows: &'static [MetricRow]| {
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
fn report(status: &ServerStatus<'_>) -> String {
    let own = exposition::text(FAMILIES.iter(), |family, samples| {
        for row in family.fill {
            let label = row.metric.as_ref().map_or(("", ""), |metric| metric.label);
            row.sample(label, status, samples);
        }
    });
    own + &process::text(&status.process, status.server.started_at)
}

impl admin::Subject for ServerState {
    fn metrics(&self) -> String {
        report(&ServerStatus::now(self))
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

    use super::row::MetricValue;
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
            if let MetricValue::Samples(_) = row.show {
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
