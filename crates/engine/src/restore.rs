//! Fills an engine from a log or a checkpoint.
//!
//! Changes may come in any order and from several threads: for each key the greatest TID wins. Edits of
//! parts of values are kept until the end, and are then applied in the order of their TIDs to the
//! version that they name (module `edits`). Tombstones stay until the janitor, which works after the
//! recovery, removes them.
//!
//! System records are restored like any other. At the end, prepared attempts take their holds
//! again (module `restore_prepared`).

use std::sync::Arc;

use base::planted::{self, Bug};
use base::{Change, Epoch, Tid, Timestamp, TransactionId, database};
use hashbrown::HashMap;

use crate::database_table::VisibleGenerations;
use crate::databases::{count_restored, farthest_from};
use crate::edits::{self, EditedPart, Edits, StoredEdit};
use crate::effects::{edited_version, write_of_change};
use crate::engine::Engine;
use crate::epoch::EpochGuard;
use crate::garbage::Garbage;
use crate::origin::RecentOrigin;
use crate::publish::publish_tree;
use crate::record::{RecordRef, VersionContent, VersionRef};
use crate::restore_error::RestoreError;
use crate::thread_context::ThreadContext;
use crate::word::{QUEUED, WordValue};
use crate::worker_slot::{KeyCount, WorkerSlot};

/// Restores changes; one for each thread. Give it to [`Engine::finish_restore`] at the end.
pub struct Restorer {
    thread: ThreadContext,
    /// Keys of each generation of each database: found minus replaced.
    keys: HashMap<(u16, u16), KeyCount>,
    recent: RecentOrigin,
    edits: Edits,
}

impl Engine {
    /// Returns a restorer for one thread, or `None` when there are as many as there can be workers.
    #[must_use]
    pub fn restorer(self: &Arc<Self>) -> Option<Restorer> {
        let thread = self.register()?;
        Some(Restorer {
            thread,
            keys: HashMap::new(),
            recent: RecentOrigin::default(),
            edits: Edits::default(),
        })
    }

