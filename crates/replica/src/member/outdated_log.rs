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
