//! The listener for changes of keys, and the events that a transaction has noted for it.
//!
//! Invariants:
//! 1. Nothing is noted or announced while nothing listens: that costs a transaction one load.
//! 2. A commit announces its changes after it has made them current, with a full fence between the two: one
//!    who is registered with the listener before reading a key either reads the change, or is found by its
//!    announcement. This does not hold for commits that were on their way when listening began; these
//!    have ended once the grace period of that moment has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::key_event::{KeyEvent, KeyListener};
use parking_lot::RwLock;

use crate::epoch::Epochs;

/// An engine's listener.
#[derive(Default)]
pub(crate) struct KeyListening {
    listener: RwLock<Option<Arc<dyn KeyListener>>>,
    listens: AtomicBool,
    /// The grace period in which listening began; 0: all commits announce their changes.
    since: AtomicU64,
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

    /// Begins to call the listener, or ends it.
    pub(crate) fn switch(&self, listens: bool, epochs: &Epochs) {
        if !self.listens.swap(listens, Ordering::SeqCst) && listens {
            self.since.store(epochs.grace_period(), Ordering::SeqCst);
        }
    }

    /// Returns `true` if all commits announce their changes. Otherwise it has some ended that were on
    /// their way when listening began.
    pub(crate) fn is_complete(&self, epochs: &Epochs) -> bool {
        let since = self.since.load(Ordering::SeqCst);
        if since == 0 {
            return self.is_on();
        }
        if epochs.ended_grace_period() > since {
            // Another beginning has another number.
            let _other = self
                .since
                .compare_exchange(since, 0, Ordering::SeqCst, Ordering::SeqCst);
            return self.is_on();
        }
        epochs.end_grace_period();
        false
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
