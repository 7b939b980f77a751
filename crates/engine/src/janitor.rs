//! Removes data that is not needed any more: tombstones, expired and flushed keys, versions that
//! snapshots have left behind, memory that idle workers hold.
//!
//! A record that needs attention carries the mark `QUEUED` and is in exactly one place:
//!
//! | place | which records |
//! |---|---|
//! | the engine's queue | those that commits put there |
//! | `waiting` | those that the janitor could not finish yet |
//! | `held` | those with versions that the oldest snapshot needs: nothing can be done until it goes |
//! | the engine's `expiring` | live keys that will expire, by the time at which they will, or are to be looked at again |
//! | `retained` | read-atomic keys with versions, or an absence, for which a reader may still ask |
//! | none of these | the one that the janitor is looking at |
//!
//! Invariants:
//! 1. Only the janitor takes records out of the index, and only those that it is looking at or
//!    meets without the mark: no place ever holds a record that is gone.
//! 2. A record leaves only when the write that made its key absent is durable and its epoch has
//!    finished, and when no snapshot can see the key.
//! 3. A key's TID goes into its floor first (module `floors`).
//! 4. A record that is held under two-phase locking waits: it cannot be locked.
//! 5. Of a read-atomic key, versions are kept for [`base::versions::ReadAtomic::KEPT`] after they were
//!    replaced, and its record for as long after its transaction was forgotten, which is when all
//!    partitions have committed it: from then on no reader meets another version of that transaction
//!    without having begun before.

mod age;
mod horizon;
mod removal;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::change::SYSTEM_GENERATION;
use base::epochs::EpochClock;
use base::{Epoch, TransactionId};

use self::age::{AgeClock, KEPT_MS};
use self::horizon::ReclaimHorizon;
use self::removal::{cut_history, cut_retained, remove};
use crate::announce::{announce_expiry, is_system};
use crate::engine::{Engine, JANITOR};
use crate::epoch::EpochGuard;
use crate::expiring_hashes::AwaitedHashes;
use crate::lookaside::HintTable;
use crate::record::{RecordRef, VersionRef};
use crate::system_record;
use crate::word::{LockRefusal, QUEUED};
use crate::worker_slot::WorkerSlot;

/// A key that will expire is looked at after this time at the latest: it may have been deleted since, or have
/// got an earlier deadline.
const LOOK_MS: u64 = 30_000;
/// Room that is kept for records which snapshots hold.
const ROOM: usize = 1024;

/// The one janitor of an engine. Call [`Janitor::tidy`] again and again from one thread.
pub struct Janitor {
    engine: Arc<Engine>,
    waiting: VecDeque<RecordRef>,
    held: Vec<RecordRef>,
    /// The snapshot because of which they are held.
    held_for: Option<Epoch>,
    sweep: Option<Sweep>,
    retained: VecDeque<Retained>,
    clock: AgeClock,
    /// The newest generation of all databases when the index was swept.
    swept: u16,
    /// The walk that completes the look-aside table: the table, and the key from which to go on.
    listing: Option<(Arc<HintTable>, Vec<u8>)>,
    /// The greatest deadline that was found passed.
    passed_ms: u64,
    hashes: AwaitedHashes,
}

/// A read-atomic key that must be looked at again.
struct Retained {
    /// The age of the janitor at which it is due.
    due_ms: u64,
    record: RecordRef,
    /// The transaction that made it absent, if it was forgotten already when this was noted.
    forgotten: Option<TransactionId>,
}

/// A walk through the index in search of flushed keys.
struct Sweep {
    /// The newest generation of all databases.
    generation: u16,
    from: Vec<u8>,
}

/// The state after a call of [`Janitor::tidy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JanitorReport {
    /// `true` if work is left that does not have to wait for a deadline.
    pub more: bool,
    /// The next time at which a key or a field expires, milliseconds since the Unix epoch.
    pub next_deadline_ms: Option<u64>,
    /// The greatest deadline of a key or a field that was found to have passed so far; 0: none. The log need not
    /// know of a time after it.
    pub passed_ms: u64,
}

impl Engine {
    /// Returns the janitor. There must be one at most.
    #[must_use]
    pub fn janitor(self: &Arc<Self>) -> Janitor {
        Janitor {
            engine: Arc::clone(self),
            waiting: VecDeque::new(),
            held: Vec::new(),
            held_for: None,
            retained: VecDeque::new(),
            clock: AgeClock::new(self.epochs.time_ms()),
            sweep: None,
            // The restored versions may be of any generation.
            swept: self.newest_generation().wrapping_sub(1),
            listing: None,
            passed_ms: 0,
            hashes: AwaitedHashes::default(),
        }
    }
}

