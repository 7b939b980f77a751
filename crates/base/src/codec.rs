//! Operations, replies and reasons of aborts as bytes: in messages between nodes, and in the logs of
//! replicas.
//!
//! | name | encoding |
//! |---|---|
//! | integers | little-endian, of the size that is named |
//! | count | 1 to 10 bytes: seven bits each, the lowest first, the top bit set in all but the last; as short as possible |
//! | bytes | count, then so many bytes |
//! | text | as bytes, UTF-8 |
//! | id | 16 bytes: the attempt's timestamp and its unique number, big-endian, as in keys |
//! | ops, replies | count, then so many; see the modules `ops` and `replies` |
//! | asks, founds | count, then so many; see the module `versions` |
//!
//! Invariants:
//! 1. One value has one encoding: bytes that are decoded and encoded again are the same.
//! 2. Decoding panics for no input, and its allocations are bounded by the length of its input: a
//!    count of more things than bytes follow is refused.
//! 3. Operations borrow their keys and values from the input.

mod bytes;
mod fixed;
mod malformed;
mod ops;
mod replies;
mod versions;

pub use bytes::{Reader, put_bytes, put_count, put_i64, put_u64};
pub use fixed::{put_at, u16_at, u32_at, u64_at, u128_at};
pub use malformed::{Malformed, MalformedKind, VERSION};
pub use ops::{decode_ops, encode_ops, read_ops};
pub use replies::{read_abort, read_replies, write_abort, write_replies};
pub use versions::{read_asks, read_founds, write_asks, write_founds};
