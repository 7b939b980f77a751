//! `CLIENT PAUSE`: commands of all clients, or only those that write, wait until a time or until
//! `CLIENT UNPAUSE`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The commands that wait, and until when.
#[derive(Default)]
pub(crate) struct ClientPause {
    /// Milliseconds since the server's start; 0: there is no pause.
    until_ms: AtomicU64,
    /// Only commands that write wait.
    writes_only: AtomicBool,
}

impl ClientPause {
    /// Pauses commands until `until`, a time since the server's start. As in Redis a pause that is
    /// under way is never shortened, and one of all commands stays one.
    pub(crate) fn begin(&self, now: Duration, until: Duration, writes_only: bool) {
        let under_way = self.ends(now).is_some();
        let all = under_way && !self.writes_only.load(Ordering::SeqCst);
        self.writes_only
            .store(writes_only && !all, Ordering::SeqCst);
        // Rounded up: a pause is never shorter than it was asked for.
        let until_ms = u64::try_from(until.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        self.until_ms.fetch_max(until_ms, Ordering::SeqCst);
    }

    pub(crate) fn end_now(&self) {
        self.until_ms.store(0, Ordering::SeqCst);
    }

    /// Returns when the pause ends, if there is one now.
    #[inline]
    pub(crate) fn ends(&self, now: Duration) -> Option<Duration> {
        match self.until_ms.load(Ordering::Relaxed) {
            0 => None,
            until_ms => Some(Duration::from_millis(until_ms)).filter(|until| *until > now),
        }
    }

    /// Returns `true` if only commands that write wait.
    pub(crate) fn is_of_writes(&self) -> bool {
        self.writes_only.load(Ordering::SeqCst)
    }
}
