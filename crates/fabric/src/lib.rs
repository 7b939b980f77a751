//! Messages between nodes.
//!
//! | module | concept |
//! |---|---|
//! | [`messages`] | the trait: links, and messages on them |
//!
//! It does not know what messages mean: neither keys nor transactions.

#![forbid(unsafe_code)]

pub mod messages;

pub use messages::{Event, Inbox, Link, Messages, Peer, SendError};
