//! The size of a Lua heap, and its limit while a script runs.
//!
//! Lua reports exhausted memory by a jump over all C frames, which must not cross frames of Rust that
//! own values. Rust code that calls Lua's API therefore holds an [`Exemption`]: allocations succeed
//! beyond the limit meanwhile, and the excess is reported when control returns to Lua.

use std::cell::Cell;

/// The size and the limit of a Lua heap.
#[derive(Debug)]
pub(crate) struct Heap {
    used: Cell<usize>,
    limit: usize,
    exempt: Cell<bool>,
}

/// Decides for its lifetime how allocations beyond the limit end.
pub(crate) struct Exemption<'a> {
    heap: &'a Heap,
    before: bool,
}

impl Drop for Exemption<'_> {
    fn drop(&mut self) {
        self.heap.exempt.set(self.before);
    }
}

impl Heap {
    /// Creates the count of a heap of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Heap {
        Heap {
            used: Cell::new(0),
            limit,
            exempt: Cell::new(true),
        }
    }

    /// Returns the number of allocated bytes.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Returns the largest size in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns `true` if the heap is larger than its limit.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used.get() > self.limit
    }

    /// Lets allocations beyond the limit succeed (`exempt`) or fail until the result is dropped.
    pub(crate) fn exemption(&self, exempt: bool) -> Exemption<'_> {
        Exemption {
            heap: self,
            before: self.exempt.replace(exempt),
        }
    }

    /// Counts a block that changes from `old` to `new` bytes. Returns `false` if it must not grow.
    pub(crate) fn count(&self, old: usize, new: usize) -> bool {
        let used = self.used.get() - old + new;
        if new > old && used > self.limit && !self.exempt.get() {
            return false;
        }
        self.used.set(used);
        true
    }
}
