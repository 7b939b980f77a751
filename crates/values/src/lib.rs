//! Hashes, lists, sets, sorted sets and streams as values, and the commands on them.
//!
//! | module | contents |
//! |---|---|
//! | `packed` | a collection as one block of bytes: reading it, changing a copy |
//! | `hash_field` | a field of a hash, its value and its deadline |
//! | `hash`, `list`, `set`, `sorted_set`, `stream` | the types in terms of `packed`: their elements and the order of these |
//! | `list_trees` | the trees of a large list |
//! | `stream_editor` | changes of streams by commands |
//! | `leb128` | numbers of variable length |
//! | `geohash` | places as cells of a grid |
//! | [`set_algebra`] | intersections, unions and differences of sets |
//! | `scan`, `random` | pages of elements, elements drawn at random |
//! | `hyper_log_log` | HyperLogLogs, which are strings |
//! | [`commands`] | the commands of each type |
//! | [`encoding()`] | the names of the encodings that Redis has |
//! | `listpack` | Redis's blocks of small collections: writing them |
//! | [`dump`] | values in the format of Redis's files |
//! | [`sort`] | the order of elements by `SORT` |
//! | `score` | the scores of sorted sets as bytes and as text |
//! | [`fuzz`] | an entry point for fuzzing |
//! | [`call`] | what commands get and return |
//! | `execution` | the table of the commands, and their execution on a value |
//!
//! A command is a function of its arguments, a value, the time and a seed. It returns a reply, the change of the
//! value, and the events of the key. The crate knows no keys, transactions, connections or RESP:
//! the engine executes commands within transactions, and the server turns replies into RESP.

#![deny(unsafe_code)]

mod arguments;
pub mod call;
mod collection;
mod collection_editor;
pub mod commands;
pub mod dump;
mod element_hash;
mod encoding;
mod execution;
pub mod fuzz;
mod geohash;
mod hash;
mod hash_field;
mod hyper_log_log;
mod leb128;
mod list;
mod list_trees;
mod listpack;
mod packed;
mod random;
mod scan;
mod score;
mod set;
pub mod set_algebra;
pub mod sort;
mod sorted_set;
mod stream;
mod stream_editor;
pub mod tree;

pub use call::{CallOutcome, StoredBlock, StoredData, StoredValue, ValueChange};
pub use collection::{CollectionRoots, CollectionView, ReplacedTrees, is_large};
pub use collection_editor::{CollectionEditor, PublishedCollection, canonical, logged_deadlines};
pub use commands::{
    hash_deadlines, hashes, hyper_log_logs, lists, places, sets, sorted_sets, streams,
};
pub use encoding::encoding;
pub use execution::{editor_for_many, execute};
pub use hash::{field_deadlines, last_passed_field_deadline, next_field_deadline};
