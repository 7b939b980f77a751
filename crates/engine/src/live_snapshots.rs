//! The snapshots that are alive, by epoch and time: commits ask which versions they need, the janitor
//! which is the oldest.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Epoch;
use parking_lot::Mutex;

use crate::record::VersionRef;

/// The snapshots that are alive.
#[derive(Default)]
pub(crate) struct LiveSnapshots {
    /// The newest one's epoch, 0 when there is none: commits read it.
    newest: AtomicU64,
    /// Epoch and time of each.
    alive: Mutex<Vec<(Epoch, u64)>>,
}

impl LiveSnapshots {
    /// Returns the versions that snapshots need of `old` and those behind it, after it was
    /// replaced: `old` itself; only those behind it, if it is newer than every snapshot; or none.
    #[inline]
    pub(crate) fn needed_of(&self, old: VersionRef) -> Option<VersionRef> {
        let newest = self.newest.load(Ordering::SeqCst);
        if newest == 0 {
            None
        } else if old.epoch().0 > newest {
            old.previous()
        } else {
            (!old.is_absent() || old.previous().is_some()).then_some(old)
        }
    }

    pub(crate) fn add(&self, epoch: Epoch, time_ms: u64) {
        let mut alive = self.alive.lock();
        alive.push((epoch, time_ms));
        self.newest.fetch_max(epoch.0, Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, epoch: Epoch) {
        let mut alive = self.alive.lock();
        let at = alive
            .iter()
            .position(|(e, _)| *e == epoch)
            .expect("added before");
        alive.swap_remove(at);
        let newest = alive.iter().map(|(e, _)| e.0).max().unwrap_or(0);
        self.newest.store(newest, Ordering::SeqCst);
    }

    /// Returns the epoch of the oldest snapshot.
    pub(crate) fn oldest(&self) -> Option<Epoch> {
        self.alive.lock().iter().map(|(epoch, _)| *epoch).min()
    }

    /// Returns the epochs of all snapshots.
    pub(crate) fn epochs(&self) -> Vec<Epoch> {
        self.alive.lock().iter().map(|(epoch, _)| *epoch).collect()
    }

    /// Returns the time of the snapshot that is farthest back.
    pub(crate) fn oldest_time(&self) -> Option<u64> {
        self.alive.lock().iter().map(|(_, time)| *time).min()
    }
}
