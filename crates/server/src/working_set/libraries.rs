//! The libraries of functions, as a transaction in several steps sees them.

use std::sync::Arc;

use base::Op;

use crate::function_libraries::{FunctionLibraries, StoredLibraries};

/// See the module's description.
#[derive(Default)]
pub(crate) struct WorkingLibraries {
    /// Those that it uses; `None`: it has used none yet.
    used: Option<StoredLibraries>,
    /// The bytes to store, if it has changed them.
    changed: Option<Vec<u8>>,
}

impl WorkingLibraries {
    /// Forgets everything, for another run.
    pub(super) fn begin(&mut self) {
        *self = WorkingLibraries::default();
    }

    /// Returns the libraries, if the transaction has used them before.
    pub(crate) fn used(&self) -> Option<&Arc<FunctionLibraries>> {
        self.used.as_ref().map(|used| &used.libraries)
    }

    /// Has the transaction use these libraries, which a partition has.
    pub(crate) fn begin_use(&mut self, stored: StoredLibraries) {
        self.used = Some(stored);
    }

    /// Changes the libraries, which the transaction uses.
    pub(crate) fn change(&mut self, libraries: Arc<FunctionLibraries>) {
        if let Some(used) = &mut self.used {
            self.changed = Some(libraries.encode());
            used.libraries = libraries;
        }
    }

    /// Returns the generation of the libraries that partitions have, if the transaction uses them.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.used.as_ref().map(|used| used.generation)
    }

    /// Returns `true` if the transaction has changed them.
    pub(crate) fn are_changed(&self) -> bool {
        self.changed.is_some()
    }

    /// Returns the operation that checks that partitions have no later ones.
    pub(crate) fn check(&self) -> Option<Op<'static>> {
        self.generation()
            .map(|generation| Op::CheckLibraries { generation })
    }

    /// Returns the operation that commits them.
    pub(crate) fn commit(&self) -> Option<Op<'_>> {
        match (&self.used, &self.changed) {
            (Some(used), Some(libraries)) => Some(Op::SetLibraries {
                generation: used.generation + 1,
                libraries,
            }),
            _ => self.check(),
        }
    }
}
