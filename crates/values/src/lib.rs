//! Hashes, lists, sets, sorted sets and streams as values, and the commands on them.
//!
//! | module | contents |
//! |---|---|
//! | `packed` | a collection as one block of bytes: reading it, changing a copy |
//! | `hash` | the types in terms of `packed`: their elements and the order of these |
//! | `hyper_log_log` | HyperLogLogs, which are strings |
//! | [`commands`] | the commands of each type |
//! | [`encoding()`] | the names of the encodings that Redis has |
//! | `listpack` | Redis's blocks of small collections: writing them |
//! | [`dump`] | values in the format of Redis's files |
//! | [`sort`] | the order of elements by `SORT` |
//! | `score` | the scores of sorted sets as bytes and as text |
//! | [`fuzz`] | an entry point for fuzzing |
//! | [`call`] | the table of the commands, and their execution on a value |
//!
//! A command is a function of its arguments, a value, the time and a seed. It returns a reply, the change of the
//! value, and the events of the key. The crate knows no keys, transactions, connections or RESP:
//! the engine executes commands within transactions, and the server turns replies into RESP.

#![forbid(unsafe_code)]

pub mod call;
pub mod commands;
pub mod dump;
mod encoding;
pub mod fuzz;
mod hash;
mod hyper_log_log;
mod listpack;
mod packed;
mod score;
pub mod sort;

pub use call::{CallContext, Outcome, StoredValue, ValueChange, execute};
pub use commands::{hashes, hyper_log_logs};
pub use encoding::encoding;
