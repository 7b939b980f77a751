//! Two results beside each other: which metrics of which points differ, and whether the difference is
//! more than chance.
//!
//! **The rule.** The repetitions of a metric at a point are *apart* if the greatest of one result is
//! below the least of the other. If nothing had changed, all orders of the repetitions would be equally
//! likely, and *n* and *m* of them would be apart with the probability 2 / C(*n* + *m*, *n*): that of
//! the most extreme outcome of the Mann–Whitney test, which assumes no distribution. Ranges that are
//! apart count as a difference if it is at most [`CHANCE`], that is from four repetitions on each side
//! on; otherwise there are too few runs to tell.
//!
//! Invariants:
//! 1. Results are compared only if they are of one experiment at one scale, and points only if they have
//!    one id and one job.
//! 2. Only the runs that count for a summary are compared: quiet ones, if a point has any.

mod text;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::parameters::Scale;
use crate::program::ProgramInfo;
use crate::result::{PointResult, ResultFileError, Results};
use crate::statistics::median;

/// The greatest probability of ranges that are apart by chance, so that they count as a difference.
pub const CHANCE: f64 = 0.05;

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
pub enum DifferenceError {
    /// A result cannot be read.
    #[error(transparent)]
    Read(#[from] ResultFileError),
    /// There are no results.
    #[error("{} holds no results; `kumiki-bench run NAME --out {}` makes some", path.display(), path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// No experiment is in both.
    #[error("{} and {} have no experiment in common: {a_names}; {b_names}", a.display(), b.display())]
    Disjoint {
        /// The first file or directory.
        a: PathBuf,
        /// The second one.
        b: PathBuf,
        /// The experiments of the first.
        a_names: String,
        /// The experiments of the second.
        b_names: String,
    },
    /// No experiment that is in both can be compared.
    #[error("nothing can be compared:\n{0}")]
    Refused(String),
}

/// All results of two files or directories beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differences {
    /// The first file or directory.
    pub a: PathBuf,
    /// The second one.
    pub b: PathBuf,
    /// The experiments that were compared.
    pub results: Vec<ResultDifference>,
    /// The experiments in both that cannot be compared.
    pub refused: Vec<Incomparable>,
    /// The experiments in the first one alone.
    pub only_in_a: Vec<String>,
    /// The experiments in the second one alone.
    pub only_in_b: Vec<String>,
}

/// An experiment or a point that is in both, and cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Incomparable {
    /// The experiment, or the point.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// Two results of one experiment beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultDifference {
    /// The experiment.
    pub experiment: String,
    /// What distinguishes the two runs: commits, programs, machines, settings.
    pub conditions: Vec<ConditionDifference>,
    /// What a reader must know of the first result.
    pub notices_a: Vec<String>,
    /// What a reader must know of the second one.
    pub notices_b: Vec<String>,
    /// The points that were compared.
    pub points: Vec<PointDifference>,
    /// The points in both that cannot be compared.
    pub refused: Vec<Incomparable>,
    /// The points in the first one alone.
    pub only_in_a: Vec<String>,
    /// The points in the second one alone.
    pub only_in_b: Vec<String>,
}

/// A condition in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionDifference {
    /// The condition.
    pub what: &'static str,
    /// Its value in the first result.
    pub a: String,
    /// Its value in the second one.
    pub b: String,
}

/// A point beside the same point of another result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointDifference {
    /// Its id.
    pub id: String,
    /// Its metrics.
    pub metrics: Vec<MetricDifference>,
}

/// A metric of a point beside that of another result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricDifference {
    /// The metric.
    pub metric: String,
    /// The first result's repetitions.
    pub a: MetricRange,
    /// The second one's.
    pub b: MetricRange,
    /// The second median by the first, unless that is zero.
    pub quotient: Option<f64>,
    /// How the repetitions lie.
    pub ranges: RangeVerdict,
    /// The probability that as many repetitions are apart if nothing has changed.
    pub chance: f64,
}

/// The repetitions of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // The names say it.
pub struct MetricRange {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
}

/// How the repetitions of a metric in two results lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RangeVerdict {
    /// The ranges have values in common: no difference can be seen.
    Overlap,
    /// The ranges are apart, and that is hardly chance.
    Apart,
    /// The ranges are apart, but there are so few runs that this may be chance.
    TooFewRuns,
}

