//! What members say to each other, and what their log's entries hold, as bytes.
//!
//! Raft's library has an encoding of its own; nothing of it is read from the network. Both encodings
//! are made of [`base::codec`]'s parts: integers are little-endian, *count* and *bytes* as there.
//!
//! | module | concept |
//! |---|---|
//! | `message` | a message of Raft |
//! | `payload` | what an entry of the log holds |
//!
//! Invariants:
//! 1. One value has one encoding: what is decoded and encoded again is the same bytes.
//! 2. Decoding panics for no input, and what it allocates is bounded by the length of its input.

mod message;
mod payload;

pub(crate) use message::{
    put_conf_state, put_entry, put_message, read_conf_state, read_entry, read_message,
};
pub(crate) use payload::{Payload, changes};
