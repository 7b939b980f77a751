//! Silo's commit protocol.
//!
//! 1. Lock the write set in the order of the records' addresses.
//! 2. Draw the commit epoch: the point in the serial order, between the locks and the validation.
//! 3. Validate the reads: records unchanged and not locked by others, keys that had no record still
//!    without one that was ever written, ranges with the same records in them, no deadline passed
//!    between the transaction's own time and the commit epoch's stamp; if an operation has
//!    answered the transaction's time, that both times are the same.
//! 4. Draw the TID above everything read or overwritten, within the commit epoch.
//! 5. Publish the new versions, which unlocks; hand the changes to the log.
//!
//! Phantoms: a record enters the index before its key is locked, so that an insertion either was
//! in the index when a scan validates, or draws its commit epoch after that validation and is
//! later in the serial order.
//!
//! Transactions over several partitions hold the records that they have read and will write until
//! they are decided (modules `holds`, `prepare`). A commit that meets a hold fails in step 1 or 3,
//! or if a new key lies in a range that is held, which the commit looks up after step 2; only then
//! it searches for the holder (module `blame`).
//!
//! Everything happens inside the worker's epoch, so that an epoch that has finished is complete
//! in the log.

use std::sync::atomic::Ordering;

use base::change::SYSTEM_GENERATION;
use base::epochs::EpochClock;
use base::planted::{self, Bug};
use base::{Abort, Epoch, Tid, TransactionId};

use crate::engine::{KeyCount, Place};
use crate::garbage::{Bag, Garbage};
use crate::log::{Changes, Edit, RedoLog, Write};
use crate::record::{RecordRef, VersionRef};
use crate::word::{HELD, LOCK, QUEUED, Seen};
use crate::worker::{Stop, Worker};

/// A worker checks the size of the table of hints each time it has made so many records.
const GROW_EVERY: u64 = 64;

impl<L: RedoLog> Worker<L> {
    /// Commits the worker's transaction. On an error nothing has happened, but for
    /// [`Abort::ReadOnly`]: then the transaction is done in memory and will not be durable.
    pub(crate) fn finish(&mut self) -> Result<(), Stop> {
        self.try_finish().map_err(|stop| self.blame(stop))
    }

    fn try_finish(&mut self) -> Result<(), Stop> {
        self.keep_told_time();
        if self.state.writes.is_empty() {
            let epoch = self.engine.epochs.commit_epoch();
            return self.validate(epoch, &[]);
        }
        let mut writes = std::mem::take(&mut self.state.writes);
        let outcome = self.commit_writes(&mut writes);
        if self.state.wrote != Tid::ZERO {
            // They are published: the transaction can no longer take them back.
            writes.clear();
        }
        self.state.writes = writes;
        outcome
    }

    fn commit_writes(&mut self, writes: &mut [Write]) -> Result<(), Stop> {
        self.check_size(writes)?;
        writes.sort_unstable_by_key(|write| write.record);
        let mut locked = std::mem::take(&mut self.locked);
        let drawn = self.lock_and_validate(writes, &mut locked);
        let outcome = match drawn {
            Ok(tid) => {
                self.state.observed = tid.epoch();
                self.state.wrote = tid;
                self.publish(writes, &locked, tid);
                Place::count(&self.place().commits, 1);
                let mut edits = std::mem::take(&mut self.state.edits);
                edits.sort_unstable_by_key(|edit| edit.record);
                let stamp_ms = self.engine.epochs.stamp_ms(tid.epoch());
                let handed = self.hand_over(writes, &edits, tid, stamp_ms);
                self.state.edits = edits;
                handed
            }
            Err(stop) => {
                for (write, seen) in writes.iter().zip(&locked) {
                    write.record.word().unlock(*seen, seen.0 & QUEUED);
                }
                Err(stop)
            }
        };
        locked.clear();
        self.locked = locked;
        outcome
    }

