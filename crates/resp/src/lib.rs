//! RESP2 and RESP3 frames, both directions.
//!
//! | direction | reading | writing |
//! |---|---|---|
//! | requests | [`request`] (a server) | [`command::write_command`] (a client) |
//! | replies | [`reply`] (a client) | [`writer`] (a server) |
//!
//! A request is either a *multibulk*, `*2\r\n$3\r\nGET\r\n$1\r\na\r\n`, or a line of words, the
//! *inline* form for people with a terminal. This crate knows bytes and lengths; what a command
//! means it does not know.

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
