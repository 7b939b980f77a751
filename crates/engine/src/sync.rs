//! The atomics of the record word. Its model, in crate `models`, replaces them.

pub(crate) use std::hint::spin_loop as spin_hint;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// The number of times that a lock is tried before the transaction gives way.
pub(crate) const SPINS: u32 = 256;