    /// Steps 1 to 4. `locked` gets the words of the records that were locked, also on an error.
    fn lock_and_validate(&mut self, writes: &[Write], locked: &mut Vec<Seen>) -> Result<Tid, Stop> {
        for write in writes {
            let seen = write.record.word().lock_to_commit();
            locked.push(seen.map_err(|_| Stop::Conflict)?);
        }
        if !self.is_newest(writes, locked) {
            return Err(Stop::Conflict);
        }
        let epoch = self.engine.epochs.commit_epoch();
        self.validate(epoch, writes)?;
        if !planted::is(Bug::IgnoredHolds) {
            self.enters_no_range(writes, locked, None)?;
        }
        let read = self.state.reads.iter().map(|(_, seen)| seen);
        let newest = newest(locked.iter().chain(read));
        self.draw(epoch, newest)
    }

    /// Draws a TID above `newest` and above those that this worker has drawn (step 4).
    pub(crate) fn draw(&mut self, epoch: Epoch, newest: Tid) -> Result<Tid, Stop> {
        assert!(
            !self.engine.epochs.is_driven(),
            "a driven engine's changes come from its log"
        );
        let Some(tid) = newest.max(self.last_tid).next_in(epoch) else {
            // The epoch's sequence numbers are used up: the next epoch has new ones.
            self.engine.epochs.advance(epoch);
            return Err(Stop::Conflict);
        };
        self.last_tid = tid;
        Ok(tid)
    }

    /// Refuses transactions that write more than the limit.
    pub(crate) fn check_size(&self, writes: &[Write]) -> Result<(), Stop> {
        let bytes: usize = writes.iter().map(|write| write.version.bytes()).sum();
        if bytes > self.engine.limits().transaction_bytes {
            return Err(Stop::Abort(Abort::TooLarge {
                what: "bytes written",
            }));
        }
        Ok(())
    }

    /// Fails if one of the new keys lies in a range that another transaction than `but` holds. The
    /// write set is locked, and the commit epoch drawn.
    pub(crate) fn enters_no_range(
        &self,
        writes: &[Write],
        locked: &[Seen],
        but: Option<TransactionId>,
    ) -> Result<(), Stop> {
        let new = |seen: &Seen| RecordRef::version(*seen).is_never();
        if !locked.iter().any(new) || !self.engine.holds.any_range() {
            return Ok(());
        }
        let mut new = writes.iter().zip(locked).filter(|(_, seen)| new(seen));
        let holds = &self.engine.holds;
        if new.any(|(write, _)| holds.range_holder(write.record.key(), but).is_some()) {
            return Err(Stop::Conflict);
        }
        Ok(())
    }

    /// Validates the reads (step 3). `own` is the write set, sorted by record and locked.
    fn validate(&self, epoch: Epoch, own: &[Write]) -> Result<(), Stop> {
        if planted::is(Bug::NoValidation) {
            return Ok(());
        }
        let mine = |record| {
            own.binary_search_by_key(&record, |write| write.record)
                .is_ok()
        };
        let state = &self.state;
        // A lone read is atomic by itself; only the generation to which it belongs must still be
        // there. But a held record may have been overwritten already from the view of other
        // partitions, and a locked one from the view of clients that order the two commits by their
        // reads.
        let alone = own.is_empty()
            && state.reads.len() + state.missing_ends.len() <= 2
            && !state
                .reads
                .last()
                .is_some_and(|(_, seen)| seen.has(HELD | LOCK));
        let reads = if alone && state.scans.is_empty() {
            1
        } else {
            state.reads.len()
        };
        let unchanged = |(record, seen): &(RecordRef, Seen)| {
            let word = record.word();
            word.validates(*seen, false) || (word.validates(*seen, true) && mine(*record))
        };
        let holds = state.reads[..reads].iter().all(unchanged)
            && (alone || self.still_missing(&mine))
            && state
                .scans
                .iter()
                .all(|scan| self.scan_unchanged(scan, &mine))
            && (epoch == state.epoch || self.no_deadline_passed(epoch));
        if holds { Ok(()) } else { Err(Stop::Conflict) }
    }

    pub(crate) fn still_missing(&self, mine: &impl Fn(RecordRef) -> bool) -> bool {
        let mut start = 0;
        self.state.missing_ends.iter().all(|&end| {
            let key = &self.state.missing[start..end];
            start = end;
            match self.engine.index.get(self.engine.index.hash(key), key) {
                None => true,
                Some(record) => never_written(record, mine(record)),
            }
        })
    }

