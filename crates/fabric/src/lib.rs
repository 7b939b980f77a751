//! Messages between nodes.
//!
//! | module | concept |
//! |---|---|
//! | [`messages`] | the trait: links, and messages on them |
//! | [`inbox`] | what has happened on links, in order |
//! | `room` | how much may wait to be sent on a link |
//! | [`frame`] | the encoding: frames of the handshake, and of messages |
//! | [`handshake`] | how peers prove who they are |
//! | [`tcp`] | links over TCP, inside a caller's poll; and one that blocks |
//! | [`sim`] | links over a simulated network: virtual time, and faults from one seed |
//! | [`fuzz`] | entry points for fuzzing the decoders |
//!
//! It does not know what messages mean: neither keys nor transactions.

#![forbid(unsafe_code)]

pub mod frame;
pub mod fuzz;
pub mod handshake;
pub mod inbox;
pub mod messages;
mod room;
pub mod sim;
pub mod tcp;

pub use handshake::Secret;
pub use inbox::Inbox;
pub use messages::{Event, Link, Messages, Peer, SendError};