impl Janitor {
    /// Looks at `budget` records at most. Deletes up to epoch `durable` are durable.
    pub fn tidy(&mut self, durable: Epoch, budget: usize) -> JanitorReport {
        let engine = Arc::clone(&self.engine);
        engine.epochs.refresh();
        {
            let _guard = EpochGuard::new(&engine.epochs, JANITOR);
            self.clock.advance(engine.epochs.time_ms());
            let now = ReclaimHorizon::new(&engine, durable, self.clock.old_enough());
            if engine.read_atomic.any() {
                self.clock.note_epoch(engine.epochs.current());
            }
            self.notice_flush(now);
            self.notice_snapshots(now);
            self.expire(now, budget);
            let passed_ms = self.hashes.look(&engine, now.time_ms, budget);
            self.passed_ms = self.passed_ms.max(passed_ms);
            self.look_at_retained(now, budget);
            let waiting = self.waiting.len().min(budget);
            for _ in 0..waiting {
                let record = self.waiting.pop_front().expect("counted before");
                self.examine(record, now, None);
            }
            for _ in 0..budget {
                let Some(record) = engine.queue.pop() else {
                    break;
                };
                self.examine(record, now, None);
            }
            self.sweep_slice(now, budget);
            self.settle(now);
            self.list_slice(budget);
        }
        let garbage = self.empty_bags();
        if !self.waiting.is_empty() || self.sweep.is_some() {
            engine.epochs.hurry();
        }
        JanitorReport {
            more: garbage
                || !self.waiting.is_empty()
                || !engine.queue.is_empty()
                || !engine.field_deadlines.noted.is_empty()
                || self.sweep.is_some()
                || self.listing.is_some(),
            next_deadline_ms: {
                let deadline = engine.expiring.next_ms();
                let retained = self.retained.front().map(|retained| {
                    let left = retained.due_ms.saturating_sub(self.clock.age_ms);
                    self.clock.seen_ms + left
                });
                let field = self.hashes.next_ms();
                deadline.into_iter().chain(retained).chain(field).min()
            },
            passed_ms: self.passed_ms,
        }
    }

    /// Looks at a record, and puts it into the place where it belongs. `forgotten` is
    /// the note about it in [`Retained`].
    fn examine(
        &mut self,
        record: RecordRef,
        now: ReclaimHorizon,
        forgotten: Option<TransactionId>,
    ) {
        let seen = match record.word().lock() {
            Ok(seen) => seen,
            Err(LockRefusal::Busy | LockRefusal::Held) => return self.waiting.push_back(record),
            Err(LockRefusal::Dead) => {
                unreachable!("a record that is known to the janitor is there")
            }
        };
        let version = RecordRef::version(seen);
        self.announce_expiry(record, version);
        if let Some(deadline) = version.deadline().filter(|at| *at <= now.time_ms) {
            self.passed_ms = self.passed_ms.max(deadline);
        }
        let retains = self.engine.read_atomic.covers(record.key());
        if retains {
            cut_retained(&self.engine, version, now.old);
        } else {
            cut_history(&self.engine, version, now.viewed);
        }
        let kept = version
            .deadline()
            .filter(|_| self.engine.keeps_expired.load(Ordering::Relaxed));
        if let Some(deadline) = kept {
            record.word().unlock(seen, QUEUED);
            self.await_deadline(deadline, record, now);
        } else if retains && self.is_retained((record, version), now, forgotten) {
            record.word().unlock(seen, QUEUED);
            self.retain(record, version);
        } else if record != self.engine.generation && now.is_gone(record, version) {
            if now.may_leave(record, version) {
                remove(&self.engine, record, seen);
            } else {
                record.word().unlock(seen, QUEUED);
                self.put_off(record, version, now);
            }
        } else if version.previous().is_some() {
            record.word().unlock(seen, QUEUED);
            self.put_off(record, version, now);
        } else if let Some(deadline) = version.deadline() {
            record.word().unlock(seen, QUEUED);
            self.await_deadline(deadline, record, now);
        } else {
            record.word().unlock(seen, 0);
        }
    }

    /// Keeps a record until its deadline, or until it is looked at again.
    fn await_deadline(&mut self, deadline: u64, record: RecordRef, now: ReclaimHorizon) {
        let due = deadline.min(now.time_ms + LOOK_MS);
        self.engine.expiring.put(due, record);
    }

    /// Announces that a key has expired, when something listens. Its record is locked.
    fn announce_expiry(&self, record: RecordRef, version: VersionRef) {
        let engine = &self.engine;
        if version.deadline().is_some()
            && !engine.keeps_expired.load(Ordering::Relaxed)
            && !is_system(record.key())
            && let Some(listener) = engine.listening.listener()
        {
            announce_expiry(engine, &*listener, record.key(), version);
        }
    }

