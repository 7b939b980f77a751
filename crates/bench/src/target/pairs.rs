//! Two kinds of transactions on clusters, many short runs of each by turns: for differences that
//! are smaller than the variation of a machine.
//!
//! A *pair* is a run of the first and a run of the second, side by side; every other pair has the
//! second one first. Each run has servers of its own. The quotient of a pair, second by first,
//! counts. The results are the median of the quotients and the interval of the sign test around it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::parameters::Scale;
use crate::run_context::RunContext;
use crate::sample::{MetricValues, RunSample};
use crate::statistics::{median, median_interval};
use crate::target::cluster::{self, ClusterJob};

/// A run of a pair takes this part of what others take,
const PART: u32 = 4;
/// but not less than this, if others take that much.
const SHORTEST: Duration = Duration::from_millis(200);

/// Pairs of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairsJob {
    /// The denominator.
    pub first: ClusterJob,
    /// The numerator.
    pub second: ClusterJob,
    /// How many pairs.
    pub pairs: usize,
}

pub(super) fn run(job: &PairsJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let scale = shorter(context.scale);
    let context = RunContext {
        scale: &scale,
        disk: context.disk.clone(),
        memory: context.memory.clone(),
        ..*context
    };
    let mut sample = RunSample::default();
    let mut pairs: Vec<[MetricValues; 2]> = Vec::new();
    for pair in 0..job.pairs {
        let mut values = [MetricValues::default(), MetricValues::default()];
        for place in [pair % 2, 1 - pair % 2] {
            let one = cluster::run([&job.first, &job.second][place], &context)?;
            let failed = one.failure().is_some();
            values[place] = one.values;
            (sample.checks, sample.note) = (one.checks, one.note);
            if failed {
                return Ok(sample);
            }
        }
        pairs.push(values);
    }
    let metrics = [
        ("throughput", ["ratio", "ratio-low", "ratio-high"]),
        ("cpu", ["cpu-ratio", "cpu-ratio-low", "cpu-ratio-high"]),
    ];
    for (metric, [middle, low, high]) in metrics {
        let ratio =
            |[first, second]: &[MetricValues; 2]| Some(second.get(metric)? / first.get(metric)?);
        let ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
        if let Some([from, to]) = median_interval(&ratios) {
            sample.values.set(low, from);
            sample.values.set(high, to);
        }
        sample
            .values
            .set(middle, median(ratios).unwrap_or(f64::NAN));
    }
    Ok(sample)
}

fn shorter(scale: &Scale) -> Scale {
    let part = |time: Duration, least: Duration| (time / PART).max(time.min(least));
    Scale {
        time: part(scale.time, SHORTEST),
        warm_up: part(scale.warm_up, SHORTEST / 4),
        ..scale.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_shorter_and_long_enough() {
        let scale = |time, warm_up| Scale {
            time: Duration::from_millis(time),
            warm_up: Duration::from_millis(warm_up),
            ..Scale::of(crate::parameters::Effort::Full)
        };
        for (of, expected) in [
            (scale(2000, 500), scale(500, 125)),
            (scale(200, 80), scale(200, 50)),
            (scale(100, 20), scale(100, 20)),
        ] {
            assert_eq!(shorter(&of), expected);
        }
    }
}
