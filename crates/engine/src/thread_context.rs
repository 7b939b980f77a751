//! The state that a thread has at an engine besides its transaction: its slot, its source of TIDs and
//! timestamps, and the memory that it has made unreachable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::epochs::EpochClock;
use base::limits::Limits;
use base::{Epoch, Tid, Timestamp};

use crate::engine::Engine;
use crate::epoch::EpochGuard;
use crate::garbage::Garbage;
use crate::lookaside::KeyHash;
use crate::memory_limit::MemoryCheck;
use crate::record::RecordRef;
use crate::transaction_error::TransactionError;
use crate::worker_slot::WorkerSlot;

/// A thread checks the size of the table of hints each time it has made so many records.
const GROW_EVERY: u64 = 64;

/// A thread's registration at an engine; dropping it frees the slot.
pub(crate) struct ThreadContext {
    pub(crate) engine: Arc<Engine>,
    /// The number of its slot among the engine's counters and in the epochs.
    pub(crate) slot: usize,
    last_tid: Tid,
    /// The greatest timestamp that it has drawn, or met in the way of one.
    pub(crate) last_stamp: Timestamp,
    pub(crate) memory: MemoryCheck,
    /// The limits of what the thread's operations write.
    pub(crate) limits: Limits,
    pub(crate) random: fastrand::Rng,
    /// `true` if its transactions note the use of keys, where that is tracked.
    pub(crate) notes_use: bool,
}

impl Engine {
    /// Registers a thread in any free slot of a worker; `None` if there is none.
    pub(crate) fn register(self: &Arc<Self>) -> Option<ThreadContext> {
        let slot = self.free_slots.lock().pop()?;
        Some(self.register_in(slot))
    }

    /// Registers a thread in the slot of the worker with this number, from 0 on; `None` if another
    /// thread has it, or if there is no such worker.
    pub(crate) fn register_at(self: &Arc<Self>, worker: usize) -> Option<ThreadContext> {
        let mut free = self.free_slots.lock();
        let at = free.iter().position(|&slot| slot == worker + 1)?;
        free.remove(at);
        drop(free);
        Some(self.register_in(worker + 1))
    }

    /// Registers a thread in a slot that no other thread uses.
    pub(crate) fn register_in(self: &Arc<Self>, slot: usize) -> ThreadContext {
        self.epochs.occupy(slot);
        ThreadContext {
            engine: Arc::clone(self),
            slot,
            last_tid: Tid::ZERO,
            last_stamp: Timestamp::ZERO,
            memory: MemoryCheck::default(),
            limits: *self.limits(),
            random: fastrand::Rng::with_seed(slot as u64),
            notes_use: true,
        }
    }
}

impl Drop for ThreadContext {
    fn drop(&mut self) {
        if self.slot <= self.engine.workers {
            self.engine.free_slots.lock().push(self.slot);
        }
    }
}

impl ThreadContext {
    /// Returns the number of the worker in this slot, from 0 on.
    pub(crate) fn worker_number(&self) -> usize {
        self.slot - 1
    }

    /// Returns the thread's counters and garbage.
    #[inline]
    pub(crate) fn counters(&self) -> &WorkerSlot {
        &self.engine.slots[self.slot]
    }

    /// Enters the current epoch until the guard is dropped.
    pub(crate) fn pin(&self) -> EpochGuard<'_> {
        EpochGuard::new(&self.engine.epochs, self.slot)
    }

    /// Draws a TID in `epoch` above `newest` and above those that this thread has drawn.
    #[inline]
    pub(crate) fn draw_tid(&mut self, epoch: Epoch, newest: Tid) -> Result<Tid, TransactionError> {
        assert!(
            !self.engine.epochs.is_driven(),
            "a driven engine's changes come from its log"
        );
        let Some(tid) = newest.max(self.last_tid).next_in(epoch) else {
            // The epoch's sequence numbers are used up: the next epoch has new ones.
            self.engine.epochs.advance(epoch);
            return Err(TransactionError::Conflict);
        };
        self.last_tid = tid;
        Ok(tid)
    }

    /// Returns the record of a key, and makes one if there is none.
    #[inline]
    pub(crate) fn record_for(&self, hash: KeyHash, key: &[u8]) -> RecordRef {
        let (record, made) = self.engine.index.get_or_insert(hash, key);
        if made {
            self.count_record(record);
        }
        record
    }

    /// Returns the record of a key, as [`ThreadContext::record_for`].
    pub(crate) fn record_of(&self, key: &[u8]) -> RecordRef {
        self.record_for(self.engine.index.hash(key), key)
    }

    /// Counts a record that this thread brought into the index.
    fn count_record(&self, record: RecordRef) {
        let counters = self.counters();
        WorkerSlot::count(&counters.records, 1);
        WorkerSlot::count(&counters.bytes, record.bytes() as i64);
        if counters
            .records
            .load(Ordering::Relaxed)
            .is_multiple_of(GROW_EVERY)
            && let Some(table) = self.engine.index.grow(self.engine.stats().records as usize)
        {
            self.retire(Garbage::Table(table));
        }
    }

    /// Retires memory that has just become unreachable.
    pub(crate) fn retire(&self, garbage: Garbage) {
        let mut bag = self.counters().bag.lock();
        bag.put(&self.engine.epochs, garbage);
        let freed = bag.take_freed();
        drop(bag);
        if freed > 0 {
            WorkerSlot::count(&self.counters().bytes, -(freed as i64));
        }
    }
}
