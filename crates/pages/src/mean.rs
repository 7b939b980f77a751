//! A mean of measurements, in which the latest ones count most.

use parking_lot::Mutex;

/// A mean that forgets: old measurements count little. It is `None` before enough was measured.
#[derive(Debug)]
pub struct Mean {
    /// The weight of measurements before the mean is used.
    enough: f64,
    /// About the weight over which the mean is taken.
    window: f64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    mean: f64,
    /// The weight of the measurements, at most `window`.
    weight: f64,
}

impl Mean {
    /// Makes a mean over about `window` things, which is used after `enough` of them were measured.
    #[must_use]
    pub fn new(enough: f64, window: f64) -> Mean {
        Mean {
            enough,
            window,
            state: Mutex::default(),
        }
    }

    /// Returns the mean; `None` as long as too little was measured.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        let state = *self.state.lock();
        (state.weight >= self.enough).then_some(state.mean)
    }

    /// Adds `count` things, each of which took `each`.
    pub fn add(&self, each: f64, count: f64) {
        if !each.is_finite() || count <= 0.0 {
            return;
        }
        let mut state = self.state.lock();
        state.weight = (state.weight + count).min(self.window.max(count));
        state.mean += (each - state.mean) * count / state.weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_mean_until_its_window_is_full_and_forgets_then() {
        let mean = Mean::new(3.0, 100.0);
        mean.add(10.0, 2.0);
        assert_eq!(mean.get(), None);
        mean.add(40.0, 1.0);
        assert_eq!(mean.get(), Some(20.0));
        for _ in 0..1000 {
            mean.add(7.0, 1.0);
        }
        assert!((mean.get().unwrap() - 7.0).abs() < 0.01);
        // If more than the window comes at once, nothing else counts.
        mean.add(9.0, 200.0);
        assert_eq!(mean.get(), Some(9.0));
        mean.add(f64::NAN, 1.0);
        mean.add(5.0, 0.0);
        assert_eq!(mean.get(), Some(9.0));
    }
}