    /// Keeps a record for later. Records that a snapshot holds are not looked at again while it
    /// lives: with a long-lived snapshot that would be a lot of work for nothing.
    fn put_off(&mut self, record: RecordRef, version: VersionRef, now: ReclaimHorizon) {
        if now.oldest_snapshot.is_some() && version.previous().is_some() {
            self.held.push(record);
        } else {
            self.waiting.push_back(record);
        }
    }

    /// Looks at the records that the oldest snapshot held when it has gone.
    fn notice_snapshots(&mut self, now: ReclaimHorizon) {
        if self.held_for != now.oldest_snapshot {
            self.held_for = now.oldest_snapshot;
            self.waiting.extend(self.held.drain(..));
            self.held.shrink_to(ROOM);
        }
    }

    /// Returns `true` if a reader may still ask for the versions in the record of a read-atomic
    /// key, or for the reason why it has none.
    fn is_retained(
        &self,
        (record, version): (RecordRef, VersionRef),
        now: ReclaimHorizon,
        forgotten: Option<TransactionId>,
    ) -> bool {
        if version.previous().is_some() {
            return true;
        }
        let id = version.origin_id();
        // Older attempts that are still prepared must find that they come late.
        let settled = || {
            let older = |pending| pending < id;
            forgotten == Some(id) && !self.engine.least_pending().is_some_and(older)
        };
        !version.is_never() && now.is_gone(record, version) && !settled()
    }

    /// Keeps the record of a read-atomic key for later.
    fn retain(&mut self, record: RecordRef, version: VersionRef) {
        let key = system_record::key(version.origin_id());
        let index = &self.engine.index;
        let known = index.get(index.hash(&key), &key);
        let is_known = known.is_some_and(|record| {
            let version = RecordRef::version(record.word().load());
            !version.is_absent()
        });
        self.retained.push_back(Retained {
            due_ms: self.clock.age_ms + KEPT_MS,
            record,
            forgotten: (!is_known).then(|| version.origin_id()),
        });
    }

    fn look_at_retained(&mut self, now: ReclaimHorizon, budget: usize) {
        let age_ms = self.clock.age_ms;
        for _ in 0..budget {
            let due = |retained: &mut Retained| retained.due_ms <= age_ms;
            let Some(retained) = self.retained.pop_front_if(due) else {
                return;
            };
            self.examine(retained.record, now, retained.forgotten);
        }
    }

    fn expire(&mut self, now: ReclaimHorizon, budget: usize) {
        if self.engine.keeps_expired.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..budget {
            let Some(record) = self.engine.expiring.take_due(now.time_ms) else {
                return;
            };
            self.examine(record, now, None);
        }
    }

    /// Handles a flush: every key that is to expire is looked at at once, and the index is swept.
    fn notice_flush(&mut self, now: ReclaimHorizon) {
        let sweeping = self
            .sweep
            .as_ref()
            .map_or(self.swept, |sweep| sweep.generation);
        let newest = now.generations.newest();
        if newest == sweeping {
            return;
        }
        self.waiting.extend(self.engine.expiring.take_all());
        self.sweep = Some(Sweep {
            generation: newest,
            from: Vec::new(),
        });
    }

    /// Continues a sweep, once the flush is durable and no snapshot is older. It waits at a flushed
    /// key that a transaction under two-phase locking has found absent.
    fn sweep_slice(&mut self, now: ReclaimHorizon, budget: usize) {
        let Some(mut sweep) = self.sweep.take() else {
            return;
        };
        let too_early = now.flushed > now.reclaimable
            || now
                .oldest_snapshot
                .is_some_and(|oldest| oldest < now.flushed);
        if too_early {
            self.sweep = Some(sweep);
            return;
        }
        let engine = Arc::clone(&self.engine);
        let (mut looked, mut next) = (0, None);
        engine.index.range(&sweep.from, None, |record| {
            if looked == budget {
                next = Some(record.key().to_vec());
                return false;
            }
            looked += 1;
            let seen = record.word().load();
            let version = RecordRef::version(seen);
            let current = [now.generations.of(record.key()), SYSTEM_GENERATION];
            if seen.has(QUEUED) || current.contains(&version.generation()) {
                return true;
            }
            match record.word().lock() {
                Ok(seen) => {
                    let queued = seen.has(QUEUED);
                    record.word().unlock(seen, QUEUED);
                    if !queued {
                        self.examine(record, now, None);
                    }
                }
                Err(LockRefusal::Dead) => {}
                // The transaction that has it writes it, or leaves it to the janitor.
                Err(_) if version.is_never() => {}
                Err(LockRefusal::Busy | LockRefusal::Held) => {
                    next = Some(record.key().to_vec());
                    return false;
                }
            }
            true
        });
        match next {
            Some(from) => {
                sweep.from = from;
                self.sweep = Some(sweep);
            }
            None => self.swept = sweep.generation,
        }
    }

