//! Reading of bytes that may be anything; integers are little-endian.

use base::codec::{u16_at, u32_at, u64_at, u128_at};

use crate::format_error::FormatError;

/// Takes bytes from the front of others.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let found = self.rest.split_at_checked(len);
        let (taken, rest) = found.ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        self.bytes(2).map(|bytes| u16_at(bytes, 0))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        self.bytes(4).map(|bytes| u32_at(bytes, 0))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        self.bytes(8).map(|bytes| u64_at(bytes, 0))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, FormatError> {
        self.bytes(16).map(|bytes| u128_at(bytes, 0))
    }

    /// Reads a text after its length, of two bytes.
    pub(crate) fn text(&mut self) -> Result<&'a str, FormatError> {
        let len = self.u16()?;
        let bytes = self.bytes(len.into())?;
        str::from_utf8(bytes).map_err(|_| "a name is not UTF-8".into())
    }

    /// Reads a number of items that take at least `least` bytes each, so that a false number
    /// allocates no more memory than there are bytes.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, FormatError> {
        let count = self.u32()? as usize;
        let there = count
            .checked_mul(least)
            .is_some_and(|need| need <= self.left());
        there
            .then_some(count)
            .ok_or_else(|| "it ends too early".into())
    }

    pub(crate) fn end(&self) -> Result<(), FormatError> {
        let wrong = || FormatError(format!("{} bytes behind its end", self.left()));
        self.rest.is_empty().then_some(()).ok_or_else(wrong)
    }
}

/// Appends a text after its length.
///
/// # Panics
/// Panics if it is longer than 65,535 bytes.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).expect("a short text");
    out.extend(len.to_le_bytes());
    out.extend(text.as_bytes());
}

/// Appends a number of items.
///
/// # Panics
/// Panics if it is 2³² or more.
pub(crate) fn push_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a sensible number");
    out.extend(count.to_le_bytes());
}
