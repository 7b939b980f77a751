//! Intervals of ratios, by Student's distribution of their logarithms.

/// Where a ratio lies, with some confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    /// The geometric mean.
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Interval {
    /// Returns half of the interval's width, as a share of its ratio.
    pub(super) fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.ratio
    }
}

/// Returns the confidence of each of so many intervals with which all of them hold together (Šidák).
pub(super) fn of_each(together: f64, count: usize) -> f64 {
    together.powf(1.0 / count.max(1) as f64)
}

/// Returns the interval of the mean ratio of these independent observations; none of fewer than two.
pub(super) fn interval(ratios: &[f64], confidence: f64) -> Option<Interval> {
    let count = ratios.len() as f64;
    if count < 2.0 {
        return None;
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let reach = error * student(confidence, count - 1.0);
    Some(Interval {
        ratio: mean.exp(),
        low: (mean - reach).exp(),
        high: (mean + reach).exp(),
    })
}

/// Returns the number of standard errors to either side that hold this share of Student's distribution.
fn student(confidence: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while within(high, freedom) < confidence && high < 1e9 {
        high *= 2.0;
    }
    // As many halvings as a number has bits.
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if within(middle, freedom) < confidence {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Returns the share of Student's distribution within `t` to either side of 0.
fn within(t: f64, freedom: f64) -> f64 {
    1.0 - incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// Returns the regularized incomplete beta function, by its continued fraction (Lentz).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges quickly on this side only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = a * x.ln() + b * (1.0 - x).ln() - log_beta(a, b);
    let mut c = 1.0;
    let mut d = 1.0 / (1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..500 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / (1.0 + even * d);
        c = 1.0 + even / c;
        fraction *= c * d;
        d = 1.0 / (1.0 + odd * d);
        c = 1.0 + odd / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front.exp() * fraction / a
}

fn log_beta(a: f64, b: f64) -> f64 {
    log_gamma(a) + log_gamma(b) - log_gamma(a + b)
}

/// Returns the logarithm of the gamma function of a positive number: Stirling's series, from where it is exact.
fn log_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 12.0 {
        shift += x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, by: f64) {
        assert!((found - wanted).abs() < by, "{found} instead of {wanted}");
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (confidence, freedom, wanted) in [
            (0.95, 1.0, 12.706),
            (0.95, 4.0, 2.776),
            (0.95, 11.0, 2.201),
            (0.99, 9.0, 3.250),
            (0.999, 20.0, 3.850),
            (0.95, 1000.0, 1.962),
        ] {
            near(student(confidence, freedom), wanted, 0.001);
        }
    }

    #[test]
    fn the_interval_of_known_ratios_is_found() {
        // Logarithms -0.02, 0, 0.01, 0.03: mean 0.005, standard error 0.0104083; t is 3.18245.
        let ratios = [-0.02_f64, 0.0, 0.01, 0.03].map(f64::exp);
        let found = interval(&ratios, 0.95).unwrap();
        near(found.ratio.ln(), 0.005, 1e-12);
        near(found.low.ln(), 0.005 - 0.033_124, 1e-5);
        near(found.high.ln(), 0.005 + 0.033_124, 1e-5);
        near(found.half_width(), 0.033_13, 1e-4);
        assert_eq!(interval(&ratios[..1], 0.95), None);
    }

    #[test]
    fn equal_ratios_leave_no_doubt() {
        let found = interval(&[1.25; 5], 0.95).unwrap();
        near(found.low, 1.25, 1e-12);
        near(found.high, 1.25, 1e-12);
    }

    #[test]
    fn many_intervals_hold_together_if_each_is_surer() {
        near(of_each(0.95, 1), 0.95, 1e-12);
        near(of_each(0.95, 12), 0.995_735, 1e-6);
    }
}
