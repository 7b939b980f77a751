//! Memory that was taken out of shared structures and waits until no worker can see it.
//!
//! Every worker has a bag. Memory that is put into it carries the epoch current at that time, read
//! after the memory became unreachable; it is freed once that epoch has finished ([`Epochs`]
//! invariant 4). The janitor empties the bags of workers that fell idle.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use base::Epoch;
use base::epochs::EpochClock;

use crate::epoch::Epochs;
use crate::lookaside::HintTable;
use crate::record::{RecordRef, VersionRef};

/// Memory to free.
pub(crate) enum Garbage {
    /// A replaced version; the versions to which it links are freed separately.
    Version(VersionRef),
    /// The engine's reference to a record that left the index.
    Record(RecordRef),
    /// A look-aside table that was outgrown; dropping it frees it.
    Table(#[allow(dead_code)] Arc<HintTable>),
}

/// A bag of garbage, oldest first.
#[derive(Default)]
pub(crate) struct Bag {
    items: VecDeque<(Epoch, Garbage)>,
    /// Epochs up to this one are known to have finished.
    finished: Epoch,
    /// Bytes freed since the last call of `take_freed`.
    freed: usize,
    /// Bytes of versions that wait to be freed.
    waiting: usize,
}

/// A bag with this many entries tries to empty itself.
const LOOK_AFTER: usize = 64;
/// Bytes that are worth an epoch of their own.
const HEAVY: usize = 16 << 20;

impl Bag {
    /// Adds memory that has just become unreachable, and frees a little that is old enough.
    pub(crate) fn put(&mut self, epochs: &Epochs, garbage: Garbage) {
        let now = epochs.current();
        if let Garbage::Version(version) = &garbage {
            self.waiting += version.bytes();
        }
        self.items.push_back((now, garbage));
        if self.items.len() > LOOK_AFTER || self.waiting > HEAVY {
            if self
                .items
                .front()
                .is_some_and(|(epoch, _)| *epoch > self.finished)
            {
                if self.waiting > HEAVY {
                    epochs.advance(now);
                }
                self.finished = epochs.finished();
            }
            self.free(4);
        }
    }

    /// Frees everything that is old enough. Returns `true` if something is left.
    pub(crate) fn sweep(&mut self, epochs: &Epochs) -> bool {
        self.finished = epochs.finished();
        self.free(usize::MAX);
        !self.items.is_empty()
    }

    /// Returns the bytes freed since the last call.
    pub(crate) fn take_freed(&mut self) -> usize {
        std::mem::take(&mut self.freed)
    }

    fn free(&mut self, most: usize) {
        for _ in 0..most {
            match self.items.front() {
                Some((epoch, _)) if *epoch <= self.finished => {}
                _ => return,
            }
            if let Some((_, garbage)) = self.items.pop_front() {
                self.drop_one(garbage);
            }
        }
    }

    fn drop_one(&mut self, garbage: Garbage) {
        match garbage {
            Garbage::Version(version) => {
                self.freed += version.bytes();
                self.waiting -= version.bytes();
                // SAFETY: its epoch has finished, so that no worker can have it any more.
                unsafe { version.free() }
            }
            Garbage::Record(record) => {
                self.freed += record.bytes() + RecordRef::version(record.word().load()).bytes();
                // SAFETY: as above; the reference is the engine's own, given up with the record.
                unsafe { record.release() }
            }
            Garbage::Table(_) => {}
        }
    }
}

impl Drop for Bag {
    /// Frees everything: an engine is dropped after all its workers, when no thread can see the
    /// memory any more.
    fn drop(&mut self) {
        while let Some((_, garbage)) = self.items.pop_front() {
            self.drop_one(garbage);
        }
    }
}
