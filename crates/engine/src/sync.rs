//! The atomics of the record word. Its model, in crate `models`, replaces them.

pub(crate) use std::hint::spin_loop as spin_hint;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