    pub(crate) fn scan_unchanged(
        &self,
        scan: &crate::worker::ScanRead,
        mine: &impl Fn(RecordRef) -> bool,
    ) -> bool {
        let mut expected = scan.records.iter();
        let mut same = true;
        self.engine
            .index
            .range(&scan.from, Some(&scan.to), |record| {
                let seen = record.word().load();
                same = if RecordRef::version(seen).is_never() {
                    never_written(record, mine(record))
                } else {
                    expected.next() == Some(&record)
                };
                same
            });
        same && expected.next().is_none()
    }

    pub(crate) fn no_deadline_passed(&self, epoch: Epoch) -> bool {
        let (before, now) = (self.state.time_ms, self.engine.epochs.stamp_ms(epoch));
        let passed = |deadline: u64| before < deadline && deadline <= now;
        let of = |seen: &Seen| RecordRef::version(*seen).deadline();
        let mut reads = self.state.reads.iter();
        now == before
            || !self.state.told_time && !reads.any(|(_, seen)| of(seen).is_some_and(passed))
    }

    /// Publishes the writes in memory (step 5). Exclusive holds are thereby given back, as locks
    /// are.
    pub(crate) fn publish(&self, writes: &[Write], locked: &[Seen], tid: Tid) {
        let generation = self.state.generation;
        let place = self.place();
        let mut bag = place.bag.lock();
        let (mut keys, mut bytes) = (KeyCount::default(), 0);
        for (write, seen) in writes.iter().zip(locked) {
            let (old, new) = (RecordRef::version(*seen), write.version);
            new.set_tid(tid);
            bytes += new.bytes() as i64;
            if write.record == self.engine.generation {
                self.engine
                    .generation_now
                    .store(u64::from(generation), Ordering::Release);
            } else {
                keys.add(new, generation, 1);
                keys.add(old, generation, -1);
            }
            // The word of a record that was held changes together with the table of holds.
            let _held = seen
                .has(HELD)
                .then(|| self.engine.holds.publishing(write.record));
            self.install(&mut bag, write.record, *seen, old, new);
        }
        bytes -= bag.take_freed() as i64;
        drop(bag);
        place.count_keys(generation, keys);
        Place::count(&place.bytes, bytes);
    }

    /// Makes `new` current in place of `old`, and makes sure that `old` is freed when it may be.
    pub(crate) fn install(
        &self,
        bag: &mut Bag,
        record: RecordRef,
        seen: Seen,
        old: VersionRef,
        new: VersionRef,
    ) {
        let generation = record == self.engine.generation;
        let read_atomic = !generation && self.engine.is_read_atomic(record.key());
        let kept = if !old.is_never() && read_atomic {
            Place::count(&self.place().kept, 1);
            Some(old)
        } else {
            self.engine.snapshots.kept(old)
        };
        let watcher = self.engine.watcher().filter(|_| read_atomic || generation);
        if let Some(watcher) = watcher {
            match generation {
                true => watcher.writing_all(),
                false => watcher.writing(record.key()),
            }
        }
        if kept.is_some() {
            new.set_previous(kept);
        }
        let tend = new.is_absent() || new.deadline().is_some() || kept.is_some() || generation;
        let queue = tend && !seen.has(QUEUED);
        record
            .word()
            .publish(seen, new.address(), if queue { QUEUED } else { 0 });
        if let Some(watcher) = watcher {
            match generation {
                true => watcher.written_all(),
                false => watcher.written(record.key()),
            }
        }
        if queue {
            self.engine.queue.push(record);
        }
        let mut next = Some(old);
        while let Some(version) = next.filter(|&v| !v.is_never() && Some(v) != kept) {
            next = version.previous();
            bag.put(&self.engine.epochs, Garbage::Version(version));
        }
    }

    pub(crate) fn append(&mut self, writes: &[Write], tid: Tid) -> Result<(), Stop> {
        let stamp_ms = self.engine.epochs.stamp_ms(tid.epoch());
        self.hand_over(writes, &[], tid, stamp_ms)
    }

