//! Medians, and intervals around them.

/// The least probability that the true median is within the interval.
const CONFIDENCE: f64 = 0.95;
/// Returns the median of some values; `None` if there are none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}

/// Returns the narrowest interval between two of the values, equally far from both ends, that
/// contains the median of their distribution with [`CONFIDENCE`]. `None` if there are too few of
/// them.
pub(crate) fn median_interval(values: &[f64]) -> Option<[f64; 2]> {
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
            assert_eq!(median_interval(&values), Some(expected), "{n}");
        }
        assert_eq!(median_interval(&[1.0; 5]), None);
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn the_interval_contains_the_median_as_often_as_it_says() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut inside = 0;
        for _ in 0..2000 {
            let values: Vec<f64> = (0..20).map(|_| rng.f64().powi(3)).collect();
            let [low, high] = median_interval(&values).unwrap();
            inside += usize::from(low <= 0.125 && 0.125 <= high);
        }
        // 95.9 % is what the interval of twenty has.
        assert!((1880..=1955).contains(&inside), "{inside}");
    }
}
