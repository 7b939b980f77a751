//! The deadlines of keys while an import from a running server goes on.
//!
//! The source decides when a key is deleted: a key whose deadline has passed by another clock, or for which a later
//! command of the stream sets a later deadline, must still be there. So keys are written with a deadline that lies
//! [`SHIFT_MS`] after their own one, and get their own one before the import is completed.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time that is added, in milliseconds: some 140,000 years.
const SHIFT_MS: u64 = 1 << 52;

/// Returns the deadline that a key gets during the import. One that lies farther ahead than the shift becomes twice the
/// shift.
pub(super) fn shifted(deadline_ms: u64) -> u64 {
    match deadline_ms {
        0..SHIFT_MS => deadline_ms + SHIFT_MS,
        SHIFT_MS.. => deadline_ms.max(2 * SHIFT_MS),
    }
}

/// Returns the own deadline of a key that has this one; `None`: it has its own one.
pub(super) fn original(deadline_ms: u64) -> Option<u64> {
    (SHIFT_MS..2 * SHIFT_MS)
        .contains(&deadline_ms)
        .then(|| deadline_ms - SHIFT_MS)
}

/// Returns the time in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_deadline_says_what_it_was() {
        for deadline in [0, 1, 4_102_444_800_123, SHIFT_MS - 1] {
            assert_eq!(original(deadline), None);
            assert_eq!(original(shifted(deadline)), Some(deadline));
        }
        for deadline in [SHIFT_MS, 2 * SHIFT_MS, i64::MAX as u64] {
            assert!(shifted(deadline) >= deadline);
            assert_eq!(original(shifted(deadline)), None);
        }
    }
}
