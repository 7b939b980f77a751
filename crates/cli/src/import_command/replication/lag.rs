//! How far the target is behind the source.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// See the module's description.
#[derive(Default)]
pub(super) struct Lag {
    /// Offsets of the source that are not applied, with the times at which the source had them.
    ahead: VecDeque<(Instant, u64)>,
    /// The last offset of the source that is known.
    newest: Option<u64>,
}

impl Lag {
    /// Notes that the source has this offset.
    pub(super) fn note_source(&mut self, offset: u64) {
        self.newest = Some(offset);
        self.ahead.push_back((Instant::now(), offset));
    }

    /// Notes that the stream is applied up to this offset.
    pub(super) fn note_applied(&mut self, offset: u64) {
        while self
            .ahead
            .front()
            .is_some_and(|(_, of_source)| *of_source <= offset)
        {
            self.ahead.pop_front();
        }
    }

    /// Returns the number of bytes that were not applied when the source was last asked; `None`: it was not.
    pub(super) fn bytes(&self, applied: u64) -> Option<u64> {
        self.newest.map(|newest| newest.saturating_sub(applied))
    }

    /// Returns for how long something has not been applied.
    pub(super) fn time(&self) -> Duration {
        self.ahead
            .front()
            .map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_no_lag() {
        let mut lag = Lag::default();
        assert_eq!(lag.bytes(0), None);
        lag.note_source(100);
        lag.note_source(150);
        lag.note_applied(120);
        assert_eq!(lag.bytes(120), Some(30));
        assert_eq!(lag.ahead.len(), 1);
        lag.note_applied(150);
        assert_eq!((lag.bytes(170), lag.time()), (Some(0), Duration::ZERO));
    }
}
