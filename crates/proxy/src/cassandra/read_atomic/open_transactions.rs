//! The transactions that this proxy has begun in a keyspace, and that have records.
//!
//! A transaction is *open* from its begin until a quorum has all of its rows. Threads with clients begin
//! and finish transactions. Recovery *takes* those that stay open for too long: their client is gone, or
//! nodes have failed. A thread may start a COMMIT only while the transaction is still open and not taken.
//! So recovery, which reads the record after it has taken the transaction, either finds the record or
//! knows that no row of it becomes visible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::locks::MonotonicTime;
use base::clock::Clock;
use parking_lot::Mutex;

use super::transaction_id::{AtomicTransactionId, Bucket, Owner};
use crate::figures::ReadAtomicFigures;

/// How far ahead of the own clock another proxy's id may be to be followed.
const MOST_AHEAD: Duration = Duration::from_secs(10);

/// See the module documentation.
pub(crate) struct OpenTransactions {
    pub(crate) keyspace: String,
    pub(crate) owner: Owner,
    pub(crate) figures: Arc<ReadAtomicFigures>,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: Option<AtomicTransactionId>,
    lease: Option<NumberLease>,
    /// The buckets with records of this proxy, and the open transactions of each.
    buckets: BTreeMap<Bucket, BTreeSet<AtomicTransactionId>>,
}

/// The number in the ids of this proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NumberLease {
    pub(crate) number: u8,
    /// The time from which on it must not be used.
    pub(crate) until: MonotonicTime,
}

impl OpenTransactions {
    pub(crate) fn new(
        keyspace: &str,
        owner: Owner,
        clock: Arc<dyn Clock>,
        figures: Arc<ReadAtomicFigures>,
    ) -> OpenTransactions {
        OpenTransactions {
            keyspace: keyspace.to_owned(),
            owner,
            figures,
            clock,
            inner: Mutex::new(Inner::default()),
        }
    }

    /// Returns the time of day in microseconds since the Unix epoch.
    pub(crate) fn wall_us(&self) -> i64 {
        i64::try_from(self.clock.now_ms().saturating_mul(1000)).unwrap_or(i64::MAX)
    }

    /// Sets the lease of the proxy's number; `None`: it has none.
    pub(crate) fn set_lease(&self, lease: Option<NumberLease>) {
        self.inner.lock().lease = lease;
    }

    /// Begins a transaction, which is open if it `has_record`. Returns `None` if the proxy has no number
    /// at present.
    pub(crate) fn begin(
        &self,
        now: MonotonicTime,
        has_record: bool,
    ) -> Option<AtomicTransactionId> {
        let wall_us = self.wall_us();
        let mut inner = self.inner.lock();
        let lease = inner.lease.filter(|lease| now < lease.until)?;
        let last = inner.last.unwrap_or(AtomicTransactionId(0));
        let id = AtomicTransactionId::after(last, wall_us, lease.number);
        inner.last = Some(id);
        if has_record {
            inner.buckets.entry(id.bucket()).or_default().insert(id);
        }
        Some(id)
    }

    /// Lets later ids be above one that another proxy has drawn, so that what a client has read through
    /// this proxy is older than what it writes then.
    pub(crate) fn observe(&self, id: AtomicTransactionId) {
        let most = self.wall_us().saturating_add(MOST_AHEAD.as_micros() as i64);
        let mut inner = self.inner.lock();
        if id.0 <= most && inner.last.is_none_or(|last| last < id) {
            inner.last = Some(id);
        }
    }

    /// Returns `true` if the COMMIT of a transaction may start: recovery has not taken it.
    pub(crate) fn may_commit(&self, id: AtomicTransactionId) -> bool {
        let inner = self.inner.lock();
        let open = inner.buckets.get(&id.bucket());
        open.is_some_and(|open| open.contains(&id))
    }

    /// Records that a quorum has all rows of a transaction, or that it has none and never will.
    pub(crate) fn finish(&self, id: AtomicTransactionId) {
        if let Some(open) = self.inner.lock().buckets.get_mut(&id.bucket()) {
            open.remove(&id);
        }
    }

    /// Returns the buckets that end before `before_us`, and takes their open transactions. No transaction
    /// will begin in them.
    pub(crate) fn take_closed(&self, before_us: i64) -> Vec<(Bucket, Vec<AtomicTransactionId>)> {
        let mut inner = self.inner.lock();
        // A clock that is set back does not open them again.
        let last = AtomicTransactionId(before_us);
        if inner.last.is_none_or(|it| it < last) {
            inner.last = Some(last);
        }
        let closed = inner.buckets.iter_mut();
        closed
            .filter(|(bucket, _)| bucket.end_us() < before_us)
            .map(|(bucket, open)| (*bucket, std::mem::take(open).into_iter().collect()))
            .collect()
    }

    /// Forgets a bucket whose records are removed.
    pub(crate) fn forget(&self, bucket: Bucket) {
        self.inner.lock().buckets.remove(&bucket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::ManualClock;

    const START_MS: u64 = 1_800_000_000_000;

    fn open() -> (OpenTransactions, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(START_MS));
        let open = OpenTransactions::new(
            "app",
            Owner(7),
            Arc::<ManualClock>::clone(&clock),
            Arc::default(),
        );
        open.set_lease(Some(NumberLease {
            number: 3,
            until: MonotonicTime::from_us(1000),
        }));
        (open, clock)
    }

    #[test]
    fn a_number_is_used_until_its_lease_ends() {
        let (open, _) = open();
        let at = MonotonicTime::from_us;
        assert!(open.begin(at(999), false).is_some());
        assert_eq!(open.begin(at(1000), false), None);
        open.set_lease(None);
        assert_eq!(open.begin(at(1), false), None);
    }

    #[test]
    fn a_transaction_that_recovery_has_taken_does_not_commit() {
        let (open, clock) = open();
        let now = MonotonicTime::from_us(1);
        let taken = open.begin(now, true).expect("a number");
        let done = open.begin(now, true).expect("a number");
        assert!(open.may_commit(taken) && open.may_commit(done));
        open.finish(done);
        let before_us = START_MS as i64 * 1000;
        assert_eq!(open.take_closed(before_us), []);
        clock.advance(60_000);
        let closed = open.take_closed(before_us + 30_000_000);
        let found: Vec<AtomicTransactionId> =
            closed.iter().flat_map(|(_, open)| open.clone()).collect();
        assert_eq!(found, [taken]);
        assert!(!open.may_commit(taken));
        // The clock is set back: nothing begins in a bucket that was closed.
        clock.set(START_MS);
        let next = open.begin(now, true).expect("a number");
        assert!(next.0 >= before_us + 30_000_000);
        for (bucket, _) in closed {
            open.forget(bucket);
        }
        assert_eq!(open.take_closed(before_us + 30_000_000), []);
    }

    #[test]
    fn ids_follow_those_that_were_read() {
        let (open, _) = open();
        let now = MonotonicTime::from_us(1);
        let ahead = AtomicTransactionId(START_MS as i64 * 1000 + 5_000_000);
        open.observe(ahead);
        assert!(open.begin(now, false).expect("a number") > ahead);
        // An id of a clock that is wrong is not followed.
        let wrong = AtomicTransactionId(START_MS as i64 * 1000 + 3_600_000_000);
        open.observe(wrong);
        assert!(open.begin(now, false).expect("a number") < wrong);
    }
}
