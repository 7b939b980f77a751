//! Detects that the data directory is an old copy.
//!
//! A leader that believes that this member has acknowledged more than its log contains is either
//! wrong, or right: then the data directory is an old copy. One message does not show which of the
//! two is true. If every message of the leader says so for a while, the member stops, because it
//! has lost entries that it had acknowledged.

use std::time::Duration;

/// The number of times that a leader must say that this member has acknowledged more than it has.
const CLAIMS: u32 = 3;

/// Counts a leader's claims, since the last message without one.
#[derive(Debug, Default)]
pub(super) struct OutdatedLogDetector {
    /// The time of the first claim, and the number of claims.
    claims: Option<(Duration, u32)>,
}

impl OutdatedLogDetector {
    /// Notes a message of the leader that fits the log.
    pub(super) fn note_fitting(&mut self) {
        self.claims = None;
    }

    /// Notes a claim that this member has acknowledged more than it has. Returns `true` if the log
    /// is outdated: there have been several claims for at least `period`.
    pub(super) fn note_claim(&mut self, now: Duration, period: Duration) -> bool {
        let (since, count) = self.claims.get_or_insert((now, 0));
        *count += 1;
        *count >= CLAIMS && now >= *since + period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_outdated_if_a_leader_claims_so_for_a_while() {
        let (period, at) = (Duration::from_secs(2), Duration::from_secs);
        let mut detector = OutdatedLogDetector::default();
        for second in 0..2 {
            assert!(!detector.note_claim(at(second), period));
        }
        assert!(detector.note_claim(at(2), period));
        detector.note_fitting();
        assert!(!detector.note_claim(at(9), period), "it begins anew");
        assert!(!detector.note_claim(at(20), period), "too few claims");
        assert!(detector.note_claim(at(20), period));
    }
}
