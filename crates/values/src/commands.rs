//! The commands of each type.

pub mod hashes;
pub mod lists;
