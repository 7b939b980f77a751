//! Values as `DUMP` and `RESTORE` carry them, in the format of Redis's files.
//!
//! | bytes | are |
//! |---|---|
//! | 1 | the type of the value: 0, a string |
//! | … | the string |
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
//! | 11 | 3 | the compressed length and the length, each as of a string; the bytes, compressed by [`lzf`](crate::lzf) |
//!
//! The payload of `FUNCTION DUMP` has, in place of the first two rows, for each library a byte, 245, and its
//! source as a string.
//!
//! Invariants:
//! 1. No input makes the decoder panic, or take more memory than the longest value and the input have.
//! 2. A value is written as Redis writes it, byte for byte.

use base::number::parse_int;
use crc::{CRC_64_REDIS, Crc, Table};

use crate::lzf;

/// The version of the format that is written, and the newest one that is read.
const VERSION: u16 = 10;
/// The version and the checksum.
const FOOTER: usize = 10;
/// The type of a string.
const STRING: u8 = 0;
/// The type of a library of functions.
const LIBRARY: u8 = 245;
/// That of a library in the format of a release before the first one.
const EARLY_LIBRARY: u8 = 246;
/// The longest text that is tried as an integer: that of 32 bits with its sign.
const LONGEST_INTEGER: usize = 11;
/// The longest text that is not compressed.
const UNCOMPRESSED: usize = 20;

const WIDE_LENGTH: u8 = 0x80;
const WIDEST_LENGTH: u8 = 0x81;
const INTEGER_8: u8 = 0xc0;
const INTEGER_16: u8 = 0xc1;
const INTEGER_32: u8 = 0xc2;
const COMPRESSED: u8 = 0xc3;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadError {
    /// Its version is a later one, or its checksum is wrong.
    Footer,
    /// Its value is malformed, or of a type that the server does not have.
    Malformed,
    /// Its value is longer than values may be.
    TooLong,
}

/// Why the libraries of a payload are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LibraryPayloadError {
    /// Its version is a later one, or its checksum is wrong.
    Footer,
    /// It has a value that is no library.
    OtherType,
    /// It has a library in the format of a release before the first one.
    Early,
    /// A source is malformed, or longer than values may be.
    Malformed,
}

/// Encodes a string.
pub(crate) fn encode(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 16);
    out.push(STRING);
    encode_string(value, &mut out);
    encode_footer(&mut out);
    out
}

/// Encodes libraries with these sources.
pub(crate) fn encode_libraries<'s>(sources: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for source in sources {
        out.push(LIBRARY);
        encode_string(source, &mut out);
    }
    encode_footer(&mut out);
    out
}

fn encode_footer(out: &mut Vec<u8>) {
    out.extend(VERSION.to_le_bytes());
    let checksum = CRC.checksum(out);
    out.extend(checksum.to_le_bytes());
}

fn encode_string(value: &[u8], out: &mut Vec<u8>) {
    let short = Some(value).filter(|value| value.len() <= LONGEST_INTEGER);
    if let Some(number) = short.and_then(parse_int)
        && let Ok(number) = i32::try_from(number)
    {
        return encode_integer(number, out);
    }
    if value.len() > UNCOMPRESSED
        && let Some(compressed) = lzf::compress(value)
    {
        out.push(COMPRESSED);
        encode_length(compressed.len(), out);
        encode_length(value.len(), out);
        return out.extend(compressed);
    }
    encode_length(value.len(), out);
    out.extend_from_slice(value);
}

