//! Values as `DUMP` and `RESTORE` carry them, in the format of Redis's files.
//!
//! | bytes | are |
//! |---|---|
//! | 1 | the type of the value and its encoding: a number of `value_type` |
//! | … | the value |
//! | 2 | the version of the format, little-endian |
//! | 8 | the CRC-64 (Redis's polynomial) of all bytes before, little-endian |
//!
//! A string begins with a byte whose two highest bits say how it goes on:
//!
//! | highest bits | the other six bits | behind it |
//! |---|---|---|
//! | 00 | the length | the bytes |
//! | 01 | the upper bits of a length | a byte: its lower bits; the bytes |
//! | 10 | 0 or 1 | the length as 4 or 8 bytes, big-endian; the bytes |
//! | 11 | 0, 1 or 2 | a decimal integer as 1, 2 or 4 bytes, little-endian |
//! | 11 | 3 | the compressed length and the length, each as of a string; the bytes, compressed by `lzf` |
//!
//! A number of elements is like the length of a string.
//!
//! The payload of `FUNCTION DUMP` has, in place of the first two rows, for each library a byte, 245, and its
//! source as a string.
//!
//! Invariants:
//! 1. No input makes the decoder panic, or take more memory than a small multiple of the longest value and the input.
//! 2. A value is written as Redis 7.0 writes it (a hash with deadlines of fields as Redis 7.4), byte for byte, as far as
//!    the value determines that: Redis writes the elements of a hash table in a random order, keeps an encoding that
//!    it once needed and deleted entries of streams, and has compression depend on what it compressed before.
//! 3. A value that was decoded is one that commands, here or in Redis, can have made.

mod block_entry;
mod decode;
mod encode;
mod file;
mod file_writer;
mod intset;
mod listpack;
mod lzf;
mod payload;
mod reader;
mod streams;
mod value_type;
mod writer;
mod ziplist;
mod zipmap;

use crc::{CRC_64_REDIS, Crc, Table};

use crate::call::StoredBlock;
pub use file::{RdbError, RdbItem, RdbReader, RdbValue};
pub use file_writer::{RdbRelease, RdbWriteError, RdbWriter};
pub use payload::{DecodeContext, DumpedValue, PayloadError};
use reader::PayloadReader;
use value_type::{HASH_DEADLINES, HASH_DEADLINES_LISTPACK};

/// The version of the format that is written: that of Redis 7.0.
const VERSION: u16 = 10;
/// The newest one that is read, and the one of hashes with deadlines of fields: that of Redis 7.4.
const NEWEST_VERSION: u16 = 12;
/// The version and the checksum.
const FOOTER: usize = 10;
/// The type of a library of functions.
const LIBRARY: u8 = 245;
/// That of a library in the format of a release before the first one.
const EARLY_LIBRARY: u8 = 246;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Why the libraries of a payload are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryPayloadError {
    /// Its version is a later one, or its checksum is wrong.
    Footer,
    /// It has a value that is no library.
    OtherType,
    /// It has a library in the format of a release before the first one.
    Early,
    /// A source is malformed, or longer than values may be.
    Malformed,
}

/// Returns the payload of a value.
#[must_use]
pub fn encode(value: StoredBlock<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.bytes.len() + 32);
    encode::write(value, &mut out);
    let version = match out[0] {
        HASH_DEADLINES | HASH_DEADLINES_LISTPACK => NEWEST_VERSION,
        _ => VERSION,
    };
    encode_footer(version, &mut out);
    out
}

/// Returns a payload in the newest version that is read, given all but its footer.
pub(crate) fn signed(body: &[u8]) -> Vec<u8> {
    let mut payload = body.to_vec();
    encode_footer(NEWEST_VERSION, &mut payload);
    payload
}

/// Returns the length of a value in bytes, without its type and what follows it.
#[must_use]
pub fn length(value: StoredBlock<'_>) -> usize {
    let mut out = Vec::new();
    encode::write(value, &mut out);
    out.len() - 1
}

/// Returns the payload of libraries with these sources.
pub fn encode_libraries<'s>(sources: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for source in sources {
        out.push(LIBRARY);
        writer::string(source, &mut out);
    }
    encode_footer(VERSION, &mut out);
    out
}

fn encode_footer(version: u16, out: &mut Vec<u8>) {
    out.extend(version.to_le_bytes());
    let checksum = CRC.checksum(out);
    out.extend(checksum.to_le_bytes());
}

/// Decodes a payload to a value. Bytes behind the value are ignored, as Redis does. `None`: it is a hash, and the
/// deadlines of all its fields have passed.
///
/// # Errors
/// See [`PayloadError`].
pub fn decode(payload: &[u8], context: DecodeContext) -> Result<Option<DumpedValue>, PayloadError> {
    let body = body_of(payload).ok_or(PayloadError::Footer)?;
    decode::read(&mut PayloadReader::new(body), context)
}

/// Decodes a payload to the sources of libraries, each of at most `longest` bytes.
///
/// # Errors
/// See [`LibraryPayloadError`].
pub fn decode_libraries(
    payload: &[u8],
    longest: usize,
) -> Result<Vec<Vec<u8>>, LibraryPayloadError> {
    let body = body_of(payload).ok_or(LibraryPayloadError::Footer)?;
    let mut rest = PayloadReader::new(body);
    let mut sources = Vec::new();
    while let Ok(kind) = rest.byte() {
        match kind {
            LIBRARY => {
                let source = rest.string(longest);
                let source = source.map_err(|_| LibraryPayloadError::Malformed)?;
                sources.push(source.into_owned());
            }
            EARLY_LIBRARY => return Err(LibraryPayloadError::Early),
            _ => return Err(LibraryPayloadError::OtherType),
        }
    }
    Ok(sources)
}

/// Returns a payload without its footer; `None`: that is wrong.
fn body_of(payload: &[u8]) -> Option<&[u8]> {
    let (body, footer) = payload.split_at(payload.len().checked_sub(FOOTER)?);
    let (version, checksum) = footer.split_at(2);
    let is_known = u16::from_le_bytes([version[0], version[1]]) <= NEWEST_VERSION;
    let own = CRC.checksum(&payload[..body.len() + version.len()]);
    (is_known && checksum == own.to_le_bytes()).then_some(body)
}

#[cfg(test)]
mod tests;
