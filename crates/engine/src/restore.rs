//! Fills an engine from a log or a checkpoint.
//!
//! Changes may come in any order and from several threads: for each key the greatest TID wins. Edits of
//! parts of values are kept until the end, and are then applied in the order of their TIDs to the
//! version that they name (module `edits`). Tombstones stay until the janitor, which works after the
//! recovery, removes them.
//!
//! System records are restored like any other. At the end, prepared attempts take their holds
//! again, and their effects are kept again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::transaction::Holder;
use base::{Change, Epoch, Origin, Tid, Timestamp, TransactionId};
use hashbrown::HashMap;

use crate::edits::Edits;
use crate::engine::{Engine, KeyCount, Place, generation_after};
use crate::garbage::Garbage;
use crate::holds::Prepared;
use crate::log::{NoLog, RedoLog, Write};
use crate::origin::{OwnedOrigin, Recent};
use crate::record::{Content, RecordRef, VersionRef};
use crate::retry::pause;
use crate::snapshot::Pinned;
use crate::system::{self, Effect, Entry, Kept};
use crate::word::{DEAD, QUEUED, Refused, Seen};
use crate::worker::Worker;

/// Restores changes; one for each thread. Give it to [`Engine::finish_restore`] at the end.
pub struct Restorer {
    pub(crate) worker: Worker<NoLog>,
    /// Keys of each generation: found minus replaced.
    keys: HashMap<u16, KeyCount>,
    recent: Recent,
    pub(crate) edits: Edits,
}

impl Engine {
    /// Returns a restorer for one thread, or `None` when there are as many as there can be workers.
    #[must_use]
    pub fn restorer(self: &Arc<Self>) -> Option<Restorer> {
        let worker = self.worker(|_| NoLog)?;
        Some(Restorer {
            worker,
            keys: HashMap::new(),
            recent: Recent::default(),
            edits: Edits::default(),
        })
    }

    /// Ends a restoration: the next transaction commits in an epoch above `newest`, the greatest
    /// epoch that was ever used, and at a time not before `stamp_ms`. Call
    /// [`Engine::restore_prepared`] next.
    ///
    /// # Errors
    /// Returns the key of which an edit changes a missing version, as text for the operator: the log
    /// is damaged.
    pub fn finish_restore(
        &self,
        mut restorers: Vec<Restorer>,
        newest: Epoch,
        stamp_ms: u64,
    ) -> Result<(), String> {
        Edits::apply(&mut restorers)?;
        let generation = RecordRef::version(self.generation.word().load()).generation();
        self.generation_now
            .store(u64::from(generation), Ordering::Release);
        // One flush is possible before the janitor has swept.
        let farthest = generation_after(generation_after(generation));
        self.oldest_generation
            .store(u64::from(farthest), Ordering::Release);
        for restorer in &restorers {
            let keys = restorer.keys.get(&generation).copied().unwrap_or_default();
            restorer.worker.place().count_keys(generation, keys);
        }
        self.floors
            .raise_all(Tid::new(newest, (1 << Tid::SEQUENCE_BITS) - 1));
        // Versions that have left memory may be of any time until now.
        self.read_atomic.note_left(TransactionId {
            timestamp: Timestamp::at_ms(stamp_ms),
            unique: 0,
        });
        self.epochs.resume(newest.next(), stamp_ms);
        Ok(())
    }
}

impl Restorer {
    /// Applies one change of transaction `tid`, unless a later one of the key is known.
    pub fn apply(&mut self, tid: Tid, change: &Change<'_>) {
        self.worker.refresh();
        let engine = Arc::clone(&self.worker.engine);
        let _pinned = Pinned::new(&engine, self.worker.place);
        if let Change::Edit {
            key,
            base,
            offset,
            bytes,
        } = *change
        {
            let record = self.worker.record_of(key);
            return self.edits.keep(record, (tid, base), offset, bytes);
        }
        let write = self.worker.write_of(change, &mut self.recent);
        // Another version of its key may have left before the restart.
        if let Some(origin) = write.version.origin() {
            engine.read_atomic.note_left(origin.id);
        }
        self.install(tid, write.record, write.version);
    }

