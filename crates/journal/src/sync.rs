//! The locks of [`handover`](crate::handover). Its model, in crate `models`, replaces them.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use parking_lot::{Condvar, Mutex};
