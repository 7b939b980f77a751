//! What one run of one point tells: named figures, and checks.
//!
//! A run whose check failed tells no figures: speed without correctness is none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Figures by the names of their [metrics](crate::metric).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(pub BTreeMap<String, f64>);

impl Values {
    /// Sets a figure. One that is no number is left out.
    pub fn set(&mut self, metric: &str, value: f64) {
        if value.is_finite() {
            self.0.insert(metric.to_owned(), value);
        }
    }

    /// A figure.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.0.get(metric).copied()
    }
}

/// Something that must hold whatever the speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What is checked.
    pub name: String,
    /// What was found, when it does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Check {
    /// A check and its outcome.
    #[must_use]
    pub fn new(name: &str, outcome: Result<(), String>) -> Check {
        Check {
            name: name.to_owned(),
            failure: outcome.err(),
        }
    }
}

/// What one run tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Its figures.
    pub values: Values,
    /// Its checks.
    pub checks: Vec<Check>,
    /// What has to be known about the figures, if anything has.
    pub note: Option<String>,
    /// What it was like from moment to moment, where that was followed.
    pub course: Vec<Moment>,
}

/// A moment of a run, until the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the run counts.
    pub at: f64,
    /// Cores that this process used.
    pub reader: f64,
    /// Cores that the storage node's process used.
    pub node: f64,
    /// Reads a second.
    pub rate: f64,
}

impl Sample {
    /// The first check that failed.
    #[must_use]
    pub fn failure(&self) -> Option<&Check> {
        self.checks.iter().find(|check| check.failure.is_some())
    }
}

/// Why a run has no sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The point cannot be measured here; the reason is told and nothing is wrong.
    #[error("{0}")]
    Skipped(String),
    /// Something is wrong.
    #[error("{0}")]
    Failed(String),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// A failure: `what` was tried, and `error` came of it.
    pub fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> RunError + '_ {
        move |error| RunError::Failed(format!("{what}: {error}"))
    }
}