/// Compares two files or directories of results.
///
/// # Errors
/// Returns an error if one cannot be read, or nothing can be compared.
pub fn of_paths(a: &Path, b: &Path) -> Result<Differences, DifferenceError> {
    let (all_a, all_b) = (read(a)?, read(b)?);
    let names = |all: &[Results]| all.iter().map(|one| one.experiment.clone()).collect();
    let (a_names, b_names): (Vec<String>, Vec<String>) = (names(&all_a), names(&all_b));
    let mut differences = Differences {
        a: a.to_owned(),
        b: b.to_owned(),
        results: Vec::new(),
        refused: Vec::new(),
        only_in_a: without(&a_names, &b_names),
        only_in_b: without(&b_names, &a_names),
    };
    for one in &all_a {
        let Some(other) = all_b.iter().find(|b| b.experiment == one.experiment) else {
            continue;
        };
        match of_results(one, other) {
            Ok(difference) => differences.results.push(difference),
            Err(incomparable) => differences.refused.push(incomparable),
        }
    }
    if !differences.results.is_empty() {
        return Ok(differences);
    }
    if differences.refused.is_empty() {
        return Err(DifferenceError::Disjoint {
            a: a.to_owned(),
            b: b.to_owned(),
            a_names: a_names.join(", "),
            b_names: b_names.join(", "),
        });
    }
    let line =
        |incomparable: &Incomparable| format!("  {}: {}", incomparable.name, incomparable.why);
    let lines: Vec<String> = differences.refused.iter().map(line).collect();
    Err(DifferenceError::Refused(lines.join("\n")))
}

fn read(path: &Path) -> Result<Vec<Results>, DifferenceError> {
    if !path.is_dir() {
        return Ok(vec![Results::read(path)?]);
    }
    let all = Results::read_all(path)?;
    match all.is_empty() {
        true => Err(DifferenceError::Empty {
            path: path.to_owned(),
        }),
        false => Ok(all),
    }
}

fn without(some: &[String], others: &[String]) -> Vec<String> {
    let alone = some.iter().filter(|name| !others.contains(name));
    alone.cloned().collect()
}

/// Compares two results of one experiment, or refuses to.
fn of_results(a: &Results, b: &Results) -> Result<ResultDifference, Incomparable> {
    if let Some(why) = incompatible(a, b) {
        let name = a.experiment.clone();
        return Err(Incomparable { name, why });
    }
    let ids = |results: &Results| results.points.iter().map(|p| p.id.clone()).collect();
    let (a_ids, b_ids): (Vec<String>, Vec<String>) = (ids(a), ids(b));
    let mut difference = ResultDifference {
        experiment: a.experiment.clone(),
        conditions: conditions(a, b),
        notices_a: notices(a),
        notices_b: notices(b),
        points: Vec::new(),
        refused: Vec::new(),
        only_in_a: without(&a_ids, &b_ids),
        only_in_b: without(&b_ids, &a_ids),
    };
    for one in &a.points {
        let Some(other) = b.points.iter().find(|point| point.id == one.id) else {
            continue;
        };
        match of_points(one, other) {
            Ok(point) => difference.points.push(point),
            Err(why) => difference.refused.push(Incomparable {
                name: one.id.clone(),
                why,
            }),
        }
    }
    Ok(difference)
}

/// Returns why two results cannot be compared.
fn incompatible(a: &Results, b: &Results) -> Option<String> {
    if a.recorded || b.recorded {
        return Some("transactions were recorded, so that its figures say nothing".to_owned());
    }
    let scale = |scale: &Scale| {
        let seconds = |time: std::time::Duration| format!("{} s", time.as_secs_f64());
        let workers = scale
            .workers
            .map_or("by default".to_owned(), |n| n.to_string());
        [
            ("effort", format!("{:?}", scale.effort).to_lowercase()),
            ("records", scale.records.to_string()),
            ("seconds", seconds(scale.time)),
            ("warm-up", seconds(scale.warm_up)),
            ("size of files", scale.file_size.to_string()),
            ("workers", workers),
        ]
    };
    let pairs = scale(&a.scale).into_iter().zip(scale(&b.scale));
    let differing = pairs.filter(|(a, b)| a != b);
    let shown = differing.map(|((what, a), (_, b))| format!("{what} {a} and {b}"));
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| format!("the two are of different scales: {}", shown.join(", ")))
}

fn conditions(a: &Results, b: &Results) -> Vec<ConditionDifference> {
    let conditions = condition_list(a).into_iter().zip(condition_list(b));
    let differing = conditions.filter(|(a, b)| a.1 != b.1);
    let difference = |((what, a), (_, b))| ConditionDifference { what, a, b };
    differing.map(difference).collect()
}

