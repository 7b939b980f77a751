//! Figures of a proxy's locks. Threads count events as they happen; the sums are read on request.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::locks::{Answer, ChangeEffect};

use super::LockOutcome;

/// Classes of [`StorageTimes`]: each ends at twice the time of the one before it, the first at 1 µs.
pub const CLASSES: usize = 28;

/// The work of a proxy's locks since the proxy started, and their current state. Each figure is exact
/// by itself; they are read one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockFigures {
    /// The kind of storage that keeps the locks: one word.
    pub keeping: &'static str,
    /// The longest lease that a client may request.
    pub longest_lease: Duration,
    /// Locks that are held, as far as this proxy knows. Where several proxies share them, a lock that
    /// another proxy has granted is noticed within half a minute.
    pub held: u64,
    /// Requests that wait for their answer. In memory they wait for other clients or for the ledger;
    /// elsewhere all requests wait until the storage of the locks has answered.
    pub waiting: u64,
    /// Requests.
    pub requests: u64,
    /// Locks that were granted to the client that asked for them, including locks that it had already;
    /// rows that were inserted into tables of locks.
    pub acquired: u64,
    /// Leases that were prolonged; existing rows that were changed.
    pub renewed: u64,
    /// Locks that were released; rows that were deleted.
    pub released: u64,
    /// Requests that found the lock held by another owner, or by none; statements that found no row, or
    /// another row than they required.
    pub refused: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Requests that were not answered at once.
    pub waited: u64,
    /// Requests that were cancelled: their client no longer waits.
    pub cancelled: u64,
    /// Locks that ended with their lease and were not released, as far as this proxy was the first to
    /// notice.
    pub expired: u64,
    /// How long the storage took: for each ledger (in memory) or transaction, including those that
    /// failed.
    pub kept: StorageTimes,
    /// Further figures where a partition keeps the locks.
    pub shared: Option<SharedFigures>,
}

/// How many times the storage wrote, and how long that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageTimes {
    /// Counts by class of time: class *n* is for times up to 2ⁿ µs, the last class for all longer
    /// times.
    pub classes: [u64; CLASSES],
    /// The sum of all times.
    pub time: Duration,
}

/// Figures of a table that a partition keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedFigures {
    /// Transactions that were sent.
    pub transactions: u64,
    /// Locks that were taken over from another proxy.
    pub takeovers: u64,
    /// Transactions that lost a race against another proxy.
    pub overtaken: u64,
    /// Requests that ended with an unknown outcome.
    pub uncertain: u64,
}

impl StorageTimes {
    /// Returns the count of all times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

impl LockFigures {
    /// Returns the lines of `INFO locks`.
    pub(crate) fn lines(&self) -> String {
        let mut text = format!(
            "lock_keeping:{}\nlock_longest_lease_ms:{}\n",
            self.keeping,
            self.longest_lease.as_millis()
        );
        let mean_us = self.kept.time.as_micros() as u64 / self.kept.count().max(1);
        let mut line = |name: &str, figure: u64| {
            let _ = writeln!(text, "lock_{name}:{figure}");
        };
        for (name, figure) in [
            ("held", self.held),
            ("waiting", self.waiting),
            ("requests", self.requests),
            ("acquired", self.acquired),
            ("renewed", self.renewed),
            ("released", self.released),
            ("refused", self.refused),
            ("failed", self.failed),
            ("not_at_once", self.waited),
            ("cancelled", self.cancelled),
            ("expired", self.expired),
            ("kept", self.kept.count()),
            ("kept_us_mean", mean_us),
        ] {
            line(name, figure);
        }
        if let Some(shared) = &self.shared {
            line("transactions", shared.transactions);
            line("takeovers", shared.takeovers);
            line("overtaken", shared.overtaken);
            line("uncertain", shared.uncertain);
        }
        text
    }
}

/// Counts of the requests of one thread's clients, and of their outcomes.
#[derive(Debug, Default)]
pub(crate) struct LockCounts {
    requests: AtomicU64,
    acquired: AtomicU64,
    renewed: AtomicU64,
    released: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    waited: AtomicU64,
    cancelled: AtomicU64,
}

impl LockCounts {
    /// Counts a request. `waits`: it has no outcome yet.
    pub(crate) fn asked(&self, waits: bool) {
        self.requests.fetch_add(1, Relaxed);
        self.waited.fetch_add(u64::from(waits), Relaxed);
    }

