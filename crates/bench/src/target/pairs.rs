//! Two kinds of transactions on clusters, many short runs of each by turns: for differences that
//! are smaller than the variation of a machine.
//!
//! A *pair* is a run of the first and a run of the second, side by side; every other pair has the
//! second one first. Each run has servers of its own. The quotient of a pair, second by first,
//! counts. The results are the median of the quotients and an interval around it, the one of the
//! sign test: for any distribution, the true median lies within it with [`CONFIDENCE`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::experiment::Scale;
use crate::result::median;
use crate::sample::{RunError, Sample, Values};
use crate::target::{ClusterJob, Context, cluster};

/// The least probability that the true median is within the interval.
const CONFIDENCE: f64 = 0.95;
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

pub(super) fn run(job: &PairsJob, context: &Context<'_>) -> Result<Sample, RunError> {
    let scale = shorter(context.scale);
    let context = Context {
        scale: &scale,
        disk: context.disk.clone(),
        memory: context.memory.clone(),
        ..*context
    };
    let mut sample = Sample::default();
    let mut pairs: Vec<[Values; 2]> = Vec::new();
    for pair in 0..job.pairs {
        let mut values = [Values::default(), Values::default()];
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
        let ratio = |[first, second]: &[Values; 2]| Some(second.get(metric)? / first.get(metric)?);
        let ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
        if let Some([from, to]) = interval(&ratios) {
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

/// Returns the narrowest interval between two of the values, equally far from both ends, that
/// contains the median of their distribution with [`CONFIDENCE`]. `None` if there are too few of
/// them.
fn interval(values: &[f64]) -> Option<[f64; 2]> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    // The probability that fewer than `outside + 1` of them are below the median.
    let mut tail = 0.5f64.powi(i32::try_from(n).ok()?);
    let mut likely = tail;
    let mut outside = None;
    for k in 0..n / 2 {
        if 2.0 * tail > 1.0 - CONFIDENCE {
            break;
        }
        outside = Some(k);
        likely *= (n - k) as f64 / (k + 1) as f64;
        tail += likely;
    }
    let k = outside?;
    Some([values[k], values[n - 1 - k]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places are those in tables of the sign test, from 1 on.
    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        for (n, place) in [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (25, 8), (50, 18)] {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let expected = [f64::from(place), f64::from(n + 1 - place)];
            assert_eq!(interval(&values), Some(expected), "{n}");
        }
        assert_eq!(interval(&[1.0; 5]), None);
        assert_eq!(interval(&[]), None);
    }

    #[test]
    fn the_interval_contains_the_median_as_often_as_it_says() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut inside = 0;
        for _ in 0..2000 {
            let values: Vec<f64> = (0..20).map(|_| rng.f64().powi(3)).collect();
            let [low, high] = interval(&values).unwrap();
            inside += usize::from(low <= 0.125 && 0.125 <= high);
        }
        // 95.9 % is what the interval of twenty has.
        assert!((1880..=1955).contains(&inside), "{inside}");
    }

    #[test]
    fn runs_are_shorter_and_long_enough() {
        let scale = |time, warm_up| Scale {
            time: Duration::from_millis(time),
            warm_up: Duration::from_millis(warm_up),
            ..Scale::of(crate::experiment::Effort::Full)
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