    pub(crate) fn install(&mut self, tid: Tid, record: RecordRef, new: VersionRef) {
        let seen = loop {
            if let Ok(seen) = record.word().lock() {
                break seen;
            }
            std::hint::spin_loop();
        };
        let old = RecordRef::version(seen);
        if !old.is_never() && old.tid() >= tid {
            record.word().unlock(seen, seen.0 & QUEUED);
            return new.free_unpublished();
        }
        new.set_tid(tid);
        self.publish(record, seen, new);
        if record != self.worker.engine.generation {
            for (version, by) in [(old, -1), (new, 1)] {
                let generation = version.generation();
                let count = self.keys.entry(generation).or_default();
                count.add(version, generation, by);
            }
        }
        Place::count(&self.worker.place().bytes, new.bytes() as i64);
        if !old.is_never() {
            self.worker.retire(Garbage::Version(old));
        }
    }

    fn publish(&self, record: RecordRef, seen: Seen, new: VersionRef) {
        let queue = (new.is_absent() || new.deadline().is_some()) && !seen.has(QUEUED);
        record
            .word()
            .publish(seen, new.address(), if queue { QUEUED } else { 0 });
        if queue {
            self.worker.engine.queue.push(record);
        }
    }
}

impl Engine {
    /// Prepares again the attempts that were prepared before a restart, with all holds. Call it
    /// once, after [`Engine::finish_restore`] and before any transaction runs. Returns their
    /// number.
    ///
    /// In a driven engine it is called each time before the replica begins to lead, with nothing
    /// left of the holds before ([`Engine::drop_holds`]); it may be called again.
    ///
    /// # Errors
    /// Returns the system record that cannot be understood, as text for the operator: the log is
    /// damaged, or was written by another version of the program.
    pub fn restore_prepared(self: &Arc<Self>) -> Result<usize, String> {
        let _applying = self.applying.lock();
        let worker = if self.epochs.is_driven() {
            // Versions that have left memory may be of any time until now.
            let now = Timestamp::at_ms(self.epochs.logged_ms());
            self.read_atomic.note_left(TransactionId {
                timestamp: now,
                unique: 0,
            });
            self.seat(self.workers + 2, NoLog)
        } else {
            self.worker(|_| NoLog)
                .ok_or("all workers are in use, so that nothing can be restored")?
        };
        let _pinned = Pinned::new(self, worker.place);
        let mut found = Vec::new();
        self.index
            .range(&system::RESERVED, Some(&system::OTHERS), |record| {
                let version = RecordRef::version(record.word().load());
                if !version.is_absent() {
                    found.push((record, version));
                }
                true
            });
        let mut prepared = 0;
        for (record, version) in found {
            let restored = system::id(record.key()).and_then(|id| {
                let entry = system::decode(version.value())?;
                match entry {
                    Entry::Prepared { kept, .. } => {
                        worker.restore_one(id, &kept)?;
                        prepared += 1;
                    }
                    Entry::Pending { .. } => prepared += 1,
                    Entry::Committed { .. } | Entry::Refused => {}
                }
                Ok(())
            });
            restored.map_err(|error| {
                let key = record.key().escape_ascii();
                format!("the system record \"{key}\" cannot be understood: {error}")
            })?;
        }
        Ok(prepared)
    }
}