    /// Appends changes to the log that the applier will publish.
    pub(crate) fn append_staged(&mut self, writes: &[Write]) -> Result<(), Stop> {
        self.hand_over(writes, &[], Tid::ZERO, self.state.time_ms)
    }

    fn hand_over(
        &mut self,
        writes: &[Write],
        edits: &[Edit],
        tid: Tid,
        stamp_ms: u64,
    ) -> Result<(), Stop> {
        let changes = Changes {
            writes,
            edits,
            generation: self.engine.generation,
        };
        let logged = self.log.append(tid, stamp_ms, changes);
        logged.map_err(|reason| Stop::Abort(Abort::ReadOnly { reason }))
    }

    /// Counts a record that this worker brought into the index.
    pub(crate) fn count_record(&self, record: RecordRef) {
        let place = self.place();
        Place::count(&place.records, 1);
        Place::count(&place.bytes, record.bytes() as i64);
        if place
            .records
            .load(Ordering::Relaxed)
            .is_multiple_of(GROW_EVERY)
            && let Some(table) = self.engine.index.grow(self.engine.stats().records as usize)
        {
            self.retire(Garbage::Table(table));
        }
    }
}

/// Returns the greatest TID of the versions of these words.
pub(crate) fn newest<'s>(seen: impl Iterator<Item = &'s Seen>) -> Tid {
    seen.map(|seen| RecordRef::version(*seen).tid())
        .fold(Tid::ZERO, Tid::max)
}

/// Returns `true` if a version exists while this generation is visible: as a key, or as a system
/// record.
pub(crate) fn lasts(version: VersionRef, generation: u16) -> bool {
    !version.is_absent() && [generation, SYSTEM_GENERATION].contains(&version.generation())
}

/// Returns `true` if a version counts as a key of this generation.
pub(crate) fn counts(version: VersionRef, generation: u16) -> bool {
    !version.is_absent() && version.generation() == generation
}

/// Returns `true` if the record was never written, and no transaction is about to write it.
fn never_written(record: RecordRef, own: bool) -> bool {
    let seen = record.word().load();
    let about = if planted::is(Bug::IgnoredHolds) {
        LOCK
    } else {
        LOCK | HELD
    };
    RecordRef::version(seen).is_never() && (own || !seen.has(about))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use base::clock::ManualClock;
    use base::limits::Limits;
    use base::{Op, Reply, Version};

    use super::*;
    use crate::worker::Running;
    use crate::{Engine, NoLog, Options};

    /// Runs and commits once, without trying again.
    fn once(w: &mut Worker<NoLog>, ops: &[Op<'_>]) -> Result<(), Stop> {
        w.begin();
        let running = Running(w);
        running.0.run(ops)?;
        running.0.finish()
    }

    fn version(w: &mut Worker<NoLog>, key: &[u8]) -> Version {
        match w.execute(&[Op::Watch { key }]).unwrap().replies()[0] {
            Reply::Version(version) => version,
            ref other => panic!("{other:?}"),
        }
    }

    /// The commit that has the lock may be before others whose effects this reader has seen.
    #[test]
    fn a_lone_read_of_what_a_commit_has_locked_is_validated() {
        let engine = Engine::new(&Options {
            workers: 2,
            clock: Arc::new(ManualClock::new(1_000)),
            limits: Limits::default(),
        });
        let mut w = engine.worker(|_| NoLog).unwrap();
        w.execute(&[Op::put(b"c", b"old")]).map(drop).unwrap();
        let check = Op::Check {
            key: b"c",
            version: version(&mut w, b"c"),
        };
        let record = engine.index.get(engine.index.hash(b"c"), b"c").unwrap();
        let locked = record.word().lock().unwrap();
        for op in [check.clone(), Op::Get { key: b"c" }] {
            assert_eq!(once(&mut w, &[op]), Err(Stop::Conflict));
        }
        record.word().unlock(locked, locked.0 & QUEUED);
        assert_eq!(once(&mut w, &[check]), Ok(()), "it was given up");
    }
}
