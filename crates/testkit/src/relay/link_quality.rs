//! The delay and the rate of links.

use std::time::Duration;

/// The quality of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkQuality {
    /// The time from one end to the other.
    pub delay: Duration,
    /// Bytes a second that a machine sends at most; `None`: any number.
    pub bytes_per_second: Option<u64>,
}

impl LinkQuality {
    /// Returns the time that so many bytes take to leave a machine.
    #[must_use]
    pub fn sending_time(&self, bytes: usize) -> Duration {
        let nanos = |rate: u64| (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        let nanos = self.bytes_per_second.map_or(0, nanos);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of bytes that are under way at most.
    pub(super) fn bytes_under_way(&self) -> u128 {
        let rate = u128::from(self.bytes_per_second.unwrap_or_default());
        rate * self.delay.as_nanos() / 1_000_000_000
    }
}
