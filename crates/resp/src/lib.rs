//! RESP2 and RESP3 frames, both directions.
//!
//! | direction | reading | writing |
//! |---|---|---|
//! | requests | [`request`] (a server) | [`command::write_command`] (a client) |
//! | replies | [`reply`] (a client) | [`writer`] (a server) |
//!
//! Arguments of requests are slices of the input ([`args`]).
//!
//! A request is either a *multibulk*, `*2\r
//! $3\r
//! GET\r
//! $1\r
//! a\r
//! `, or a line of words, the *inline* form for people with a terminal. This crate handles bytes
//! and lengths, and not the meaning of commands.

#![forbid(unsafe_code)]

pub mod args;
pub mod command;
pub mod fuzz;
mod inline;
pub mod reply;
pub mod request;
pub mod writer;

pub use args::{Args, Span};
pub use inline::split_words;
pub use reply::{ReplyParser, Value};
pub use request::{Limits, Parser, ProtocolError};
pub use writer::{Protocol, Writer};
