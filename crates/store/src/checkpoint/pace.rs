//! How fast a checkpoint is made: it works for a share of the time while transactions run, and all
//! of it while none do.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::db::Shared;

/// Work that is done in one go, before the rest that it takes. Shorter ones would not be slept for
/// exactly; longer ones keep a processor from transactions.
const STINT: Duration = Duration::from_micros(100);
/// How often it is judged whether transactions run.
const LOOK: Duration = Duration::from_millis(5);
/// The longest rest: a stint may have been long because the disk was slow.
const LONGEST: Duration = Duration::from_millis(20);

/// The pace of one thread.
pub(super) struct Pace<'a> {
    shared: &'a Shared,
    /// Rest for each unit of work.
    rest: f64,
    /// When the stint began.
    begun: Instant,
    looked: Instant,
    commits: u64,
    /// Whether someone was in a transaction when it was looked at since `looked`.
    met: bool,
    /// Whether transactions ran before `looked`.
    busy: bool,
    workers: usize,
    /// Entries that are told.
    told: u64,
}

impl<'a> Pace<'a> {
    pub(super) fn new(shared: &'a Shared, share: f64, workers: usize) -> Pace<'a> {
        let now = Instant::now();
        Pace {
            shared,
            rest: 1.0 / share.clamp(0.01, 1.0) - 1.0,
            begun: now,
            looked: now,
            commits: commits(shared),
            met: false,
            busy: true,
            workers,
            told: 0,
        }
    }

    /// Called between two slices of work, outside any epoch; `entries` were written in all. Rests
    /// if it is time to.
    ///
    /// # Errors
    /// When the database is closing.
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
        }
        if self.busy && self.rest > 0.0 {
            board.sleep(worked.mul_f64(self.rest).min(LONGEST));
        }
        self.begun = Instant::now();
        Ok(())
    }
}

fn commits(shared: &Shared) -> u64 {
    shared.engine.stats().commits
}
