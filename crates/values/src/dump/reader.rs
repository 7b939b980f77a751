//! Reading lengths and strings of Redis's files; the description of their formats is that of the module above.

use std::borrow::Cow;

use super::lzf;
use super::payload::PayloadError;

pub(super) const WIDE_LENGTH: u8 = 0x80;
pub(super) const WIDEST_LENGTH: u8 = 0x81;
pub(super) const INTEGER_8: u8 = 0xc0;
pub(super) const INTEGER_16: u8 = 0xc1;
pub(super) const INTEGER_32: u8 = 0xc2;
pub(super) const COMPRESSED: u8 = 0xc3;

/// The part of a payload that is not yet decoded.
pub(super) struct PayloadReader<'a> {
    rest: &'a [u8],
}

impl<'a> PayloadReader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> PayloadReader<'a> {
        PayloadReader { rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads so many bytes.
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], PayloadError> {
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) = taken.ok_or(PayloadError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], PayloadError> {
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| PayloadError::Malformed)
    }

    pub(super) fn byte(&mut self) -> Result<u8, PayloadError> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a length.
    pub(super) fn length(&mut self) -> Result<u64, PayloadError> {
        let first = self.byte()?;
        self.length_after(first)
    }

    /// Reads a length whose first byte is this one.
    fn length_after(&mut self, first: u8) -> Result<u64, PayloadError> {
        match (first >> 6, first) {
            (0, _) => Ok(first.into()),
            (1, _) => Ok(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (_, WIDE_LENGTH) => self.array().map(|bytes| u32::from_be_bytes(bytes).into()),
            (_, WIDEST_LENGTH) => self.array().map(u64::from_be_bytes),
            _ => Err(PayloadError::Malformed),
        }
    }

    /// Reads a string of at most `longest` bytes.
    pub(super) fn string(&mut self, longest: usize) -> Result<Cow<'a, [u8]>, PayloadError> {
        let integer = match self.byte()? {
            INTEGER_8 => i8::from_le_bytes(self.array()?).into(),
            INTEGER_16 => i16::from_le_bytes(self.array()?).into(),
            INTEGER_32 => i32::from_le_bytes(self.array()?),
            COMPRESSED => return self.compressed(longest).map(Cow::Owned),
            first => {
                let length = self.length_after(first)?;
                let bytes = self.take(length)?;
                return within(length, longest).map(|_| Cow::Borrowed(bytes));
            }
        };
        Ok(Cow::Owned(integer.to_string().into_bytes()))
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
