//! Requests for checkpoints, the checkpoint that is being made, and the outcomes: shared by the
//! callers that ask for checkpoints and the thread that makes them.
//!
//! Checkpoints are numbered in the order in which they begin; one that is asked for begins after it was
//! asked for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::checkpoint_report::{
    CheckpointError, CheckpointRefused, CheckpointReport, CheckpointStatus,
};

/// The time for which automatic checkpoints rest after a failure; longer after each further one.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The requests, and the outcome of the last one.
#[derive(Default)]
pub(crate) struct CheckpointScheduler {
    state: Mutex<Schedule>,
    changed: Condvar,
    /// Checked between two slices of work.
    closing: AtomicBool,
    /// Keys written of the checkpoint that is being made.
    pub(crate) written: AtomicU64,
}

#[derive(Default)]
struct Schedule {
    /// The number of the newest checkpoint that a caller has asked for.
    requested: u64,
    /// The numbers of the checkpoint that began last, and of the one that ended last.
    begun: u64,
    ended: u64,
    started_ms: u64,
    completed: u64,
    failed: u64,
    last: Option<CheckpointReport>,
    last_error: Option<CheckpointError>,
    /// Bytes of log when the last checkpoint began, counted from the opening of the database; the
    /// log that recovery found counts as below that.
    log_bytes: i64,
    failures_in_a_row: u32,
    rest_until: Option<Instant>,
    /// No thread makes checkpoints any more.
    closed: bool,
}

impl Schedule {
    /// Returns the bytes of log since the last checkpoint, when there are `log_bytes`.
    fn grown(&self, log_bytes: u64) -> u64 {
        (log_bytes as i64 - self.log_bytes).max(0) as u64
    }
}

impl CheckpointScheduler {
    /// Sets the outcome of a recovery: the checkpoint that it used, and the bytes of log.
    pub(crate) fn recovered(&self, last: Option<CheckpointReport>, log_bytes: u64) {
        let mut state = self.state.lock();
        state.last = last;
        state.log_bytes = -(log_bytes as i64);
    }

    /// Asks for a checkpoint, unless one is already asked for or being made.
    pub(crate) fn request(&self) -> Result<(), CheckpointRefused> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(CheckpointRefused::Failed("the database is closed".into()));
        }
        if state.requested > state.ended || state.begun > state.ended {
            return Err(CheckpointRefused::AlreadyRunning);
        }
        state.requested = state.begun + 1;
        self.changed.notify_all();
        Ok(())
    }

    /// Asks for a checkpoint if the logs have grown by `limit` since the last one, and it is time
    /// to try.
    pub(crate) fn request_if_grown(&self, log_bytes: u64, limit: u64) {
        if limit == 0 {
            return;
        }
        let mut state = self.state.lock();
        let grown = state.grown(log_bytes) >= limit;
        let rests = state.rest_until.is_some_and(|until| until > Instant::now());
        if grown && !rests && !state.closed && state.requested <= state.ended {
            state.requested = state.begun + 1;
            self.changed.notify_all();
        }
    }

    /// Asks for a checkpoint that begins from now on, and waits until it has ended.
    pub(crate) fn make(&self) -> Result<CheckpointReport, CheckpointError> {
        let mut state = self.state.lock();
        let number = state.begun + 1;
        state.requested = state.requested.max(number);
        self.changed.notify_all();
        while state.ended < number && !state.closed {
            self.changed.wait(&mut state);
        }
        if state.ended < number {
            return Err(CheckpointError::Closed);
        }
        match (&state.last_error, &state.last) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(report)) => Ok(report.clone()),
            (None, None) => unreachable!("a checkpoint ends in a report or an error"),
        }
    }

    pub(crate) fn status(&self, log_bytes: u64) -> CheckpointStatus {
        let state = self.state.lock();
        let running = state.begun > state.ended;
        CheckpointStatus {
            // A caller that has just asked for one must not find that none is under way.
            running: running || state.requested > state.ended,
            started_ms: running.then_some(state.started_ms),
            entries_written: if running {
                self.written.load(Ordering::Relaxed)
            } else {
                0
            },
            completed: state.completed,
            failed: state.failed,
            last: state.last.clone(),
            last_error: state.last_error.as_ref().map(CheckpointError::reason),
            log_bytes_since: state.grown(log_bytes),
        }
    }

    /// Returns the bytes of log since the last checkpoint.
    pub(crate) fn log_bytes_since(&self, log_bytes: u64) -> u64 {
        self.state.lock().grown(log_bytes)
    }

    /// Waits until a checkpoint is asked for. Returns `false` if the database is closing instead.
    pub(crate) fn wait_for_work(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if self.is_closing() {
                state.closed = true;
                self.changed.notify_all();
                return false;
            }
            if state.requested > state.begun {
                return true;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Notes that a checkpoint begins.
    pub(crate) fn begin(&self, now_ms: u64) {
        self.written.store(0, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.begun += 1;
        state.started_ms = now_ms;
    }

    /// Notes that the checkpoint has ended. The logs had `log_bytes` when it began.
    pub(crate) fn end(&self, outcome: Result<CheckpointReport, CheckpointError>, log_bytes: u64) {
        let mut state = self.state.lock();
        state.ended = state.begun;
        match outcome {
            Ok(report) => {
                state.completed += 1;
                state.last = Some(report);
                state.last_error = None;
                state.log_bytes = log_bytes as i64;
                state.failures_in_a_row = 0;
                state.rest_until = None;
            }
            Err(error) => {
                state.failed += 1;
                state.last_error = Some(error);
                let rest = FIRST_REST * 2_u32.saturating_pow(state.failures_in_a_row.min(16));
                state.failures_in_a_row += 1;
                state.rest_until = Some(Instant::now() + rest.min(LONGEST_REST));
            }
        }
        self.changed.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Makes the thread abandon its work, and end.
    pub(crate) fn close(&self) {
        let _state = self.state.lock();
        self.closing.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Sleeps for `time`, or until the database closes.
    pub(crate) fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !self.is_closing() {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}
