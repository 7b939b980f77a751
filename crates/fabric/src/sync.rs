//! The atomics of rings. The loom model, `tests/loom_ring.rs`, replaces them.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
