//! Values that several points of an experiment share, one of each type.
//!
//! A target defines the type that it shares: a table that takes minutes to load, service times that
//! were measured before. What lies here is made on first use and dropped with the run.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// See the [module](self).
#[derive(Default)]
pub struct SharedState(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl SharedState {
    /// Returns the value of a type, which is the default one on the first call.
    ///
    /// # Panics
    /// Panics if a value is not of the type under which it was kept, which cannot happen.
    #[must_use]
    pub fn get<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut values = self.0.lock();
        let value = values
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::new(T::default()));
        let value = Arc::clone(value).downcast::<T>();
        value.expect("it is kept under its type")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn each_type_has_one_value() {
        let state = SharedState::default();
        state.get::<AtomicU32>().store(3, Ordering::Relaxed);
        assert_eq!(state.get::<AtomicU32>().load(Ordering::Relaxed), 3);
        assert_eq!(*state.get::<u64>(), 0);
    }
}
