//! The listener for changes of keys, and the events that a transaction has noted for it.
//!
//! Invariants:
//! 1. Nothing is noted or announced while nothing listens: that costs a transaction one load.
//! 2. A commit that began after [`KeyListening::begin`] has returned announces its changes after it has made
//!    them current, with a full fence between the two: one who is registered with the listener before
//!    reading a key either reads the change, or is found by its announcement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::key_event::{KeyEvent, KeyListener};
use parking_lot::RwLock;

/// An engine's listener.
#[derive(Default)]
pub(crate) struct KeyListening {
    listener: RwLock<Option<Arc<dyn KeyListener>>>,
    listens: AtomicBool,
}

/// An event that a transaction has noted.
pub(crate) struct NotedEvent {
    pub(crate) key: Box<[u8]>,
    pub(crate) event: KeyEvent,
}

impl KeyListening {
    /// Sets the listener, in place of another.
    pub(crate) fn set(&self, listener: Arc<dyn KeyListener>) {
        *self.listener.write() = Some(listener);
    }

    /// Begins to call the listener, or ends it. Returns `true` if it was called until now.
    pub(crate) fn switch(&self, listens: bool) -> bool {
        self.listens.swap(listens, Ordering::SeqCst)
    }

    /// Returns `true` if the listener is to be called.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    /// Returns the listener if it is to be called.
    #[inline]
    pub(crate) fn listener(&self) -> Option<Arc<dyn KeyListener>> {
        match self.is_on() {
            true => self.listener.read().clone(),
            false => None,
        }
    }
}
