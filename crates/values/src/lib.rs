//! Hashes, lists, sets, sorted sets and streams as values, and the commands on them.
//!
//! | module | contents |
//! |---|---|
//! | `packed` | a collection as one block of bytes: reading it, changing a copy |
//! | `hash`, `set` | the types in terms of `packed`: their elements and the order of these |
//! | [`set_algebra`] | intersections, unions and differences of sets |
//! | `scan`, `random` | pages of elements, elements drawn at random |
//! | [`commands`] | the commands of each type |
//! | [`encoding()`] | the names of the encodings that Redis has |
//! | [`call`] | the table of the commands, and their execution on a value |
//!
//! A command is a function of its arguments, a value, the time and a seed. It returns a reply, the change of the
//! value, and the events of the key. The crate knows no keys, transactions, connections or RESP:
//! the engine executes commands within transactions, and the server turns replies into RESP.

#![forbid(unsafe_code)]

mod arguments;
pub mod call;
pub mod commands;
mod encoding;
mod hash;
mod packed;
mod random;
mod scan;
mod set;
pub mod set_algebra;

pub use call::{CallContext, Outcome, StoredValue, ValueChange, execute};
pub use commands::{hash_deadlines, hashes, sets};
pub use encoding::encoding;
