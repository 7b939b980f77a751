//! The results of one run of one point: named figures, and checks.
//!
//! A run whose check failed has no figures: speed without correctness is worthless.

use crate::error::RunError;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Figures by the names of their [metrics](crate::metric).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MetricValues(pub BTreeMap<String, f64>);

impl MetricValues {
    /// Sets a figure. A value that is not a number is left out.
    pub fn set(&mut self, metric: &str, value: f64) {
        if value.is_finite() {
            self.0.insert(metric.to_owned(), value);
        }
    }

    /// Returns a figure.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.0.get(metric).copied()
    }
}

/// A condition that must hold at any speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its description.
    pub name: String,
    /// The finding, if it does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Check {
    /// Creates a check and its outcome.
    #[must_use]
    pub fn new(name: &str, outcome: Result<(), RunError>) -> Check {
        Check {
            name: name.to_owned(),
            failure: outcome.err().map(|wrong| wrong.to_string()),
        }
    }
}

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSample {
    /// Its figures.
    pub values: MetricValues,
    /// Its checks.
    pub checks: Vec<Check>,
    /// A remark that a reader of the figures must know, if there is one.
    pub note: Option<String>,
    /// Its use of processors, or its rate and latency, from moment to moment, if that was followed.
    pub timeline: Vec<TimelinePoint>,
}

/// A moment of a run, until the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Seconds since the window began.
    pub at: f64,
    /// Cores that this process used; zero if that was not followed.
    pub reader: f64,
    /// Cores that the storage node's process used; zero if that was not followed.
    pub node: f64,
    /// Reads or queries a second.
    pub rate: f64,
    /// The mean latency in milliseconds; zero if that was not followed.
    #[serde(default)]
    pub latency: f64,
}

impl RunSample {
    /// Returns the first check that failed.
    #[must_use]
    pub fn failure(&self) -> Option<&Check> {
        self.checks.iter().find(|check| check.failure.is_some())
    }
}
