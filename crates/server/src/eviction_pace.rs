//! When a runtime evicts keys: before commands that need memory, and in its turns as long as there is too little.
//!
//! An eviction frees a little more than the command needs, so that the next ones need not look.

use std::time::Duration;

use base::Abort;
use store::Evicted;

/// The longest time of an eviction.
pub(crate) const SLICE: Duration = Duration::from_micros(500);
/// The time after which memory is looked at again if others may have used some.
pub(crate) const LOOK: Duration = Duration::from_millis(10);
/// The memory of a command besides its bytes.
const COMMAND_BYTES: u64 = 128;
/// The most memory that is freed ahead, and its share of the limit.
const AHEAD: u64 = 16 * 1024;
const AHEAD_SHARE: u64 = 256;

/// See the module's description.
#[derive(Default)]
pub(crate) struct EvictionPace {
    /// Memory that was made free, and was not given to commands yet.
    ahead: u64,
    /// More must be evicted, and can be.
    pub(crate) is_behind: bool,
    /// The time, since the server's start, at which memory is looked at again.
    pub(crate) due: Option<Duration>,
}

impl EvictionPace {
    /// Returns `true` if a command with `bytes` may be executed without an eviction.
    #[inline]
    pub(crate) fn takes(&mut self, bytes: usize) -> bool {
        let needed = bytes as u64 + COMMAND_BYTES;
        let left = self.ahead.checked_sub(needed);
        self.ahead = left.unwrap_or(0);
        left.is_some() && !self.is_behind
    }

    /// Returns the memory that an eviction frees before a command with `bytes`.
    pub(crate) fn wanted(bytes: usize, limit: u64) -> u64 {
        bytes as u64 + COMMAND_BYTES + (limit / AHEAD_SHARE).min(AHEAD)
    }

    /// Notes the outcome of an eviction of [`EvictionPace::wanted`] bytes. Returns `true` if the command may be
    /// executed: where evictions take longer than a slice, commands are executed meanwhile.
    pub(crate) fn note(&mut self, outcome: &Result<Evicted, Abort>, limit: u64) -> bool {
        self.is_behind = matches!(outcome, Ok(Evicted::TimeIsOver));
        self.ahead = match outcome {
            Ok(Evicted::Enough) => (limit / AHEAD_SHARE).min(AHEAD),
            _ => 0,
        };
        // Nothing is evicted while the log cannot be written, which the command will say.
        !matches!(outcome, Ok(Evicted::NothingLeft))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_makes_room_for_some_commands() {
        let mut pace = EvictionPace::default();
        let limit = 1 << 30;
        assert!(!pace.takes(100));
        assert!(pace.note(&Ok(Evicted::Enough), limit));
        let taken = (0..1000).take_while(|_| pace.takes(72)).count();
        assert_eq!(taken, (AHEAD / 200) as usize);
        assert!(pace.note(&Ok(Evicted::TimeIsOver), limit));
        assert!(!pace.takes(0), "it is behind");
        assert!(!pace.note(&Ok(Evicted::NothingLeft), limit));
        assert!(!pace.takes(0));
    }
}
