//! Finds the holder of a record at which a transaction has failed. The engine searches only after
//! the failure, so that transactions that meet no hold pay nothing; the answer describes the
//! present state.

use base::Abort;
use base::planted::{self, Bug};
use base::transaction::Holder;

use crate::log::RedoLog;
use crate::record::RecordRef;
use crate::word::{HELD, SHARED};
use crate::worker::{Stop, Worker};

impl<L: RedoLog> Worker<L> {
    /// Returns the same, or [`Abort::Held`] if the transaction, which has nothing locked any more,
    /// met a hold.
    #[cold]
    pub(crate) fn blame(&self, stop: Stop) -> Stop {
        let holder = match &stop {
            Stop::Conflict => self.in_the_way().inspect(|_| self.want_writes()),
            // It ended because of its reads, which may be out of date already.
            Stop::Abort(Abort::Precondition { .. } | Abort::Failed(_) | Abort::Cancelled)
                if self.read_what_is_held() =>
            {
                match self.in_the_way() {
                    // The holder has been decided since: look again.
                    None => return Stop::Conflict,
                    holder => holder,
                }
            }
            Stop::Abort(_) => None,
        };
        match holder {
            Some(by) => Stop::Abort(Abort::Held { by }),
            None => stop,
        }
    }

    /// Makes readers that come later give way to this transaction when it tries again.
    fn want_writes(&self) {
        for write in &self.state.writes {
            let seen = write.record.word().load();
            if seen.has(SHARED) {
                let wanted = &self.engine.holds.wanted;
                let version = RecordRef::version(seen).tid();
                wanted.note(write.record, version, self.state.time_ms);
            }
        }
    }

    fn read_what_is_held(&self) -> bool {
        !planted::is(Bug::IgnoredHolds) && self.state.reads.iter().any(|(_, seen)| seen.has(HELD))
    }

    /// Returns the oldest holder of the records that the transaction needs, in any order of records
    /// in memory. A transaction that is older than this holder is older than all and may wait.
    pub(crate) fn in_the_way(&self) -> Option<Holder> {
        let (state, holds) = (&self.state, &self.engine.holds);
        let holder = |record: RecordRef, marks: u64| {
            let held = record.word().load().has(marks);
            held.then(|| holds.holder(record)).flatten()
        };
        let writes = state.writes.iter();
        let reads = state.reads.iter();
        writes
            .filter_map(|write| holder(write.record, HELD | SHARED))
            .chain(reads.filter_map(|(record, _)| holder(*record, HELD)))
            .chain(self.missing_holder())
            .chain(self.scanned_holder())
            .chain(
                state
                    .writes
                    .iter()
                    .filter_map(|write| holds.range_holder(write.record.key(), None)),
            )
            .min_by_key(|holder| (holder.age, holder.id))
    }

    /// Returns the transaction that is about to write one of the keys that had no record.
    fn missing_holder(&self) -> Option<Holder> {
        let mut start = 0;
        self.state.missing_ends.iter().find_map(|&end| {
            let key = &self.state.missing[start..end];
            start = end;
            let index = &self.engine.index;
            self.exclusive_holder(index.get(index.hash(key), key)?)
        })
    }

    /// Returns a transaction that is about to write in one of the ranges that were read.
    fn scanned_holder(&self) -> Option<Holder> {
        let mut found = None;
        for scan in &self.state.scans {
            let index = &self.engine.index;
            index.range(&scan.from, Some(&scan.to), |record| {
                found = self.exclusive_holder(record);
                found.is_none()
            });
        }
        found
    }

    fn exclusive_holder(&self, record: RecordRef) -> Option<Holder> {
        let held = record.word().load().has(HELD);
        held.then(|| self.engine.holds.holder(record)).flatten()
    }
}
