//! Median, high percentiles and maximum of measured times.

use std::fmt;
use std::time::Duration;

/// Each is one of the measured times; a percentile is the least that so many of them do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of them take no longer.
    pub median: Duration,
    /// 99 of 100 take no longer. Of less than 100 times it is the greatest.
    pub p99: Duration,
    /// 999 of 1000 take no longer. Of less than 1000 times it is the greatest.
    pub p999: Duration,
    /// None takes longer.
    pub max: Duration,
}

impl Percentiles {
    /// Computes it from these times; without any, all are zero.
    #[must_use]
    pub fn of(times: impl IntoIterator<Item = Duration>) -> Percentiles {
        let mut times: Vec<Duration> = times.into_iter().collect();
        times.sort_unstable();
        let at = |share: f64| {
            let place = (times.len() as f64 * share).ceil() as usize;
            let time = times.get(place.saturating_sub(1)).copied();
            time.unwrap_or_default()
        };
        Percentiles {
            median: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        }
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, p99, max] = [self.median, self.p99, self.max].map(|time| time.as_millis());
        write!(f, "median {median} ms, p99 {p99} ms, max {max} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let spread = Percentiles::of((1..=100).rev().map(Duration::from_millis));
        let told = "median 50 ms, p99 99 ms, max 100 ms";
        assert_eq!(spread.to_string(), told);
        let many = Percentiles::of((1..=2000).map(Duration::from_millis));
        assert_eq!(many.p999, Duration::from_millis(1998));
        let [one, two] = [1, 2].map(Duration::from_millis);
        let few = Percentiles::of([two, one, one]);
        assert_eq!((few.median, few.p99, few.max), (one, two, two));
        assert_eq!(Percentiles::of([]), Percentiles::default());
    }
}
