//! Cancellation of long operations.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a long operation that its result is not wanted any more. The operation checks it every few hundred
/// microseconds, and gives up when it is cancelled. A cancellation is final.
#[derive(Clone, Default)]
pub struct Cancellation(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancellation {
    /// Makes a cancellation that happens when `is_cancelled` returns `true`. It is called often, on any
    /// thread.
    #[must_use]
    pub fn new(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Cancellation {
        Cancellation(Some(Arc::new(is_cancelled)))
    }

    /// Makes a cancellation that happens when `flag` is set.
    #[must_use]
    pub fn by(flag: Arc<AtomicBool>) -> Cancellation {
        Cancellation::new(move || flag.load(Ordering::Acquire))
    }

    /// Returns `true` if the result is not wanted any more. By [default](Cancellation::default) it always is.
    #[inline]
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cancelled = self.is_cancelled();
        f.debug_tuple("Cancellation").field(&is_cancelled).finish()
    }
}
