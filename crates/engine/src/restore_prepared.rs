//! Restores the holds and the effects of prepared attempts, from their system records.

use std::sync::Arc;

use base::limits::RESERVED;
use base::transaction::Holder;
use base::{Origin, Timestamp, TransactionId};

use crate::effects::write_of_effect;
use crate::engine::Engine;
use crate::prepared::PreparedTransaction;
use crate::record::RecordRef;
use crate::restore_error::RestoreError;
use crate::retry::pause;
use crate::system_record::{self, PreparedState, SystemRecord};
use crate::thread_context::ThreadContext;
use crate::word::{DEAD, LockRefusal, WordValue};

impl Engine {
    /// Prepares again the attempts that were prepared before a restart, with all holds. Call it
    /// once, after [`Engine::finish_restore`] and before any transaction runs. Returns their
    /// number.
    ///
    /// In a driven engine it is called each time before the replica begins to lead, with nothing
    /// left of the holds before ([`Engine::drop_holds`]); it may be called again.
    ///
    /// # Errors
    /// Returns [`RestoreError::SystemRecord`] if a system record cannot be understood, and
    /// [`RestoreError::NoWorker`] if all workers are in use.
    pub fn restore_prepared(self: &Arc<Self>) -> Result<usize, RestoreError> {
        let _applying = self.applying.lock();
        let thread = if self.epochs.is_driven() {
            // Versions that have left memory may be of any time until now.
            let now = Timestamp::at_ms(self.epochs.logged_ms());
            self.read_atomic.note_left(TransactionId {
                timestamp: now,
                unique: 0,
            });
            self.register_in(self.holds_restorer_slot())
        } else {
            self.register().ok_or(RestoreError::NoWorker)?
        };
        let _guard = thread.pin();
        let mut found = Vec::new();
        self.index.range(
            &RESERVED,
            Some(&system_record::BEHIND_TRANSACTIONS),
            |record| {
                let version = RecordRef::version(record.word().load());
                if !version.is_absent() {
                    found.push((record, version));
                }
                true
            },
        );
        let mut prepared = 0;
        for (record, version) in found {
            let restored = system_record::id(record.key()).and_then(|id| {
                let entry = system_record::decode(version.value())?;
                match entry {
                    SystemRecord::Prepared { kept, .. } => {
                        restore_one(&thread, id, &kept)?;
                        prepared += 1;
                    }
                    SystemRecord::Pending { .. } => prepared += 1,
                    SystemRecord::Committed { .. } | SystemRecord::Refused => {}
                }
                Ok(())
            });
            restored.map_err(|error| RestoreError::SystemRecord {
                key: record.key().to_vec(),
                reason: error.0,
            })?;
        }
        Ok(prepared)
    }
}

/// Takes the holds of one attempt, and keeps its effects.
fn restore_one(
    thread: &ThreadContext,
    id: TransactionId,
    kept: &PreparedState<'_>,
) -> Result<(), system_record::MalformedSystemRecord> {
    let engine = &thread.engine;
    if engine.prepared.lock().contains_key(&id) {
        return Ok(());
    }
    let holder = Holder { id, age: kept.age };
    let origin = engine.origins.share(Origin {
        id,
        siblings: kept.siblings,
    });
    let mut prepared = PreparedTransaction::new(Vec::new(), Vec::new(), !kept.ranges.is_empty());
    let mut flushes = false;
    for effect in &kept.effects {
        let mut write = write_of_effect(thread, effect, &origin);
        let (record, locked) = lock_restored(thread, write.record)?;
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
        let record = share_restored(thread, thread.record_of(key), holder)?;
        prepared.held.push(record);
    }
    if !flushes {
        let record = share_restored(thread, engine.generation, holder)?;
        prepared.held.push(record);
    }
    for (from, to) in &kept.ranges {
        engine.holds.hold_range(holder, from, to);
    }
    engine.prepared.lock().insert(id, prepared);
    Ok(())
}

/// Locks a record, or the live one of its key. Other threads have it only for a moment.
fn lock_restored(
    thread: &ThreadContext,
    record: RecordRef,
) -> Result<(RecordRef, WordValue), system_record::MalformedSystemRecord> {
    let (mut record, mut wait) = (record, WaitLimit::default());
    loop {
        match record.word().lock() {
            Ok(seen) => return Ok((record, seen)),
            Err(LockRefusal::Dead) => record = thread.record_of(record.key()),
            Err(_) if wait.is_left() => {}
            Err(_) => {
                return Err(system_record::MalformedSystemRecord(
                    "another one holds a key that it writes",
                ));
            }
        }
    }
}

fn share_restored(
    thread: &ThreadContext,
    record: RecordRef,
    holder: Holder,
) -> Result<RecordRef, system_record::MalformedSystemRecord> {
    let (mut record, mut wait) = (record, WaitLimit::default());
    loop {
        let seen = record.word().load();
        match thread.engine.holds.share(record, seen, (holder, false)) {
            Ok(()) => return Ok(record),
            Err(LockRefusal::Dead) if seen.has(DEAD) => record = thread.record_of(record.key()),
            Err(_) if wait.is_left() => {}
            Err(_) => {
                return Err(system_record::MalformedSystemRecord(
                    "another one holds a key that it has read",
                ));
            }
        }
    }
}

/// The time that a restoration waits for threads that have a record for a moment: a janitor, or a
/// transaction that is about to learn that it came too late.
#[derive(Default)]
struct WaitLimit(u32);

impl WaitLimit {
    const ROUNDS: u32 = 2_000;

    fn is_left(&mut self) -> bool {
        self.0 += 1;
        pause(self.0);
        self.0 < Self::ROUNDS
    }
}
