//! Settings that clients may change while the server runs (`CONFIG SET`), unless a part of the server's state
//! has them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::limits::Limits;

/// See the module's description.
pub(crate) struct ChangeableSettings {
    /// How long a client may send nothing, in milliseconds; 0: for ever.
    idle_ms: AtomicU64,
    /// The most connections at once.
    clients: AtomicUsize,
    /// The parameters that were changed since the server started.
    changed: Mutex<BTreeSet<&'static str>>,
}

impl ChangeableSettings {
    pub(crate) fn new(limits: &Limits) -> ChangeableSettings {
        let idle = limits.idle.unwrap_or_default();
        ChangeableSettings {
            idle_ms: AtomicU64::new(idle.as_millis() as u64),
            clients: AtomicUsize::new(limits.clients),
            changed: Mutex::default(),
        }
    }

    /// Returns how long a client may send nothing; `None`: for ever.
    pub(crate) fn idle(&self) -> Option<Duration> {
        let ms = self.idle_ms.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// Sets how long a client may send nothing, in seconds; 0: for ever.
    pub(crate) fn set_idle_secs(&self, secs: u64) {
        self.idle_ms.store(secs * 1000, Ordering::Relaxed);
    }

    /// Returns the most connections at once.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Sets the most connections at once. Connections beyond them are not closed.
    pub(crate) fn set_clients(&self, clients: usize) {
        self.clients.store(clients, Ordering::Relaxed);
    }

    /// Records that a parameter was changed.
    pub(crate) fn note_change(&self, parameter: &'static str) {
        self.changed.lock().insert(parameter);
    }

    /// Returns `true` if a parameter was changed since the server started.
    pub(crate) fn is_changed(&self, parameter: &str) -> bool {
        self.changed.lock().contains(parameter)
    }
}
