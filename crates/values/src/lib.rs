//! Hashes, lists, sets, sorted sets and streams as values, and the commands on them.
//!
//! | module | contents |
//! |---|---|
//! | `packed` | a collection as one block of bytes: reading it, changing a copy |
//! | `hash` `list` | the types in terms of `packed`: their elements and the order of these |
//! | [`commands`] | the commands of each type |
//! | [`encoding()`] | the names of the encodings that Redis has |
//! | [`call`] | the table of the commands, and their execution on a value |
//!
//! A command is a function of its arguments, a value, the time and a seed. It returns a reply, the change of the
//! value, and the events of the key. The crate knows no keys, transactions, connections or RESP:
//! the engine executes commands within transactions, and the server turns replies into RESP.

#![forbid(unsafe_code)]

pub mod call;
pub mod commands;
mod encoding;
mod hash;
mod list;
mod packed;

pub use call::{CallContext, Outcome, StoredValue, ValueChange, execute};
pub use commands::{hashes, lists};
pub use encoding::encoding;
