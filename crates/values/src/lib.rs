//! Values that are collections, and how they lie in memory.
//!
//! | module | has |
//! |---|---|
//! | [`tree`] | large collections: a persistent, counted B+-tree of packed nodes |
//!
//! The decision that binds this crate: `docs/decisions/0089-collections-copy-the-path-of-a-change.md`.

#![deny(unsafe_code)]

pub mod tree;
