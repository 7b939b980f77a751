//! The pace of a checkpoint: it works for a share of the time while transactions run, and all of
//! the time while none do. When the logs grow much faster than the checkpoint proceeds, the share
//! grows with them, so that the logs stay bounded.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::checkpoint_report::CheckpointError;
use crate::db_state::DbState;
use crate::options::CheckpointOptions;

/// The work that is done at once, before the rest that it takes. The rest after a shorter stint
/// could not be slept exactly; a longer stint keeps a processor from transactions.
const STINT: Duration = Duration::from_micros(50);
/// The interval at which it is judged if transactions run.
const LOOK: Duration = Duration::from_millis(5);
/// The checkpoint hurries when the logs have grown by this many times the size that asks for one.
const HURRY_AT: f64 = 4.0;
/// The longest rest: a stint may have been long because the disk was slow.
const LONGEST: Duration = Duration::from_millis(20);

/// Keeps one thread to the pace.
pub(super) struct CheckpointThrottle<'a> {
    db: &'a DbState,
    share: f64,
    /// Bytes of log after which a checkpoint begins by itself; 0 if none does.
    log_size: u64,
    /// The rest for each unit of work.
    rest: f64,
    /// The moment at which the stint began.
    begun: Instant,
    looked: Instant,
    commits: u64,
    /// `true` if a worker was in a transaction at one of the looks since `looked`.
    met: bool,
    /// `true` if transactions ran before `looked`.
    busy: bool,
    workers: usize,
    /// Entries that were reported.
    reported: u64,
}

impl<'a> CheckpointThrottle<'a> {
    /// Returns the pace for a database with `workers` workers besides those of checkpoints.
    pub(super) fn new(
        db: &'a DbState,
        options: &CheckpointOptions,
        workers: usize,
    ) -> CheckpointThrottle<'a> {
        let now = Instant::now();
        CheckpointThrottle {
            db,
            share: options.share,
            log_size: options.log_size,
            rest: rest(options.share, 0.0),
            begun: now,
            looked: now,
            commits: commits(db),
            met: false,
            busy: true,
            workers,
            reported: 0,
        }
    }

    /// Rests if it is time to. Called between two slices of work, outside any epoch; `entries` were
    /// written in all.
    ///
    /// # Errors
    /// Returns [`CheckpointError::Closed`] if the database is closing.
    pub(super) fn rest(&mut self, entries: u64) -> Result<(), CheckpointError> {
        let scheduler = &self.db.checkpoints;
        let new = entries - self.reported;
        self.reported = entries;
        scheduler.written.fetch_add(new, Ordering::Relaxed);
        if scheduler.is_closing() {
            return Err(CheckpointError::Closed);
        }
        let now = Instant::now();
        let worked = now - self.begun;
        if worked < STINT {
            return Ok(());
        }
        self.met = self.met || self.db.engine.is_busy(self.workers);
        if now - self.looked >= LOOK {
            let commits = commits(self.db);
            self.busy = self.met || commits != self.commits;
            (self.looked, self.commits, self.met) = (now, commits, false);
            self.rest = rest(self.share, self.growth());
        }
        if self.busy && self.rest > 0.0 {
            scheduler.sleep(worked.mul_f64(self.rest).min(LONGEST));
        }
        self.begun = Instant::now();
        Ok(())
    }

    fn growth(&self) -> f64 {
        if self.log_size == 0 {
            return 0.0;
        }
        let log_bytes = self.db.log_bytes();
        self.db.checkpoints.log_bytes_since(log_bytes) as f64 / self.log_size as f64
    }
}

/// Returns the rest that each unit of work takes, when the logs have grown to `growth` times the
/// size that asks for a checkpoint.
fn rest(share: f64, growth: f64) -> f64 {
    let hurry = (growth / HURRY_AT).max(1.0);
    1.0 / (share * hurry).clamp(0.01, 1.0) - 1.0
}

fn commits(db: &DbState) -> u64 {
    db.engine.stats().commits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_for_what_the_share_leaves_and_hurries_when_the_logs_grow() {
        assert_eq!(rest(1.0, 0.0), 0.0);
        assert_eq!(rest(0.5, 0.0), 1.0);
        assert_eq!(rest(0.1, HURRY_AT), 9.0);
        assert!((rest(0.1, 2.0 * HURRY_AT) - 4.0).abs() < 1e-9);
        assert_eq!(rest(0.1, 100.0 * HURRY_AT), 0.0);
        assert_eq!(rest(0.0, 0.0), 99.0, "it makes some progress");
    }
}
