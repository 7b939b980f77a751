//! The question whether the result of a long operation is still wanted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The question whether a result is still wanted. A long operation asks it every few hundred
/// microseconds, and gives up when the answer is no. An answer of no is final.
#[derive(Clone, Default)]
pub struct Wanted(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Wanted {
    /// Makes a question that `ask` answers. It is asked often, on any thread.
    #[must_use]
    pub fn new(ask: impl Fn() -> bool + Send + Sync + 'static) -> Wanted {
        Wanted(Some(Arc::new(ask)))
    }

    /// Makes a question whose answer is yes until `ended` is true.
    #[must_use]
    pub fn until(ended: Arc<AtomicBool>) -> Wanted {
        Wanted::new(move || !ended.load(Ordering::Acquire))
    }

    /// Returns `true` if the result is wanted at present. By [default](Wanted::default) it always
    /// is.
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
