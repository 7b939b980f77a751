//! Pauses between attempts.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

/// Counts the attempts of a call, and their deadline.
pub(crate) struct Backoff {
    pub(crate) deadline: Instant,
    pub(crate) attempts: u32,
}

impl Backoff {
    pub(crate) fn until(deadline: Instant) -> Backoff {
        Backoff {
            deadline,
            attempts: 0,
        }
    }

    /// Pauses before the next attempt. The pauses grow and are random, so that clients that got in each
    /// other's way do not do so again. Returns `false` if no time is left.
    pub(crate) fn pause(&mut self) -> bool {
        self.attempts += 1;
        let longest = LONGEST.min(FIRST * (1 << (self.attempts - 1).min(10)));
        let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left <= pause {
            return false;
        }
        std::thread::sleep(pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_with_the_time() {
        let begun = Instant::now();
        let limit = Duration::from_millis(60);
        let mut backoff = Backoff::until(begun + limit);
        while backoff.pause() {}
        assert!(begun.elapsed() < limit * 3);
        assert!((4..20).contains(&backoff.attempts), "{}", backoff.attempts);
    }
}
