//! The result file: `DIR/NAME.json`.
//!
//! | field | meaning |
//! |---|---|
//! | `schema` | [`SCHEMA`]; a file with another one is refused |
//! | `experiment`, `title` | what was run |
//! | `commit`, `version`, `profile` | of the program that measured: the commit of its sources, with `-dirty` if they differed from it, or `unknown`; the cargo profile that it was built with, empty in older files |
//! | `programs` | the `measuring` program, and the `measured` one, whose servers, proxies and storage nodes were started, if it was there: `path`, `sha256` and `version` of each |
//! | `started` | seconds since 1970 |
//! | `complete` | false while it runs, and when it was stopped |
//! | `rounds` | how many rounds were made to their end: fewer than `scale` says if time was short |
//! | `recorded` | transactions were recorded: checks count, figures do not |
//! | `host` | the machine: see [`HostInfo`] |
//! | `load` | what others used of the machine `before` the first run and `after` the last one: see [`Noise`] |
//! | `scale` | how much was measured: see [`Scale`] |
//! | `settings` | how it was measured besides that: see [`RunSettings`] |
//! | `points` | a list of points, below |
//!
//! | field of a point | meaning |
//! |---|---|
//! | `id`, `params`, `baseline`, `job` | as in the experiment |
//! | `skipped` | why it could not be measured here, if so |
//! | `note` | what has to be known about its figures, if anything has |
//! | `repetitions` | every run: `round` (which repetition; a baseline runs several times in one), `order` (place in time), `seconds` that it took with everything around it, `values`, `checks`, `noise`, and `course`, from [moment](TimelinePoint) to moment the cores that processes used, or rate and latency, where that was followed |
//! | `summary` | by metric: `median`, `min`, `max`, `share` (median of the runs' shares of their baseline's neighbouring runs) |
//! | `noisy` | all of its runs were noisy, so that the summary is over noisy ones |
//!
//! Files of earlier releases lack `programs`, `load`, `settings`, `seconds` and `rounds`.
//!
//! Invariants:
//! 1. A run with a failed check has no values.
//! 2. A summary is over the runs that are not noisy, if there are any.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::experiment::SweepPoint;
use crate::experiments;
use crate::machine::{HostInfo, LoadAround, Noise};
use crate::parameters::{Params, RunSettings, Scale};
use crate::program::ProgramInfo;
use crate::sample::{Check, MetricValues, TimelinePoint};
use crate::statistics::median;
use crate::target::TargetJob;

/// The version of the format.
pub const SCHEMA: u32 = 1;
/// The share of noisy runs from which the machine counts as busy.
pub const BUSY: f64 = 0.25;

/// The programs of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurementPrograms {
    /// The one that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring: Option<ProgramInfo>,
    /// The one whose servers, proxies and storage nodes were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<ProgramInfo>,
}

/// All results of a run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are those of the module's table.
pub struct Results {
    pub schema: u32,
    pub experiment: String,
    pub title: String,
    pub commit: String,
    pub version: String,
    #[serde(default)]
    pub profile: String,
    #[serde(default)]
    pub programs: MeasurementPrograms,
    pub started: u64,
    pub complete: bool,
    #[serde(default)]
    pub rounds: usize,
    pub recorded: bool,
    pub host: HostInfo,
    #[serde(default)]
    pub load: LoadAround,
    pub scale: Scale,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<RunSettings>,
    pub points: Vec<PointResult>,
}

/// All results of the runs of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are those of the module's table.
pub struct PointResult {
    pub id: String,
    pub params: Params,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    pub job: TargetJob,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub repetitions: Vec<RunResult>,
    pub summary: BTreeMap<String, MetricSummary>,
    pub noisy: bool,
}

/// One run of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are those of the module's table.
pub struct RunResult {
    pub round: usize,
    pub order: usize,
    #[serde(default)]
    pub seconds: f64,
    pub values: MetricValues,
    pub checks: Vec<Check>,
    pub noise: Noise,
    #[serde(rename = "course", default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelinePoint>,
}

/// The summary of a metric over the runs of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are those of the module's table.
pub struct MetricSummary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// Why a result file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ResultFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a result, or of another version.
    #[error("{} is no result of schema {SCHEMA}: {what}; run the experiment again", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
}

impl PointResult {
    /// Creates a point that was not run yet.
    #[must_use]
    pub fn new(point: &SweepPoint) -> PointResult {
        PointResult {
            id: point.id.clone(),
            params: point.params.clone(),
            baseline: point.baseline.clone(),
            job: point.job.clone(),
            skipped: None,
            note: None,
            repetitions: Vec::new(),
            summary: BTreeMap::new(),
            noisy: false,
        }
    }

    /// Returns the first check that failed.
    #[must_use]
    pub fn failure(&self) -> Option<&Check> {
        let checks = self.repetitions.iter().flat_map(|run| &run.checks);
        checks.into_iter().find(|check| check.failure.is_some())
    }

    /// Returns the runs that count: those in a quiet time, if there are any.
    pub(crate) fn counted(&self) -> Vec<&RunResult> {
        let runs = || self.repetitions.iter().filter(|run| run.passed());
        let quiet: Vec<_> = runs().filter(|run| !run.noise.noisy).collect();
        if quiet.is_empty() {
            runs().collect()
        } else {
            quiet
        }
    }
}

impl RunResult {
    fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.failure.is_none())
    }
}

impl Results {
    /// Sums up every point.
    pub fn summarise(&mut self) {
        let all: Vec<PointResult> = self.points.clone();
        for point in &mut self.points {
            let baseline = point.baseline.as_ref();
            let baseline = baseline.and_then(|id| all.iter().find(|other| other.id == *id));
            point.summary = if point.failure().is_some() {
                BTreeMap::new()
            } else {
                summary(point, baseline)
            };
            point.noisy = !point.repetitions.is_empty()
                && point.repetitions.iter().all(|run| run.noise.noisy);
        }
    }

