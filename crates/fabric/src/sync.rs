//! Where rings take their atomics from. The model of them, `tests/loom_ring.rs`, has others here.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
