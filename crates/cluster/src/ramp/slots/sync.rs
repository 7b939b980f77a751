//! The atomics of the code that loom explores. Its model puts its own in this module's place.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
