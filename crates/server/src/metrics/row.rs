//! A row of the table of metrics: its names, and how its value is shown.

use admin::exposition::{Kind, Samples};

use crate::server_status::ServerStatus;

/// A row of the table: one metric.
pub(crate) struct MetricRow {
    /// The section of `INFO` that shows it.
    pub(crate) section: InfoSection,
    /// Its name in `INFO`; empty if `INFO` does not show it.
    pub(crate) info: &'static str,
    /// Its metric, if it has one.
    pub(super) metric: Option<MetricDefinition>,
    pub(super) show: MetricValue,
}

/// A metric as Prometheus shows it. Rows of one name stand together.
pub(super) struct MetricDefinition {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// The label that distinguishes it from others of the name: its name and value; empty if there
    /// are none.
    pub(super) label: (&'static str, &'static str),
    pub(super) help: &'static str,
}

/// Sections of `INFO`, in the order in which it shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InfoSection {
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

/// The function that returns the value of a metric.
#[derive(Clone, Copy)]
pub(super) enum MetricValue {
    Whole(fn(&ServerStatus<'_>) -> u64),
    /// Shown if it has a value.
    Maybe(fn(&ServerStatus<'_>) -> Option<u64>),
    /// Shown where there is a log.
    Durable(fn(&ServerStatus<'_>) -> u64),
    /// `INFO` shows it always, since Redis does, and Prometheus where there is a log.
    Saves(fn(&ServerStatus<'_>) -> u64),
    Seconds(fn(&ServerStatus<'_>) -> Option<f64>),
    /// `INFO` shows whole seconds.
    WholeSeconds(fn(&ServerStatus<'_>) -> f64),
    /// For `INFO` alone.
    Text(fn(&ServerStatus<'_>) -> Option<String>),
    /// For Prometheus alone: samples of another form.
    Samples(fn(&ServerStatus<'_>, &mut Samples<'_>)),
}

impl MetricRow {
    /// Returns the value as `INFO` shows it.
    pub(super) fn text(&self, status: &ServerStatus<'_>) -> Option<String> {
        match self.show {
            MetricValue::Whole(value) | MetricValue::Saves(value) => {
                Some(value(status).to_string())
            }
            MetricValue::Maybe(value) => value(status).map(|value| value.to_string()),
            MetricValue::Durable(value) => status.is_durable().then(|| value(status).to_string()),
            MetricValue::Seconds(value) => value(status).map(|value| format!("{value:.6}")),
            MetricValue::WholeSeconds(value) => Some((value(status) as u64).to_string()),
            MetricValue::Text(value) => value(status).map(|text| one_line(&text)),
            MetricValue::Samples(_) => None,
        }
    }

    /// Adds the metric's samples.
    pub(super) fn sample(
        &self,
        label: (&str, &str),
        status: &ServerStatus<'_>,
        samples: &mut Samples<'_>,
    ) {
        let labels = [label];
        let labels = if label.0.is_empty() { &[] } else { &labels[..] };
        match self.show {
            MetricValue::Whole(value) => samples.labelled(labels, value(status)),
            MetricValue::Maybe(value) => {
                if let Some(value) = value(status) {
                    samples.labelled(labels, value);
                }
            }
            MetricValue::Durable(value) | MetricValue::Saves(value) => {
                if status.is_durable() {
                    samples.labelled(labels, value(status));
                }
            }
            MetricValue::Seconds(value) => {
                if let Some(value) = value(status) {
                    samples.labelled_seconds(labels, value);
                }
            }
            MetricValue::WholeSeconds(value) => samples.labelled_seconds(labels, value(status)),
            MetricValue::Text(_) => {}
            MetricValue::Samples(fill) => fill(status, samples),
        }
    }
}

/// Joins the lines of a text into one.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
