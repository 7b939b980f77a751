//! The log of refused attempts to authenticate (`ACL LOG`).
//!
//! Attempts that are alike and follow each other within a minute are one entry, which is as old as the last
//! of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The most entries that there are.
pub(crate) const ACL_LOG_LENGTH: usize = 128;
/// The time within which attempts that are alike are one entry.
const TOGETHER: Duration = Duration::from_secs(60);
/// The bytes of a name that an entry keeps.
const NAME_BYTES: usize = 256;

/// An attempt that was refused.
#[derive(Clone)]
pub(crate) struct DeniedLogin {
    pub(crate) count: u64,
    /// `true` if it was in a `MULTI` block.
    pub(crate) in_block: bool,
    /// The command: `AUTH` or `HELLO`.
    pub(crate) command: &'static str,
    pub(crate) user: Vec<u8>,
    /// When the last one was.
    pub(crate) at: Instant,
    /// The client of the last one, as in `CLIENT LIST`.
    pub(crate) client: Vec<u8>,
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct AclLog {
    /// The newest is first.
    entries: Mutex<VecDeque<DeniedLogin>>,
}

impl AclLog {
    /// Adds an attempt.
    pub(crate) fn add(&self, mut denied: DeniedLogin) {
        denied.user.truncate(NAME_BYTES);
        let mut entries = self.entries.lock();
        let is_alike = |entry: &DeniedLogin| {
            (entry.in_block, entry.command) == (denied.in_block, denied.command)
                && entry.user == denied.user
                && denied.at.saturating_duration_since(entry.at) <= TOGETHER
        };
        if let Some(at) = entries.iter().position(is_alike)
            && let Some(earlier) = entries.remove(at)
        {
            denied.count += earlier.count;
        }
        entries.push_front(denied);
        entries.truncate(ACL_LOG_LENGTH);
    }

    /// Returns the newest entries, the newest one first.
    pub(crate) fn newest(&self, most: usize) -> Vec<DeniedLogin> {
        self.entries.lock().iter().take(most).cloned().collect()
    }

    /// Drops all entries.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_are_alike_are_one_entry_for_a_minute() {
        let (log, start) = (AclLog::default(), Instant::now());
        let add = |user: &str, command, after| {
            log.add(DeniedLogin {
                count: 1,
                in_block: false,
                command,
                user: user.into(),
                at: start + Duration::from_secs(after),
                client: Vec::new(),
            });
        };
        add("a", "AUTH", 0);
        add("b", "AUTH", 1);
        add("a", "AUTH", 59);
        add("a", "HELLO", 60);
        add("a", "AUTH", 120);
        let shown: Vec<_> = log.newest(10).into_iter().collect();
        let counts: Vec<_> = shown
            .iter()
            .map(|one| (&*one.user, one.command, one.count))
            .collect();
        assert_eq!(
            counts,
            [
                (&b"a"[..], "AUTH", 1),
                (b"a", "HELLO", 1),
                (b"a", "AUTH", 2),
                (b"b", "AUTH", 1)
            ]
        );
        for number in 0..2 * ACL_LOG_LENGTH {
            add(&number.to_string(), "AUTH", 121);
        }
        assert_eq!(log.newest(usize::MAX).len(), ACL_LOG_LENGTH);
        log.clear();
        assert!(log.newest(1).is_empty());
    }
}
