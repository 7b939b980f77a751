//! Whether anybody still wants what takes long.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The question whether anybody still wants something. Whoever works for long asks it every few
/// hundred microseconds, and gives up when nobody does. An answer of no is not taken back.
#[derive(Clone, Default)]
pub struct Wanted(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Wanted {
    /// It is wanted for as long as this is true, which is asked often, on any thread.
    #[must_use]
    pub fn new(ask: impl Fn() -> bool + Send + Sync + 'static) -> Wanted {
        Wanted(Some(Arc::new(ask)))
    }

    /// It is wanted until this is true.
    #[must_use]
    pub fn until(ended: Arc<AtomicBool>) -> Wanted {
        Wanted::new(move || !ended.load(Ordering::Acquire))
    }

    /// Returns `true` if it is wanted now. By [default](Wanted::default) it always is.
    #[inline]
    #[must_use]
    pub fn is(&self) -> bool {
        self.0.as_ref().is_none_or(|ask| ask())
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wanted").field(&self.is()).finish()
    }
}