    /// Ends a restoration: the next transaction commits in an epoch above `newest`, the greatest
    /// epoch that was ever used, and at a time not before `stamp_ms`. Call
    /// [`Engine::restore_prepared`] next.
    ///
    /// # Errors
    /// Returns [`RestoreError::MissingVersion`]: the log is damaged.
    pub fn finish_restore(
        &self,
        mut restorers: Vec<Restorer>,
        newest: Epoch,
        stamp_ms: u64,
    ) -> Result<(), RestoreError> {
        apply_edits(&mut restorers)?;
        self.check_databases()?;
        let generation = RecordRef::version(self.generation.word().load()).generation();
        // No other thread is here that frees the record.
        let generations = VisibleGenerations::new(generation, self.database_table());
        let oldest = farthest_from(generations.newest());
        self.note_generations(generations, oldest);
        if self.has_swapped() && self.read_atomic.any() {
            return Err(RestoreError::Exchanged);
        }
        for restorer in &restorers {
            count_restored(&restorer.thread, generations, &restorer.keys);
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
        let engine = Arc::clone(&self.thread.engine);
        engine.epochs.refresh();
        let _guard = EpochGuard::new(&engine.epochs, self.thread.slot);
        if let Some((key, edit)) = edit_of(tid, change) {
            let record = self.thread.record_of(key);
            return self.edits.keep(record, &edit);
        }
        let write = write_of_change(&self.thread, change, &mut self.recent);
        // Another version of its key may have left before the restart.
        if let Some(origin) = write.version.origin() {
            engine.read_atomic.note_left(origin.id);
        }
        self.install(tid, write.record, write.version);
    }

    fn install(&mut self, tid: Tid, record: RecordRef, new: VersionRef) {
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
        let nodes = publish_tree(old, new);
        self.publish(record, seen, new);
        self.thread.engine.note_field_deadlines(record, old, new);
        if record != self.thread.engine.generation {
            for (version, by) in [(old, -1), (new, 1)] {
                let place = (database::number(record.key()), version.generation());
                let count = self.keys.entry(place).or_default();
                count.add((record, version), place.1, by);
            }
        }
        WorkerSlot::count(&self.thread.counters().bytes, (new.bytes() + nodes) as i64);
        if !old.is_never() {
            self.thread.retire(Garbage::Version(old));
        }
    }

    /// Applies the edits of a record which are newer than its version.
    fn edit(&mut self, record: RecordRef, edits: &[StoredEdit<'_>]) -> Result<(), RestoreError> {
        let engine = Arc::clone(&self.thread.engine);
        let _guard = EpochGuard::new(&engine.epochs, self.thread.slot);
        let version = RecordRef::version(record.word().load());
        let known = if version.is_never() {
            Tid::ZERO
        } else {
            version.tid()
        };
        let newer = match planted::is(Bug::OldElements) {
            true => edits,
            false => &edits[edits.partition_point(|edit| edit.tid <= known)..],
        };
        let Some(last) = newer.last() else {
            return Ok(());
        };
        let missing = || RestoreError::MissingVersion {
            key: record.key().to_vec(),
        };
        let mut base = known;
        for edit in newer {
            let is_missing = edit.base != base && !planted::is(Bug::OldElements);
            if is_missing || version.is_absent() {
                return Err(missing());
            }
            base = edit.tid;
        }
        let new = match last.part {
            EditedPart::Bytes { .. } => edited_string(version, newer),
            EditedPart::Elements { deadline, .. } => {
                let again = planted::is(Bug::RepeatedElements).then_some(last);
                let changes = newer.iter().chain(again).map(|edit| edit.bytes);
                edited_version(version, deadline, changes)
            }
        };
        let new = new.ok_or_else(missing)?;
        self.install(last.tid, record, new);
        Ok(())
    }

    fn publish(&self, record: RecordRef, seen: WordValue, new: VersionRef) {
        let queue = (new.is_absent() || new.deadline().is_some()) && !seen.has(QUEUED);
        record
            .word()
            .publish(seen, new.address(), if queue { QUEUED } else { 0 });
        if queue {
            self.thread.engine.queue.push(record);
        }
    }
}

/// Returns the key and the edit of a change that is one.
fn edit_of<'a>(tid: Tid, change: &Change<'a>) -> Option<(&'a [u8], StoredEdit<'a>)> {
    let (key, base, part, bytes) = match *change {
        Change::Edit {
            key,
            base,
            offset,
            bytes,
        } => (key, base, EditedPart::Bytes { offset }, bytes),
        Change::Elements {
            key,
            base,
            deadline,
            changes,
        } => (key, base, EditedPart::Elements { deadline }, changes),
        _ => return None,
    };
    let edit = StoredEdit {
        tid,
        base,
        part,
        bytes,
    };
    Some((key, edit))
}

/// Returns a version of a string with edits; `None` if one of them is of a collection.
fn edited_string(version: VersionRef, edits: &[StoredEdit<'_>]) -> Option<VersionRef> {
    let value = edits::apply(version.string()?, edits)?;
    let content = VersionContent {
        parts: &[&value],
        kind: version.kind(),
        deadline: version.deadline(),
    };
    Some(VersionRef::new(version.generation(), Some(content), None))
}

/// Applies the edits that all restorers have kept.
///
/// # Errors
/// Returns the key that lacks the version that an edit changes.
fn apply_edits(restorers: &mut [Restorer]) -> Result<(), RestoreError> {
    let all = Edits::take_all(restorers.iter_mut().map(|restorer| &mut restorer.edits));
    let Some(restorer) = restorers.first_mut() else {
        return Ok(());
    };
    for (record, bytes) in all {
        restorer.edit(record, &edits::read_sorted(&bytes))?;
    }
    Ok(())
}