impl Worker<NoLog> {
    fn restore_one(&self, id: TransactionId, kept: &Kept<'_>) -> Result<(), system::Malformed> {
        let engine = &self.engine;
        if engine.prepared.lock().contains_key(&id) {
            return Ok(());
        }
        let holder = Holder { id, age: kept.age };
        let origin = engine.origins.share(Origin {
            id,
            siblings: kept.siblings,
        });
        let mut prepared = Prepared {
            effects: Vec::new(),
            held: Vec::new(),
            ranged: !kept.ranges.is_empty(),
            is_staged: false,
        };
        let mut flushes = false;
        for effect in &kept.effects {
            let mut write = self.effect(effect, &origin);
            let (record, locked) = self.lock_restored(write.record)?;
            write.record = record;
            flushes |= record == engine.generation;
            if engine.epochs.is_driven() {
                // Its system record has everything that the log will need.
                write.version.free_unpublished();
                prepared.held.push(record);
            } else {
                prepared.effects.push(write);
            }
            engine.holds.exclude(record, locked, holder);
        }
        for key in &kept.shared {
            let record = self.share_restored(self.record_of(key), holder)?;
            prepared.held.push(record);
        }
        if !flushes {
            let record = self.share_restored(engine.generation, holder)?;
            prepared.held.push(record);
        }
        for (from, to) in &kept.ranges {
            engine.holds.hold_range(holder, from, to);
        }
        engine.prepared.lock().insert(id, prepared);
        Ok(())
    }

    /// Locks a record, or the live one of its key. Other threads have it only for a moment.
    fn lock_restored(&self, record: RecordRef) -> Result<(RecordRef, Seen), system::Malformed> {
        let (mut record, mut patience) = (record, Patience::default());
        loop {
            match record.word().lock() {
                Ok(seen) => return Ok((record, seen)),
                Err(Refused::Dead) => record = self.record_of(record.key()),
                Err(_) if patience.is_left() => {}
                Err(_) => {
                    return Err(system::Malformed("another one holds a key that it writes"));
                }
            }
        }
    }

    fn share_restored(
        &self,
        record: RecordRef,
        holder: Holder,
    ) -> Result<RecordRef, system::Malformed> {
        let (mut record, mut patience) = (record, Patience::default());
        loop {
            let seen = record.word().load();
            match self.engine.holds.share(record, seen, holder) {
                Ok(()) => return Ok(record),
                Err(Refused::Dead) if seen.has(DEAD) => record = self.record_of(record.key()),
                Err(_) if patience.is_left() => {}
                Err(_) => {
                    return Err(system::Malformed(
                        "another one holds a key that it has read",
                    ));
                }
            }
        }
    }
}

/// The time that a restoration waits for threads that have a record for a moment: a janitor, or a
/// transaction that is about to learn that it came too late.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    const ROUNDS: u32 = 2_000;

    fn is_left(&mut self) -> bool {
        self.0 += 1;
        pause(self.0);
        self.0 < Self::ROUNDS
    }
}

impl<L: RedoLog> Worker<L> {
    /// Returns the write of a change.
    pub(crate) fn write_of(&self, change: &Change<'_>, recent: &mut Recent) -> Write {
        let origins = &self.engine.origins;
        match *change {
            Change::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin,
            } => {
                let content = Content {
                    parts: &[value],
                    kind,
                    deadline,
                };
                let origin = recent.share(origins, origin);
                Write {
                    record: self.record_of(key),
                    version: VersionRef::new(generation, Some(content), origin),
                }
            }
            Change::Edit { .. } => unreachable!("only a restorer meets edits"),
            Change::Delete { key, origin } => Write {
                record: self.record_of(key),
                version: VersionRef::new(0, None, recent.share(origins, origin)),
            },
            Change::Flush { generation } => Write {
                record: self.engine.generation,
                version: Engine::generation_version(generation),
            },
        }
    }

    /// Returns the write of a prepared transaction's effect.
    pub(crate) fn effect(&self, effect: &Effect<'_>, origin: &Arc<OwnedOrigin>) -> Write {
        let mut recent = Recent::of(origin);
        let origin = Some(origin.get());
        let change = match *effect {
            Effect::Put {
                key,
                value,
                kind,
                generation,
                deadline,
            } => Change::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin,
            },
            Effect::Delete { key } => Change::Delete { key, origin },
            Effect::Flush { generation } => Change::Flush { generation },
        };
        self.write_of(&change, &mut recent)
    }
}
