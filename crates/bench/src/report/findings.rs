//! Comparisons with a paper's values, computed from results.

use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure};
use crate::result::{PointResult, Results};

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The subject of the comparison.
    pub what: &'static str,
    /// The paper's statement.
    pub paper: Option<&'static str>,
    /// The value measured here, if any.
    pub value: Option<f64>,
    /// The aim.
    pub aim: Option<Aim>,
}

impl Finding {
    /// Returns `true` if the aim is met; `None` without an aim or a value.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        match (self.aim?, self.value?) {
            (Aim::AtLeast(bound), value) => Some(value >= bound),
            (Aim::AtMost(bound), value) => Some(value <= bound),
        }
    }
}

/// Computes the findings of these rows.
#[must_use]
pub fn of(rows: &[Compare], results: &Results) -> Vec<Finding> {
    let find = |row: &Compare| Finding {
        what: row.what,
        paper: row.paper,
        value: measure(&row.ours, results),
        aim: row.aim,
    };
    rows.iter().map(find).collect()
}

type At = [(&'static str, Param)];

fn matching<'r>(results: &'r Results, at: &'r At) -> impl Iterator<Item = &'r PointResult> {
    let fits = |point: &&PointResult| {
        at.iter()
            .all(|(name, value)| point.params.get(*name) == Some(value))
    };
    results.points.iter().filter(fits)
}

fn greatest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}

fn value(results: &Results, metric: &str, at: &At) -> Option<f64> {
    let medians = matching(results, at).filter_map(|point| point.summary.get(metric));
    greatest(medians.map(|summary| summary.median))
}

fn measure(measure: &Measure, results: &Results) -> Option<f64> {
    match measure {
        Measure::Value { metric, at } => value(results, metric, at),
        Measure::Ratio { metric, of, to } => {
            let below = value(results, metric, to)?;
            (below != 0.0).then_some(value(results, metric, of)? / below)
        }
        Measure::Share { metric, at } => {
            let shares = matching(results, at).filter_map(|point| point.summary.get(*metric));
            greatest(shares.filter_map(|summary| summary.share))
        }
        Measure::Beaten { ours, others } => beaten(results, ours, others),
    }
}

/// Finds the other that beats us most. Returns the factor by which it beats even that one of ours
/// which comes closest to it, on the axis where it beats that less.
fn beaten(results: &Results, ours: &At, others: &At) -> Option<f64> {
    let axes = |point: &PointResult| {
        let median = |metric: &str| Some(point.summary.get(metric)?.median);
        Some((median("throughput")?, median("latency")?))
    };
    let ours: Vec<(f64, f64)> = matching(results, ours).filter_map(axes).collect();
    let by = |(throughput, latency): (f64, f64)| {
        let factor =
            |&(own, own_latency): &(f64, f64)| (throughput / own).min(own_latency / latency);
        ours.iter().map(factor).min_by(f64::total_cmp)
    };
    greatest(matching(results, others).filter_map(axes).filter_map(by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_access::DeviceAccess;
    use crate::experiment::SweepPoint;
    use crate::machine::Noise;
    use crate::result::RunResult;
    use crate::result::tests::results as made_up;
    use crate::run_context::StorageMedium;
    use crate::sample::{Check, MetricValues};
    use crate::target::{DeviceJob, TargetJob};

    fn results(points: &[(&str, f64, f64)]) -> Results {
        let job = DeviceJob {
            place: StorageMedium::Disk,
            device: DeviceAccess::File,
            piece: 512,
            sync_size: 512,
            threads: 1,
            warm_up: false,
        };
        let point = |(i, &(mode, throughput, latency)): (usize, &(&str, f64, f64))| {
            let params = [("mode", mode.into()), ("n", i.into())];
            let mut result = PointResult::new(&SweepPoint::new(params, TargetJob::Device(job)));
            let mut values = MetricValues::default();
            values.set("throughput", throughput);
            values.set("latency", latency);
            result.repetitions.push(RunResult {
                round: 0,
                order: i,
                seconds: 0.0,
                values,
                checks: vec![Check::new("fine", Ok(()))],
                noise: Noise::default(),
                timeline: Vec::new(),
            });
            result
        };
        made_up(points.iter().enumerate().map(point).collect())
    }

    fn at(mode: &str) -> Vec<(&'static str, Param)> {
        vec![("mode", mode.into())]
    }

    #[test]
    fn the_best_of_ours_stands_against_each_of_the_others() {
        let all = results(&[
            ("adaptive", 100.0, 3.0),
            ("adaptive", 120.0, 10.0),
            // Beats the second on both axes by a fifth at least, but not the first.
            ("fixed", 144.0, 5.0),
            ("fixed", 60.0, 2.0),
        ]);
        let ours = Measure::Beaten {
            ours: at("adaptive"),
            others: at("fixed"),
        };
        let factor = measure(&ours, &all).unwrap();
        assert!((factor - 0.6).abs() < 1e-9, "{factor}");
        let worse = results(&[("adaptive", 100.0, 3.0), ("fixed", 150.0, 1.0)]);
        let factor = measure(&ours, &worse).unwrap();
        assert!((factor - 1.5).abs() < 1e-9, "{factor}");
        assert_eq!(measure(&ours, &results(&[])), None);
    }

    #[test]
    fn values_ratios_and_aims() {
        let all = results(&[("a", 100.0, 9.0), ("a", 50.0, 8.0), ("b", 80.0, 3.0)]);
        let ratio = Measure::Ratio {
            metric: "latency",
            of: at("a"),
            to: at("b"),
        };
        let row = Compare {
            what: "shortened by",
            paper: Some("2.8"),
            ours: ratio,
            aim: Some(Aim::AtLeast(2.8)),
        };
        let found = &of(&[row], &all)[0];
        assert_eq!((found.value, found.met()), (Some(3.0), Some(true)));
        let missed = Finding {
            value: Some(2.0),
            ..found.clone()
        };
        assert_eq!(missed.met(), Some(false));
        assert_eq!(
            Finding {
                value: None,
                ..missed
            }
            .met(),
            None
        );
    }
}