    /// Returns points whose check failed, with the check.
    pub fn failures(&self) -> impl Iterator<Item = (&PointResult, &Check)> {
        self.points
            .iter()
            .filter_map(|point| Some((point, point.failure()?)))
    }

    /// Returns what is to be said if rounds were left out because time was short.
    #[must_use]
    pub fn shortened(&self) -> Option<String> {
        let (made, due) = (self.rounds, self.scale.repetitions);
        let is_short = self.complete && !self.recorded && (1..due).contains(&made);
        is_short.then(|| format!("{made} of {due} rounds were made, because time was short"))
    }

    /// Returns what shows that others used the machine, if they did: more than
    /// [`NOISY`](crate::machine::NOISY) cores before the first run or after the last one, or
    /// [`BUSY`] of all runs are noisy.
    #[must_use]
    pub fn busy(&self) -> Option<String> {
        let idle = |noise: Option<Noise>, when: &str| {
            let foreign = noise.filter(|noise| noise.noisy)?.foreign;
            Some(format!("others used {foreign:.2} cores {when}"))
        };
        let runs: Vec<&RunResult> = self.points.iter().flat_map(|p| &p.repetitions).collect();
        let noisy = runs.iter().filter(|run| run.noise.noisy).count();
        let disturbed = noisy > 0 && noisy as f64 >= BUSY * runs.len() as f64;
        let disturbed = disturbed.then(|| format!("{noisy} of {} runs were disturbed", runs.len()));
        let reasons = [
            idle(self.load.before, "before the first run"),
            idle(self.load.after, "after the last run"),
            disturbed,
        ];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Writes the file, replacing an older one at once.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn write(&self, dir: &Path) -> std::io::Result<PathBuf> {
        fs::create_dir_all(dir)?;
        let path = dir.join(file_name(&self.experiment));
        let draft = dir.join(format!(".{}.json.new", self.experiment));
        fs::write(&draft, serde_json::to_string_pretty(self)? + "\n")?;
        fs::rename(&draft, &path)?;
        Ok(path)
    }

    /// Reads the results of all experiments in a directory, in the order of the experiments.
    ///
    /// # Errors
    /// Returns an error if it cannot be listed, or one of the files is no result.
    pub fn read_all(dir: &Path) -> Result<Vec<Results>, ResultFileError> {
        let failed = |source| ResultFileError::Io {
            path: dir.to_owned(),
            source,
        };
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            files.insert(entry.map_err(failed)?.file_name());
        }
        let paths = experiments::ALL.iter().map(|one| file_name(one.name));
        let there = paths.filter(|name| files.contains(OsStr::new(name)));
        there.map(|name| Results::read(&dir.join(name))).collect()
    }

    /// Reads the result of an experiment in a directory.
    ///
    /// # Errors
    /// Returns an error if it is not there, or no result.
    pub fn of_experiment(dir: &Path, experiment: &str) -> Result<Results, ResultFileError> {
        Results::read(&dir.join(file_name(experiment)))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if it is no result.
    pub fn read(path: &Path) -> Result<Results, ResultFileError> {
        let format = |what: String| ResultFileError::Format {
            path: path.to_owned(),
            what,
        };
        let text = fs::read_to_string(path).map_err(|source| ResultFileError::Io {
            path: path.to_owned(),
            source,
        })?;
        // The schema first: this program does not know the meaning of an unknown one.
        #[derive(Deserialize)]
        struct Schema {
            schema: u32,
        }
        let Schema { schema } =
            serde_json::from_str(&text).map_err(|error| format(error.to_string()))?;
        if schema != SCHEMA {
            return Err(format(format!("it is of schema {schema}")));
        }
        serde_json::from_str(&text).map_err(|error| format(error.to_string()))
    }
}

/// Returns the name of the file with the results of an experiment.
fn file_name(experiment: &str) -> String {
    format!("{experiment}.json")
}

fn summary(point: &PointResult, baseline: Option<&PointResult>) -> BTreeMap<String, MetricSummary> {
    let runs = point.counted();
    let mut metrics: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for run in &runs {
        for (metric, &value) in &run.values.0 {
            metrics.entry(metric).or_default().push(value);
        }
    }
    let summary = |(metric, values): (&str, Vec<f64>)| {
        let shares = runs.iter().filter_map(|run| {
            let value = run.values.get(metric)?;
            let beside = beside(baseline?, run, metric)?;
            (beside != 0.0).then(|| value / beside)
        });
        let shares: Vec<f64> = shares.collect();
        let summary = MetricSummary {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            median: median(values).unwrap_or_default(),
            share: median(shares),
        };
        (metric.to_owned(), summary)
    };
    metrics.into_iter().map(summary).collect()
}

/// Returns the baseline's value beside a run: the mean of its last run before and its first after,
/// within the same repetition.
fn beside(baseline: &PointResult, run: &RunResult, metric: &str) -> Option<f64> {
    let around = baseline
        .repetitions
        .iter()
        .filter(|other| other.round == run.round);
    let before = around.clone().filter(|other| other.order < run.order);
    let after = around.filter(|other| other.order > run.order);
    let value = |run: &RunResult| run.values.get(metric);
    let before = before.max_by_key(|other| other.order).and_then(value);
    let after = after.min_by_key(|other| other.order).and_then(value);
    match (before, after) {
        (Some(a), Some(b)) => Some(f64::midpoint(a, b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
pub(crate) mod tests;
