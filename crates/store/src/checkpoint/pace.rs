//! The pace of a checkpoint: it works for a share of the time while transactions run, and all of
//! the time while none do. When the logs grow much faster than the checkpoint proceeds, the share
//! grows with them, so that the logs stay bounded.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::db::Shared;
use crate::options::CheckpointOptions;

/// The work that is done at once, before the rest that it takes. The rest after a shorter stint
/// could not be slept exactly; a longer stint keeps a processor from transactions.
const STINT: Duration = Duration::from_micros(50);
/// The interval at which it is judged if transactions run.
const LOOK: Duration = Duration::from_millis(5);
/// The checkpoint hurries when the logs have grown by this many times the size that asks for one.
const PATIENCE: f64 = 4.0;
/// The longest rest: a stint may have been long because the disk was slow.
const LONGEST: Duration = Duration::from_millis(20);

/// The pace of one thread.
pub(super) struct Pace<'a> {
    shared: &'a Shared,
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
    told: u64,
}

impl<'a> Pace<'a> {
    /// Returns the pace for a database with `workers` workers besides those of checkpoints.
    pub(super) fn new(shared: &'a Shared, options: &CheckpointOptions, workers: usize) -> Pace<'a> {
        let now = Instant::now();
        Pace {
            shared,
            share: options.share,
            log_size: options.log_size,
            rest: rest(options.share, 0.0),
            begun: now,
            looked: now,
            commits: commits(shared),
            met: false,
            busy: true,
            workers,
            told: 0,
        }
    }

    /// Rests if it is time to. Called between two slices of work, outside any epoch; `entries` were
    /// written in all.
    ///
    /// # Errors
    /// Returns an error if the database is closing.
    pub(super) fn rest(&mut self, entries: u64) -> Result<(), String> {
        let board = &self.shared.checkpoints;
        let new = entries - self.told;
        self.told = entries;
        board.written.fetch_add(new, Ordering::Relaxed);
        if board.is_closing() {
            return Err("the database is closed".to_owned());
        }
        let now = Instant::now();
        let worked = now - self.begun;
        if worked < STINT {
            return Ok(());
        }
        self.met = self.met || self.shared.engine.is_busy(self.workers);
        if now - self.looked >= LOOK {
            let commits = commits(self.shared);
            self.busy = self.met || commits != self.commits;
            (self.looked, self.commits, self.met) = (now, commits, false);
            self.rest = rest(self.share, self.growth());
        }
        if self.busy && self.rest > 0.0 {
            board.sleep(worked.mul_f64(self.rest).min(LONGEST));
        }
        self.begun = Instant::now();
        Ok(())
    }

    fn growth(&self) -> f64 {
        if self.log_size == 0 {
            return 0.0;
        }
        let log_bytes = self.shared.log_bytes();
        self.shared.checkpoints.log_bytes_since(log_bytes) as f64 / self.log_size as f64
    }
}

/// Returns the rest that each unit of work takes, when the logs have grown to `growth` times the
/// size that asks for a checkpoint.
fn rest(share: f64, growth: f64) -> f64 {
    let hurry = (growth / PATIENCE).max(1.0);
    1.0 / (share * hurry).clamp(0.01, 1.0) - 1.0
}

fn commits(shared: &Shared) -> u64 {
    shared.engine.stats().commits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_for_what_the_share_leaves_and_hurries_when_the_logs_grow() {
        assert_eq!(rest(1.0, 0.0), 0.0);
        assert_eq!(rest(0.5, 0.0), 1.0);
        assert_eq!(rest(0.1, PATIENCE), 9.0);
        assert!((rest(0.1, 2.0 * PATIENCE) - 4.0).abs() < 1e-9);
        assert_eq!(rest(0.1, 100.0 * PATIENCE), 0.0);
        assert_eq!(rest(0.0, 0.0), 99.0, "it makes some progress");
    }
}