    /// Counts the outcome of a request. `renews`: the request was to prolong a lease.
    pub(crate) fn answered(&self, renews: bool, outcome: &LockOutcome) {
        let figure = match outcome {
            Ok(Answer::Granted { .. }) if renews => &self.renewed,
            Ok(Answer::Granted { .. }) => &self.acquired,
            Ok(Answer::Held(_) | Answer::NotHeld(_)) => &self.refused,
            Ok(Answer::Released) => &self.released,
            // A row changes with its lease, so its token does not tell the holder.
            Ok(Answer::Changed { found, effect }) => match (effect, found) {
                (ChangeEffect::Set(_), None) => &self.acquired,
                (ChangeEffect::Set(_), Some(_)) => &self.renewed,
                (ChangeEffect::Removed, _) => &self.released,
                (ChangeEffect::Kept, _) => &self.refused,
            },
            Ok(Answer::Info(_) | Answer::Listing(_)) => return,
            Err(_) => &self.failed,
        };
        figure.fetch_add(1, Relaxed);
    }

    /// Counts a request that was cancelled.
    pub(crate) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// Adds these to all figures.
    pub(crate) fn add_to(&self, figures: &mut LockFigures) {
        for (sum, count) in [
            (&mut figures.requests, &self.requests),
            (&mut figures.acquired, &self.acquired),
            (&mut figures.renewed, &self.renewed),
            (&mut figures.released, &self.released),
            (&mut figures.refused, &self.refused),
            (&mut figures.failed, &self.failed),
            (&mut figures.waited, &self.waited),
            (&mut figures.cancelled, &self.cancelled),
        ] {
            *sum += count.load(Relaxed);
        }
    }
}

/// Durations that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct LockTimes {
    classes: [AtomicU64; CLASSES],
    sum_us: AtomicU64,
}

impl LockTimes {
    pub(crate) fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let class = (u64::BITS - us.saturating_sub(1).leading_zeros()) as usize;
        self.classes[class.min(CLASSES - 1)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    pub(crate) fn read(&self) -> StorageTimes {
        StorageTimes {
            classes: std::array::from_fn(|class| self.classes[class].load(Relaxed)),
            time: Duration::from_micros(self.sum_us.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ::locks::{FencingToken, Lock, LockError, LockLease};

    use super::*;

    #[test]
    fn a_time_is_in_the_class_whose_end_it_does_not_pass() {
        let times = LockTimes::default();
        for us in [0, 1, 2, 3, 4, 5, 8, 9] {
            times.record(Duration::from_micros(us));
        }
        let few = times.read();
        assert_eq!(few.classes[..5], [2, 1, 2, 2, 1]);
        assert_eq!((few.count(), few.time), (8, Duration::from_micros(32)));
        times.record(Duration::MAX);
        assert_eq!(times.read().classes[CLASSES - 1], 1);
    }

    #[test]
    fn what_statements_do_to_rows_is_counted_as_what_commands_do_to_locks() {
        let counts = LockCounts::default();
        let row = Lock {
            value: b"row".as_slice().into(),
            token: FencingToken(1),
            left: LockLease::Endless,
            waiters: 0,
        };
        let set = ChangeEffect::Set(FencingToken(2));
        for (found, effect, times) in [
            (None, set, 1),
            (Some(row.clone()), set, 2),
            (Some(row.clone()), ChangeEffect::Removed, 3),
            (Some(row), ChangeEffect::Kept, 2),
            (None, ChangeEffect::Kept, 2),
        ] {
            for _ in 0..times {
                let found = found.clone();
                counts.answered(false, &Ok(Answer::Changed { found, effect }));
            }
        }
        let mut figures = LockFigures::default();
        counts.add_to(&mut figures);
        let expected = LockFigures {
            acquired: 1,
            renewed: 2,
            released: 3,
            refused: 4,
            ..LockFigures::default()
        };
        assert_eq!(figures, expected);
    }

    #[test]
    fn each_outcome_is_counted_as_what_it_is() {
        let counts = LockCounts::default();
        let granted = Ok(Answer::Granted {
            token: FencingToken(1),
            lease: LockLease::Endless,
        });
        counts.asked(true);
        counts.answered(true, &granted);
        for outcome in [
            granted,
            Ok(Answer::NotHeld(None)),
            Ok(Answer::Released),
            Ok(Answer::Info(None)),
            Err(LockError::Stopping),
        ] {
            counts.asked(false);
            counts.answered(false, &outcome);
        }
        counts.cancelled();
        let mut figures = LockFigures::default();
        counts.add_to(&mut figures);
        let expected = LockFigures {
            requests: 6,
            acquired: 1,
            renewed: 1,
            released: 1,
            refused: 1,
            failed: 1,
            waited: 1,
            cancelled: 1,
            ..LockFigures::default()
        };
        assert_eq!(figures, expected);
        let lines = figures.lines();
        assert!(lines.contains("\nlock_renewed:1\n") && lines.contains("\nlock_kept:0\n"));
        assert!(
            lines
                .lines()
                .all(|line| line.starts_with("lock_") && line.contains(':'))
        );
    }
}
