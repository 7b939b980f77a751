//! The place of backups: objects, each of which is written once and as a whole.

use std::fmt;

/// A place for objects. Names are relative paths: parts of letters, digits, `-`, `_`, `.` and `~`, with `/` between
/// them.
pub trait ObjectStore: Send + Sync {
    /// Returns the object's place as people find it.
    fn place(&self, name: &str) -> String;

    /// Returns the objects whose names begin with `prefix`, in the order of their names.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached or read.
    fn list(&self, prefix: &str) -> Result<Vec<StoredObject>, StoreError>;

    /// Returns the bytes of an object; `None` if there is none of this name.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached or read.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes an object. When this returns it is durable; if it fails, or is interrupted, there is no part of it.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached or written.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError>;

    /// As [`ObjectStore::put`], unless there is an object of this name. Returns `false` if there is.
    ///
    /// # Errors
    /// As [`ObjectStore::put`].
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError>;

    /// Returns the bytes for which there is room, if that is known.
    fn free_bytes(&self) -> Option<u64>;
}

/// An object in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// The reason why an operation on a store failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {place}: {why}")]
pub struct StoreError {
    /// The operation that was tried.
    pub action: &'static str,
    /// The object's or the store's place.
    pub place: String,
    /// The reason.
    pub why: String,
}

impl StoreError {
    pub(crate) fn new(
        action: &'static str,
        place: impl fmt::Display,
        why: impl fmt::Display,
    ) -> StoreError {
        StoreError {
            action,
            place: place.to_string(),
            why: why.to_string(),
        }
    }
}