    /// Continues to give every record an entry in a look-aside table that has just grown.
    fn list_slice(&mut self, budget: usize) {
        let index = &self.engine.index;
        let Some(table) = index.hints().incomplete() else {
            self.listing = None;
            return;
        };
        let from = match self.listing.take() {
            Some((of, from)) if Arc::ptr_eq(&of, &table) => from,
            _ => Vec::new(),
        };
        let (mut looked, mut next) = (0, None);
        index.range(&from, None, |record| {
            if looked == budget {
                next = Some(record.key().to_vec());
                return false;
            }
            looked += 1;
            index.list(record);
            true
        });
        match next {
            Some(from) => self.listing = Some((table, from)),
            None => index.hints().completed(&table),
        }
    }

    /// Notes that no version of a generation before the swept one is left, once that is so.
    fn settle(&self, now: ReclaimHorizon) {
        let engine = &self.engine;
        let oldest = engine.oldest_generation.load(Ordering::Relaxed);
        let known = u64::from(self.swept);
        if oldest == known || self.sweep.is_some() || !engine.queue.is_empty() {
            return;
        }
        let passed = |record: &RecordRef| {
            let version = RecordRef::version(record.word().load());
            version.is_absent() || version.exists_in(now.generations.of(record.key()))
        };
        let retained = self.retained.iter().map(|retained| &retained.record);
        if self
            .waiting
            .iter()
            .chain(&self.held)
            .chain(retained)
            .all(passed)
        {
            engine.oldest_generation.store(known, Ordering::Release);
        }
    }

    /// Frees the memory that workers have retired and no worker can see. Returns `true` if
    /// something is left.
    fn empty_bags(&self) -> bool {
        let engine = &self.engine;
        let mut left = false;
        let mut freed = 0;
        for slot in &engine.slots {
            // A worker that is busy with its bag frees it by itself.
            let Some(mut bag) = slot.bag.try_lock() else {
                continue;
            };
            left |= bag.sweep(&engine.epochs);
            freed += bag.take_freed();
        }
        if freed > 0 {
            WorkerSlot::count(&engine.slots[JANITOR].bytes, -(freed as i64));
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use base::Op;
    use base::limits::Limits;
    use base::transaction::{Expiry, When};

    use super::*;
    use crate::log::NoLog;

    /// The janitor reads the state once for many records; a snapshot may be announced meanwhile.
    #[test]
    fn a_snapshot_that_comes_while_the_janitor_works_keeps_its_versions() {
        let engine = Engine::new(&crate::Options {
            workers: 1,
            clock: Arc::new(base::clock::ManualClock::new(1000)),
            limits: Limits::default(),
        });
        let mut janitor = engine.janitor();
        let mut worker = engine.worker(|_| NoLog).unwrap();
        let put = |value| Op::Put {
            key: b"k",
            value,
            when: When::Always,
            expiry: Expiry::Never,
            get: false,
        };
        drop(worker.execute(&[put(b"old")]).unwrap());
        let now = ReclaimHorizon::new(&engine, Epoch::ZERO, Epoch::ZERO);
        let snapshot = engine.snapshot();
        drop(worker.execute(&[put(b"new")]).unwrap());
        let record = engine.queue.pop().expect("it has a history");
        janitor.examine(record, now, None);
        let seen = worker.read_snapshot(&snapshot, b"k", |entry| entry.value.bytes().into_owned());
        assert_eq!(seen.as_deref(), Some(&b"old"[..]));
        drop(snapshot);
        janitor.tidy(Epoch::ZERO, 10);
        assert!(
            RecordRef::version(record.word().load())
                .previous()
                .is_none()
        );
    }

    /// As above: the snapshot of a driven engine is of the epoch before the current one.
    #[test]
    fn a_snapshot_of_what_is_applied_keeps_its_versions_too() {
        let engine = Engine::driven(&crate::Options {
            workers: 1,
            clock: Arc::new(base::clock::ManualClock::new(1000)),
            limits: Limits::default(),
        });
        let mut janitor = engine.janitor();
        let mut applier = engine.applier().unwrap();
        let mut worker = engine.worker(|_| NoLog).unwrap();
        let put = |value| base::Change::Put {
            key: b"k",
            value,
            kind: base::transaction::Kind::String,
            generation: 0,
            deadline: None,
            origin: None,
        };
        applier.apply(Epoch(1), 0, &[put(b"old")]);
        let now = ReclaimHorizon::new(&engine, Epoch::ZERO, Epoch::ZERO);
        let snapshot = engine.snapshot();
        applier.apply(Epoch(2), 0, &[put(b"new")]);
        let record = engine.queue.pop().expect("it has a history");
        janitor.examine(record, now, None);
        let seen = worker.read_snapshot(&snapshot, b"k", |entry| entry.value.bytes().into_owned());
        assert_eq!(seen.as_deref(), Some(&b"old"[..]));
    }
}