fn encode_integer(number: i32, out: &mut Vec<u8>) {
    if let Ok(number) = i8::try_from(number) {
        out.push(INTEGER_8);
        out.extend(number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(INTEGER_16);
        out.extend(number.to_le_bytes());
    } else {
        out.push(INTEGER_32);
        out.extend(number.to_le_bytes());
    }
}

fn encode_length(length: usize, out: &mut Vec<u8>) {
    if length < 1 << 6 {
        out.push(length as u8);
    } else if length < 1 << 14 {
        out.extend((length as u16 | 0x4000).to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        out.push(WIDE_LENGTH);
        out.extend(length.to_be_bytes());
    } else {
        out.push(WIDEST_LENGTH);
        out.extend((length as u64).to_be_bytes());
    }
}

/// Decodes a payload to a string of at most `longest` bytes. Bytes behind the string are ignored, as Redis does.
///
/// # Errors
/// See [`PayloadError`].
pub(crate) fn decode(payload: &[u8], longest: usize) -> Result<Vec<u8>, PayloadError> {
    let rest = body_of(payload).ok_or(PayloadError::Footer)?;
    let mut rest = PayloadReader { rest };
    match rest.byte()? {
        STRING => rest.string(longest),
        _ => Err(PayloadError::Malformed),
    }
}

/// Decodes a payload to the sources of libraries, each of at most `longest` bytes.
///
/// # Errors
/// See [`LibraryPayloadError`].
pub(crate) fn decode_libraries(
    payload: &[u8],
    longest: usize,
) -> Result<Vec<Vec<u8>>, LibraryPayloadError> {
    let rest = body_of(payload).ok_or(LibraryPayloadError::Footer)?;
    let mut rest = PayloadReader { rest };
    let mut sources = Vec::new();
    while let Ok(kind) = rest.byte() {
        match kind {
            LIBRARY => {
                let source = rest.string(longest);
                sources.push(source.map_err(|_| LibraryPayloadError::Malformed)?);
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
    let is_known = u16::from_le_bytes([version[0], version[1]]) <= VERSION;
    let own = CRC.checksum(&payload[..body.len() + version.len()]);
    (is_known && checksum == own.to_le_bytes()).then_some(body)
}

/// The part of a payload that is not yet decoded.
struct PayloadReader<'a> {
    rest: &'a [u8],
}

impl<'a> PayloadReader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], PayloadError> {
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) = taken.ok_or(PayloadError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PayloadError> {
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| PayloadError::Malformed)
    }

    fn byte(&mut self) -> Result<u8, PayloadError> {
        self.array().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<u64, PayloadError> {
        let first = self.byte()?;
        self.length_after(first)
    }

    /// Decodes a length whose first byte is this one.
    fn length_after(&mut self, first: u8) -> Result<u64, PayloadError> {
        match (first >> 6, first) {
            (0, _) => Ok(first.into()),
            (1, _) => Ok(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (_, WIDE_LENGTH) => self.array().map(|bytes| u32::from_be_bytes(bytes).into()),
            (_, WIDEST_LENGTH) => self.array().map(u64::from_be_bytes),
            _ => Err(PayloadError::Malformed),
        }
    }

    fn string(&mut self, longest: usize) -> Result<Vec<u8>, PayloadError> {
        let integer = match self.byte()? {
            INTEGER_8 => i8::from_le_bytes(self.array()?).into(),
            INTEGER_16 => i16::from_le_bytes(self.array()?).into(),
            INTEGER_32 => i32::from_le_bytes(self.array()?),
            COMPRESSED => return self.compressed(longest),
            first => {
                let length = self.length_after(first)?;
                let bytes = self.take(length)?;
                return within(length, longest).map(|_| bytes.to_vec());
            }
        };
        Ok(integer.to_string().into_bytes())
    }

    fn compressed(&mut self, longest: usize) -> Result<Vec<u8>, PayloadError> {
        let compressed = self.length()?;
        let length = self.length()?;
        let bytes = self.take(compressed)?;
        let length = within(length, longest)?;
        lzf::decompress(bytes, length).ok_or(PayloadError::Malformed)
    }
}

/// Returns a length that values may have.
fn within(length: u64, longest: usize) -> Result<usize, PayloadError> {
    let length = usize::try_from(length).ok();
    length
        .filter(|length| *length <= longest)
        .ok_or(PayloadError::TooLong)
}

#[cfg(test)]
mod tests;
