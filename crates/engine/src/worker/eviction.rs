//! Eviction: a worker deletes keys when memory is full, each in an ordinary transaction.
//!
//! What counts is the memory that the keys need (`Engine::live_bytes`): it is less as soon as a key is deleted, also
//! if its memory is freed later, because the deletion is not durable yet or because a snapshot needs it. So no more
//! keys are evicted than necessary. What is used beyond the limit in the meantime has a ceiling
//! (module `memory_limit`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::Abort;

use crate::engine::Engine;
use crate::epoch::EpochGuard;
use crate::log::RedoLog;
use crate::worker::Worker;

/// The keys that may turn out to be held or changed, one after another, before an eviction gives up.
const SKIPPED: u32 = 64;
/// The clock is read after this many keys.
const CLOCK_EVERY: u32 = 8;

/// The state after an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The memory suffices.
    Enough,
    /// More must be evicted, and the time is over.
    TimeIsOver,
    /// More must be evicted, and no key was found that can be.
    NothingLeft,
}

/// An eviction in progress.
#[derive(Debug)]
pub struct EvictionRun {
    bytes: u64,
    until: Instant,
    steps: u32,
    skipped: u32,
}

impl EvictionRun {
    /// Begins to evict until `bytes` more can be used, for as long as `most`.
    #[must_use]
    pub fn new(bytes: u64, most: Duration) -> EvictionRun {
        EvictionRun {
            bytes,
            until: Instant::now() + most,
            steps: 0,
            skipped: 0,
        }
    }

    /// Returns the state if the eviction is over.
    pub fn outcome(&mut self, engine: &Engine) -> Option<Evicted> {
        if !engine.must_evict(self.bytes) {
            engine.eviction.note_exhausted(false);
            return Some(Evicted::Enough);
        }
        if self.skipped >= SKIPPED {
            engine.eviction.note_exhausted(true);
            return Some(Evicted::NothingLeft);
        }
        self.steps += 1;
        let is_over = self.steps.is_multiple_of(CLOCK_EVERY) && Instant::now() >= self.until;
        is_over.then_some(Evicted::TimeIsOver)
    }

    /// Notes what became of a key that was chosen: `true` if it was evicted.
    pub fn note(&mut self, evicted: bool) {
        self.skipped = if evicted { 0 } else { self.skipped + 1 };
    }

    /// Notes that no key was found.
    pub fn note_none(&mut self) {
        self.skipped = SKIPPED;
    }
}

impl Engine {
    /// Returns `true` if keys must be evicted before `bytes` more are used.
    #[must_use]
    pub fn must_evict(&self, bytes: u64) -> bool {
        let limit = self.memory_limit.load(Ordering::Relaxed);
        if limit == 0 || self.eviction.policy().order().is_none() {
            return false;
        }
        let submitted = self.eviction.submitted_bytes.load(Ordering::Relaxed);
        let used = self.live_bytes().saturating_sub(submitted);
        self.eviction
            .note_exceeded(used > limit, self.epochs.time_ms());
        used.saturating_add(bytes) > limit
    }

    /// Notes that the deletion of a key, which will free so many bytes, was submitted to the log of a replicated
    /// partition.
    pub fn note_submitted(&self, bytes: u64) {
        self.eviction.note_evicted();
        self.eviction
            .submitted_bytes
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that a deletion which was submitted is applied, or never will be.
    pub fn note_settled(&self, bytes: u64) {
        self.eviction
            .submitted_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl<L: RedoLog> Worker<L> {
    /// Has the use of keys noted by the next transactions, which is the default, or not.
    #[inline]
    pub fn note_use(&mut self, notes: bool) {
        self.thread.notes_use = notes;
    }

    /// Returns the key to evict next, as it is stored, for [`crate::Txn::evict`]; `None` if none was found.
    pub fn choose_victim(&mut self) -> Option<Vec<u8>> {
        self.refresh();
        let engine = Arc::clone(&self.thread.engine);
        let _guard = EpochGuard::new(&engine.epochs, self.thread.slot);
        self.eviction.choose(&engine, &mut self.thread.random)
    }

    /// Takes back the buffer of a key that [`Worker::choose_victim`] has returned.
    pub fn recycle_victim(&mut self, key: Vec<u8>) {
        self.eviction.recycle(key);
    }

    /// Evicts keys until `bytes` more can be used, for as long as `most`.
    ///
    /// # Errors
    /// Returns an [`Abort`] if nothing can be deleted: the log takes no changes.
    pub fn evict(&mut self, bytes: u64, most: Duration) -> Result<Evicted, Abort> {
        let mut run = EvictionRun::new(bytes, most);
        loop {
            if let Some(outcome) = run.outcome(&self.thread.engine) {
                return Ok(outcome);
            }
            let Some(key) = self.choose_victim() else {
                run.note_none();
                continue;
            };
            let evicted = self.transact(|txn| txn.evict(&key));
            self.recycle_victim(key);
            match evicted {
                Ok((freed, _)) => {
                    if freed.is_some() {
                        self.thread.engine.eviction.note_evicted();
                    }
                    run.note(freed.is_some());
                }
                Err(Abort::Held { .. } | Abort::Conflict { .. }) => run.note(false),
                Err(reason) => return Err(reason),
            }
        }
    }
}
