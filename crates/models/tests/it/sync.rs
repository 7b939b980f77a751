//! The atomics and locks of all sources: loom's, with the signatures of those that they replace.

use std::ops::{Deref, DerefMut};

pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of times that the model tries a lock of a record.
pub(crate) const SPINS: u32 = 1;

/// Says to the model that this thread waits for another one.
pub(crate) fn spin_hint() {
    loom::thread::yield_now();
}

pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        Guard(Some(self.0.lock().expect("no panic under a lock")))
    }
}

/// Empty only while it waits.
pub(crate) struct Guard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("locked")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("locked")
    }
}

pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar(loom::sync::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut Guard<'_, T>) {
        let inner = guard.0.take().expect("locked");
        guard.0 = Some(self.0.wait(inner).expect("no panic under a lock"));
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
