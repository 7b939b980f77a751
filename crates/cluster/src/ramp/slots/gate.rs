//! Counts the writers of keys, so that no old version is published over a newer one. Many keys share a
//! gate; a writer of one of them looks to the others like a writer of theirs.
//!
//! | word | bits | content |
//! |---|---|---|
//! | `load` | upper 32 | writers under way |
//! | | lower 32 | keys of this gate that have a slot |
//! | `generation` | 64 | how often a writer has begun |
//!
//! A publisher takes a pass, which the gate refuses while there are writers, reads the newest committed
//! version, and is admitted if no writer has begun since. Admission and the writing of the slot happen
//! under the lock of the key's part, and so does clearing a slot for a writer.
//!
//! Invariants:
//! 1. A writer counts itself before it bumps the generation, and both before its effect is seen. A pass
//!    loads the generation first: if that has the bump, then the count that it loads next has the
//!    writer, or the writer's end and with it the effect.
//! 2. A key that has a slot: a writer whose bump the publisher does not find has yet to take the lock,
//!    and clears what was published.
//! 3. A key that is to get one: the publisher counts the slot in the word in which writers count
//!    themselves, so that one of the two comes first. Either the publisher finds the writer, or the bump
//!    of a writer that has ended; or the writer finds the slot counted, and takes the lock to clear it.

use super::sync::{AtomicU64, Ordering};

const WRITER: u64 = 1 << 32;
const SLOTS: u64 = WRITER - 1;

/// The writers and slots of a group of keys; see the module.
#[derive(Default)]
pub(super) struct Gate {
    load: AtomicU64,
    generation: AtomicU64,
}

/// A generation without a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass(u64);

impl Gate {
    /// Begins a write. Returns `true` if a key of this gate may have a slot, which must then be cleared
    /// under the lock.
    pub(super) fn enter(&self) -> bool {
        let before = self.load.fetch_add(WRITER, Ordering::AcqRel);
        self.generation.fetch_add(1, Ordering::AcqRel);
        before & SLOTS != 0
    }

    /// Ends a write, whose effect can be seen.
    pub(super) fn leave(&self) {
        let before = self.load.fetch_sub(WRITER, Ordering::AcqRel);
        assert!(before >= WRITER, "more writers ended than began");
    }

    /// Returns a pass, which a publisher takes before it reads the newest version. Returns `None` while
    /// there are writers.
    pub(super) fn pass(&self) -> Option<Pass> {
        let generation = self.generation.load(Ordering::Acquire);
        (self.load.load(Ordering::Acquire) < WRITER).then_some(Pass(generation))
    }

    /// Returns `true` if a key of this gate may have a slot.
    pub(super) fn has_slots(&self) -> bool {
        self.load.load(Ordering::Acquire) & SLOTS != 0
    }

    /// Returns `true` if a version that was read after this pass is still the newest, or a writer that
    /// replaces it will clear the slot. To be called under the lock, for a key that has a slot.
    pub(super) fn admits(&self, pass: Pass) -> bool {
        self.generation.load(Ordering::Acquire) == pass.0
    }

    /// As [`Gate::admits`], for a key that is to get its slot; counts the slot.
    pub(super) fn admits_new(&self, pass: Pass) -> bool {
        let count = |load: u64| (load < WRITER && load != SLOTS).then_some(load + 1);
        let counted = self
            .load
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, count)
            .is_ok();
        let admitted = counted && self.admits(pass);
        if counted && !admitted {
            self.withdraw();
        }
        admitted
    }

    /// Counts a slot less. To be called under the lock, when the slot was cleared.
    pub(super) fn withdraw(&self) {
        let before = self.load.fetch_sub(1, Ordering::AcqRel);
        assert!(before & SLOTS != 0, "more slots were given up than given");
    }

    /// Returns how many keys of this gate have a slot.
    #[cfg(all(test, not(loom)))]
    pub(super) fn slots(&self) -> u64 {
        self.load.load(Ordering::Acquire) & SLOTS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_publisher_passes_a_writer() {
        let gate = Gate::default();
        let before = gate.pass().expect("no writer is active");
        assert!(!gate.enter(), "nothing has a slot");
        assert!(gate.pass().is_none() && !gate.admits_new(before) && !gate.admits(before));
        gate.leave();
        assert!(!gate.admits_new(before) && !gate.admits(before));
        assert!(!gate.has_slots(), "who was refused left nothing behind");
        let after = gate.pass().expect("the writer has ended");
        assert!(gate.admits_new(after) && gate.admits(after) && gate.has_slots());
        assert!(gate.enter(), "a slot has to be cleared");
        gate.leave();
        gate.withdraw();
        assert!(!gate.has_slots());
    }

    #[test]
    fn several_writers_are_counted() {
        let gate = Gate::default();
        assert!(!gate.enter() && !gate.enter());
        gate.leave();
        assert!(gate.pass().is_none());
        gate.leave();
        assert!(gate.pass().is_some());
    }
}
