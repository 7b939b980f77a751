//! The commands of each type.

pub mod hash_deadlines;
pub mod hashes;
pub mod sets;
