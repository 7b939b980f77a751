//! Frames of Cassandra's native protocol, both directions, and the parts of them that a proxy must
//! read.
//!
//! | module | what it has |
//! |---|---|
//! | [`envelope`] | headers and bodies in versions 3, 4 and 5; other streams, in place |
//! | [`compression`] | bodies and frames that are compressed |
//! | [`frame`], [`unpacker`], [`packer`] | the outer frames of version 5, and a connection's bytes as envelopes |
//! | [`request`], [`response`], [`event`] | messages, decoded and written |
//! | [`bound`], [`types`], [`value`], [`consistency`], [`paging`] | what messages are made of |
//! | [`notation`] | the protocol's smallest parts |
//! | [`token`], [`ring`] | where a key lies: tokens, partition keys, replicas |
//! | [`statement`] | texts of CQL, as far as words go: tables, conditions, the lock recipe |
//! | [`fuzz`] | entry points for fuzzing |
//!
//! Everything works on slices, without I/O. A request on its way through a proxy is found in the
//! input ([`Unpacker`]), read in place ([`request::Execute::decode`] allocates nothing), and copied
//! once, with another stream, behind others to the node ([`Packer`]).
//!
//! Compression ([`compression`]) costs the copies that this saves: a proxy offers it because
//! drivers may be configured to ask for it. If it was not agreed on, a compressed body is refused
//! as malformed.
//!
//! # Why not a library
//!
//! `cassandra-protocol` 4.0.1 decodes and encodes all messages, and this crate's tests compare its
//! messages with that library's. In a proxy it would have disadvantages:
//!
//! | to find an EXECUTE, decode it, and write it with another stream | here | there |
//! |---|---|---|
//! | 3 values of 16 bytes | 0.1–0.2 µs, no allocation | 0.6–0.7 µs, 10 allocations |
//! | 10 values of 100 bytes | 0.2–0.3 µs, no allocation | 0.9–1.5 µs, 17 allocations |
//!
//! (release build, two shared cores; ranges of three runs of a million.) It brings 40 packages and
//! about a minute of a processor's time to a build, which only tests pay here. It has no limits on
//! lengths, takes custom payloads for messages, does not know all error codes of version 5, and
//! panics on some bytes from outside, such as a write failure in version 5.

#![forbid(unsafe_code)]

pub mod bound;
mod checksum;
pub mod compression;
pub mod consistency;
pub mod envelope;
pub mod event;
pub mod frame;
pub mod fuzz;
pub mod notation;
pub mod packer;
pub mod paging;
pub mod request;
pub mod response;
pub mod ring;
pub mod statement;
pub mod token;
pub mod types;
pub mod unpacker;
pub mod value;

pub use bound::{Bound, BoundValues, ValueList};
pub use compression::{Compression, CompressionError};
pub use consistency::Consistency;
pub use envelope::{
    Direction, Envelope, EnvelopeError, Flags, HEADER_LEN, Header, Limits, Opcode, StreamId,
    Version, set_stream,
};
pub use event::{Event, EventKind};
pub use frame::FrameError;
pub use notation::Malformed;
pub use packer::{Framing, Packer};
pub use request::{Request, RequestMessage};
pub use response::{ErrorBody, ErrorKind, Response, ResponseMessage, ResultBody};
pub use types::DataType;
pub use unpacker::{StreamError, Unpacked, Unpacker};
pub use value::CqlValue;
