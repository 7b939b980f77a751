//! Times of the system's clock as numbers.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns a time as milliseconds since the Unix epoch.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
