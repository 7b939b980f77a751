//! Scales from values to places, with round ticks.

use crate::metric;

/// Values that differ by more than this factor get a logarithmic scale.
pub(super) const WIDE: f64 = 6.0;
/// More values than this get ticks at powers of two instead of their own, if they double.
const TICKS: usize = 12;

/// A scale from values to a stretch of the figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    min: f64,
    max: f64,
    log: bool,
    /// The places of ticks, and their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates a scale from zero to a round number above all values.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Axis {
        let most = values.fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_step(most / 5.0);
        let count = (most / step - 1e-9).ceil() as usize;
        let at = |i: usize| i as f64 * step;
        Axis {
            min: 0.0,
            max: at(count),
            log: false,
            ticks: (0..=count).map(|i| (at(i), metric::tick(at(i)))).collect(),
        }
    }

    /// Creates a logarithmic scale if the greatest value is more than `wide` times the least,
    /// otherwise one from zero.
    pub(super) fn fitting(values: impl Iterator<Item = f64> + Clone, wide: f64) -> Axis {
        let most = values.clone().fold(0.0, f64::max);
        let least = values
            .clone()
            .filter(|v| *v > 0.0)
            .fold(f64::INFINITY, f64::min);
        if most / least < wide || !least.is_finite() {
            return Axis::from_zero(values);
        }
        let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let steps = (low..=high).flat_map(|power| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(power)));
        let ticks: Vec<f64> = steps.collect();
        let below = ticks
            .iter()
            .copied()
            .filter(|t| *t <= least)
            .fold(f64::NAN, f64::max);
        let above = ticks
            .iter()
            .copied()
            .filter(|t| *t >= most)
            .fold(f64::NAN, f64::min);
        let within = ticks.into_iter().filter(|t| (below..=above).contains(t));
        Axis {
            min: below,
            max: above,
            log: true,
            ticks: within.map(|t| (t, metric::tick(t))).collect(),
        }
    }

    /// Creates a scale from a round number below all values to one above.
    pub(super) fn spanning(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        if !(most > least && least > 0.0) {
            return Axis::from_zero(values);
        }
        let step = round_step((most - least) / 4.0);
        let (first, last) = ((least / step).floor(), (most / step).ceil());
        let at = |i: usize| (first + i as f64) * step;
        let count = (last - first) as usize;
        Axis {
            min: at(0),
            max: at(count),
            log: false,
            ticks: (0..=count).map(|i| (at(i), metric::tick(at(i)))).collect(),
        }
    }

    /// Creates a scale of these values alone, at equal distances if each is about twice the one
    /// before. Many values that double have ticks at the powers of two among them.
    pub(super) fn at(values: &[f64], doubling: bool, label: impl Fn(f64) -> String) -> Axis {
        let (min, max) = (values.first(), values.last());
        let (min, max) = (min.copied().unwrap_or(0.0), max.copied().unwrap_or(1.0));
        let log = doubling && min > 0.0;
        let powers: Vec<f64> = (0..64).map(|power| 2f64.powi(power)).collect();
        let powers: Vec<f64> = powers
            .into_iter()
            .filter(|v| (min..=max).contains(v))
            .collect();
        let ticks = match log && values.len() > TICKS {
            true => &powers[..],
            false => values,
        };
        Axis {
            min,
            max: if max > min { max } else { min + 1.0 },
            log,
            ticks: ticks.iter().map(|&v| (v, label(v))).collect(),
        }
    }

    /// Returns the place of a value, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.log {
            let value = value.max(self.min);
            (value / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        }
    }
}

/// Returns the next of 1, 2, 2.5, 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * power);
    let fits = steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9));
    fits.unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_scale_ends_at_a_round_number() {
        let axis = Axis::from_zero([3.0, 9.1].into_iter());
        let ticks: Vec<&str> = axis.ticks.iter().map(|tick| tick.1.as_str()).collect();
        assert_eq!(ticks, ["0", "2", "4", "6", "8", "10"]);
        assert_eq!((axis.place(0.0), axis.place(10.0)), (0.0, 1.0));
        assert_eq!(Axis::from_zero(std::iter::empty()).max, 1.0);
    }

    #[test]
    fn a_wide_range_is_logarithmic() {
        let axis = Axis::fitting([0.9, 60.0].into_iter(), 40.0);
        assert!(axis.log);
        assert_eq!((axis.min, axis.max), (0.5, 100.0));
        assert!((axis.place(5.0) - 0.4346).abs() < 0.001);
        assert!(!Axis::fitting([0.0, 0.0].into_iter(), 40.0).log);
        assert!(!Axis::fitting([1.0, 30.0].into_iter(), 40.0).log);
    }

    #[test]
    fn a_spanning_scale_need_not_begin_at_zero() {
        let axis = Axis::spanning([137.0, 244.0].into_iter());
        assert_eq!((axis.min, axis.max), (100.0, 250.0));
        assert_eq!(Axis::spanning([7.0].into_iter()).min, 0.0);
    }

    #[test]
    fn doubling_values_stand_at_equal_distances() {
        let axis = Axis::at(&[1.0, 2.0, 4.0], true, metric::tick);
        assert!((axis.place(2.0) - 0.5).abs() < 1e-9);
        assert_eq!(Axis::at(&[3.0], false, metric::tick).place(3.0), 0.0);
        let many: Vec<f64> = (1..=20).map(f64::from).collect();
        let ticks = Axis::at(&many, true, metric::tick).ticks;
        let ticks: Vec<f64> = ticks.into_iter().map(|tick| tick.0).collect();
        assert_eq!(ticks, [1.0, 2.0, 4.0, 8.0, 16.0]);
    }
}
