//! RESP2 and RESP3 frames, both directions.
//!
//! | direction | reading | writing |
//! |---|---|---|
//! | requests | [`request`] (a server) | [`command::write_command`] (a client) |
//! | replies | [`reply`] (a client) | [`writer`] (a server) |
//!
//! A request is either a *multibulk*, `*2\r
//! $3\r
//! GET\r
//! $1\r
//! a\r
//! `, or a line of words, the *inline* form for people with a terminal. This crate handles bytes
//! and lengths, and not the meaning of commands.

#![forbid(unsafe_code)]

pub mod command;
pub mod fuzz;
mod inline;
pub mod reply;
pub mod request;
pub mod writer;

pub use reply::{ReplyParser, Value};
pub use request::{Args, Limits, Parser, ProtocolError, Span};
pub use writer::{Protocol, Writer};