/// Returns what distinguishes one run from another, and is neither its scale nor a figure.
fn condition_list(results: &Results) -> Vec<(&'static str, String)> {
    let Results { host, programs, .. } = results;
    let settings = results.settings.clone().unwrap_or_default();
    let hash = |program: &Option<ProgramInfo>| {
        program
            .as_ref()
            .map_or_else(unknown, |one| one.sha256.clone())
    };
    let measured = programs.measured.as_ref();
    let given = |value: Option<String>| value.unwrap_or_else(|| "not given".to_owned());
    vec![
        ("commit", results.commit.clone()),
        ("version", results.version.clone()),
        ("profile", results.profile.clone()),
        ("measuring program", hash(&programs.measuring)),
        (
            "measured version",
            measured.map_or_else(unknown, |one| one.version.clone()),
        ),
        ("measured program", hash(&programs.measured)),
        ("host", host.name.clone()),
        ("processor", host.processor.clone()),
        ("cores", host.cores.to_string()),
        ("memory", base::size::Size(host.memory).to_string()),
        ("system", host.system.clone()),
        ("disk", host.disk.clone()),
        ("in memory", host.in_memory.clone()),
        ("repetitions", results.scale.repetitions.to_string()),
        ("seed", settings.seed.to_string()),
        ("affinity", given(settings.affinity)),
        (
            "NUMA nodes that memory is interleaved over",
            given(settings.numa_nodes.map(|nodes| nodes.to_string())),
        ),
    ]
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn notices(results: &Results) -> Vec<String> {
    let stopped = (!results.complete).then(|| "stopped before its end".to_owned());
    let busy = results.busy();
    let busy = busy.map(|why| format!("measured on a busy machine: {why}"));
    stopped.into_iter().chain(busy).collect()
}

/// Compares two results of a point, or says why that cannot be done.
fn of_points(a: &PointResult, b: &PointResult) -> Result<PointDifference, String> {
    for (point, which) in [(a, "first"), (b, "second")] {
        if let Some(check) = point.failure() {
            return Err(format!("failed in the {which}: {}", check.name));
        }
        if let Some(why) = &point.skipped {
            return Err(format!("skipped in the {which}: {why}"));
        }
        if point.repetitions.is_empty() {
            return Err(format!("not measured in the {which}"));
        }
    }
    if a.job != b.job || a.params != b.params {
        return Err("the two measured something else: their jobs differ".to_owned());
    }
    let metrics = a.summary.keys().filter_map(|metric| {
        let (a, b) = (values(a, metric), values(b, metric));
        of_values(metric, &a, &b)
    });
    Ok(PointDifference {
        id: a.id.clone(),
        metrics: metrics.collect(),
    })
}

fn values(point: &PointResult, metric: &str) -> Vec<f64> {
    let runs = point.counted().into_iter();
    runs.filter_map(|run| run.values.get(metric)).collect()
}

/// Compares the repetitions of a metric; `None` if one side has none.
fn of_values(metric: &str, a: &[f64], b: &[f64]) -> Option<MetricDifference> {
    let (range_a, range_b) = (range(a)?, range(b)?);
    let chance = chance(a.len(), b.len());
    let apart = range_a.max < range_b.min || range_b.max < range_a.min;
    let ranges = match apart {
        false => RangeVerdict::Overlap,
        true if chance <= CHANCE => RangeVerdict::Apart,
        true => RangeVerdict::TooFewRuns,
    };
    Some(MetricDifference {
        metric: metric.to_owned(),
        quotient: (range_a.median != 0.0).then(|| range_b.median / range_a.median),
        a: range_a,
        b: range_b,
        ranges,
        chance,
    })
}

fn range(values: &[f64]) -> Option<MetricRange> {
    Some(MetricRange {
        median: median(values.to_vec())?,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        runs: values.len(),
    })
}

/// Returns the probability that `n` and `m` values of one distribution are apart: of all ways to
/// choose which of them are the first `n`, two have them all at one end.
fn chance(n: usize, m: usize) -> f64 {
    let choices: f64 = (1..=n).map(|i| (m + i) as f64 / i as f64).product();
    (2.0 / choices).min(1.0)
}

impl Differences {
    /// Returns the metrics of all points.
    fn metrics(&self) -> impl Iterator<Item = &MetricDifference> {
        let points = self.results.iter().flat_map(|result| &result.points);
        points.flat_map(|point| &point.metrics)
    }
}

#[cfg(test)]
mod tests;
