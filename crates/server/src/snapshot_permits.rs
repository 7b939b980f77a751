//! The limit on snapshots that clients have open at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of open snapshots.
#[derive(Default)]
pub(crate) struct SnapshotPermits(Arc<AtomicU64>);

/// The permission to have a snapshot open, which another one can get when this is dropped.
pub(crate) struct SnapshotPermit(Arc<AtomicU64>);

impl SnapshotPermits {
    /// Returns the number of permits that are taken.
    pub(crate) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns one of `most` permits, if there is one left.
    pub(crate) fn take(&self, most: usize) -> Option<SnapshotPermit> {
        let more = |taken| (taken < most as u64).then_some(taken + 1);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| SnapshotPermit(Arc::clone(&self.0)))
    }
}

impl Drop for SnapshotPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_come_back() {
        let permits = SnapshotPermits::default();
        let (first, second) = (permits.take(2), permits.take(2));
        assert!(first.is_some() && second.is_some() && permits.take(2).is_none());
        assert_eq!(permits.taken(), 2);
        drop(first);
        assert_eq!(permits.taken(), 1);
        let third = permits.take(2);
        assert!(third.is_some() && permits.take(2).is_none());
        drop((second, third));
        assert_eq!(permits.taken(), 0);
        assert!(permits.take(0).is_none());
    }
}
