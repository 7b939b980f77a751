//! Hashes, lists, sets, sorted sets and streams as values, and the commands on them.
//!
//! | module | contents |
//! |---|---|
//! | `packed` | a collection as one block of bytes: reading it, changing a copy |
//! | `hash`, `sorted_set`, `stream` | the types in terms of `packed`: their elements and the order of these |
//! | `geohash` | places as cells of a grid |
//! | `scan` | scans of the elements of one collection |
//! | [`commands`] | the commands of each type |
//! | [`encoding()`] | the names of the encodings that Redis has |
//! | [`call`] | the table of the commands, and their execution on a value |
//!
//! A command is a function of its arguments, a value, the time and a seed. It returns a reply, the change of the
//! value, and the events of the key. The crate knows no keys, transactions, connections or RESP:
//! the engine executes commands within transactions, and the server turns replies into RESP.

#![deny(unsafe_code)]

pub mod call;
mod collection;
pub mod commands;
mod element_hash;
mod encoding;
mod geohash;
mod hash;
mod packed;
mod scan;
mod sorted_set;
mod stream;
pub mod tree;

pub use call::{CallContext, Outcome, StoredBlock, StoredData, StoredValue, ValueChange, execute};
pub use collection::{
    CollectionEditor, CollectionRoots, CollectionView, PublishedCollection, ReplacedTrees,
    canonical, is_large,
};
pub use commands::{hashes, places, sorted_sets, streams};
pub use encoding::encoding;
