//! The names of all keys.

/// The beginning of the keys of all collections.
pub const PREFIX: &str = "collection:";
