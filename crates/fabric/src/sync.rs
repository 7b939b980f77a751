//! The atomics of rings. Their model, in crate `models`, replaces them.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
