//! Latencies: a histogram of bounded size and known precision, and its figures.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::sample::MetricValues;

/// Longer latencies count as this one.
const LONGEST: Duration = Duration::from_secs(1000);
/// Significant digits that are kept.
const DIGITS: u8 = 3;

/// Latencies of many operations.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        let longest = LONGEST.as_nanos() as u64;
        Latencies(Histogram::new_with_bounds(1, longest, DIGITS).expect("the bounds make sense"))
    }
}

impl Latencies {
    /// Adds one latency.
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record((took.as_nanos() as u64).max(1));
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns their mean in milliseconds.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        self.0.mean() / 1e6
    }

    /// Returns the latency that `share` of them, from 0 to 1, do not exceed, in milliseconds.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e6
    }

    /// Adds mean, quantiles and maximum to `values`, if there are any latencies.
    pub fn add_figures(&self, values: &mut MetricValues) {
        if self.count() == 0 {
            return;
        }
        values.set("latency", self.mean_ms());
        values.set("latency-p50", self.quantile_ms(0.5));
        values.set("latency-p99", self.quantile_ms(0.99));
        values.set("latency-p999", self.quantile_ms(0.999));
        values.set("latency-max", self.quantile_ms(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_histograms_hold_what_both_held() {
        let (mut a, mut b, mut both) = Default::default();
        let fill = |from: u64, to: u64, some: &mut Latencies, all: &mut Latencies| {
            for ms in from..to {
                some.record(Duration::from_millis(ms));
                all.record(Duration::from_millis(ms));
            }
        };
        fill(1, 51, &mut a, &mut both);
        fill(51, 101, &mut b, &mut both);
        a.merge(&b);
        assert_eq!((a.count(), a.mean_ms()), (100, both.mean_ms()));
        for share in [0.5, 0.99, 1.0] {
            assert_eq!(a.quantile_ms(share), both.quantile_ms(share));
        }
        assert!((a.quantile_ms(0.5) - 50.0).abs() < 0.1);
        assert!((a.mean_ms() - 50.5).abs() < 0.1);
    }

    #[test]
    fn extremes_are_kept() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(100_000));
        assert_eq!(latencies.count(), 2);
        assert!(latencies.quantile_ms(1.0) >= 999_000.0);
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        let mut values = MetricValues::default();
        Latencies::default().add_figures(&mut values);
        assert_eq!(values, MetricValues::default());
    }
}
