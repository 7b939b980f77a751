//! A shared value whose thread safety the compiler checks once.
//!
//! A future may move to another thread if all that it holds may. The compiler proves that anew for each method that
//! is generic or has lifetimes of its own, and a value that has a plan or a statement of DataFusion in it takes
//! thousands of steps each time. This type hides the value, so that the proof ends here.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// See the module's page.
pub(crate) struct OpaqueArc<T> {
    value: Arc<dyn Any + Send + Sync>,
    // A function's pointer may always move to another thread.
    of: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> OpaqueArc<T> {
    pub(crate) fn new(value: T) -> OpaqueArc<T> {
        OpaqueArc {
            value: Arc::new(value),
            of: PhantomData,
        }
    }
}

impl<T: 'static> Deref for OpaqueArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let value = self.value.downcast_ref();
        value.expect("it was made of a value of this type")
    }
}

impl<T> Clone for OpaqueArc<T> {
    fn clone(&self) -> OpaqueArc<T> {
        OpaqueArc {
            value: Arc::clone(&self.value),
            of: PhantomData,
        }
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for OpaqueArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
