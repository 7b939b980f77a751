//! Experiments as data: what is measured at which points, which figures are drawn, and the values
//! of a paper.
//!
//! An [`Experiment`] knows its points; a [`SweepPoint`] knows its parameters, its baseline and the
//! [`TargetJob`] that measures it. Nothing here measures.
//!
//! Invariants:
//! 1. Ids of points are unique within an experiment.
//! 2. A baseline is a point of the same experiment, and has no baseline itself.

use crate::parameters::{Param, Params, Scale, params};
use crate::plot::{Compare, Plot};
use crate::target::TargetJob;

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The figures of a paper that it repeats, if any.
    pub paper: Option<&'static str>,
    /// Its description, in plain words; a paragraph each.
    pub about: &'static [&'static str],
    /// Its points at a scale.
    pub points: fn(&Scale) -> Vec<SweepPoint>,
    /// The figures that are drawn of it.
    pub plots: fn() -> Vec<Plot>,
    /// The comparisons with the paper's values.
    pub compare: fn() -> Vec<Compare>,
    /// Parameters and metrics that the table shows.
    pub columns: &'static [&'static str],
}

/// One point of a sweep.
#[derive(Clone, Debug)]
pub struct SweepPoint {
    /// Distinguishes it from the others.
    pub id: String,
    /// Its place in the sweep.
    pub params: Params,
    /// The id of the point that it is compared with.
    pub baseline: Option<String>,
    /// The job that measures it.
    pub job: TargetJob,
    /// The number of rounds in which it is measured, if not in all: some points take minutes to set
    /// up.
    pub rounds: Option<usize>,
}

impl SweepPoint {
    /// Creates a point without a baseline. Its id is made of its parameters.
    #[must_use]
    pub fn new<const N: usize>(pairs: [(&str, Param); N], job: TargetJob) -> SweepPoint {
        let id: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
        SweepPoint {
            id: id.join(" "),
            params: params(pairs),
            baseline: None,
            job,
            rounds: None,
        }
    }

    /// Returns the point with another parameter, by which it is distinguished from others, too.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Param>) -> SweepPoint {
        let value = value.into();
        self.id.push_str(&format!(" {name}={value}"));
        self.params.insert(name.to_owned(), value);
        self
    }

    /// Returns the point, measured in at most so many rounds.
    #[must_use]
    pub fn at_most(self, rounds: usize) -> SweepPoint {
        SweepPoint {
            rounds: Some(rounds),
            ..self
        }
    }

    /// Returns the point, compared with `baseline`.
    #[must_use]
    pub fn against(self, baseline: &SweepPoint) -> SweepPoint {
        SweepPoint {
            baseline: Some(baseline.id.clone()),
            ..self
        }
    }
}
