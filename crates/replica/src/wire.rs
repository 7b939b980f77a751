//! The bytes of members' messages and of their log's entries.
//!
//! Raft's library has an encoding of its own, which is never read from the network. Both encodings
//! are made of the parts of [`base::codec`]: integers are little-endian, and *count* and *bytes*
//! are encoded as there.
//!
//! | module | concept |
//! |---|---|
//! | `message` | a message of Raft |
//! | `payload` | the data of an entry of the log |
//!
//! Invariants:
//! 1. One value has one encoding: a value that is decoded and encoded again has the same bytes.
//! 2. Decoding panics for no input, and the memory that it allocates is bounded by the length of
//!    its input.

mod message;
mod payload;

pub(crate) use message::{
    put_conf_state, put_entry, put_message, read_conf_state, read_entry, read_message,
};
pub(crate) use payload::{Payload, changes};
