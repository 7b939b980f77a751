//! Integers, byte strings and counts: the parts of all encodings.

use super::malformed::{Malformed, MalformedKind};
use crate::model::ids::TransactionId;

/// Appends a count or a length: seven bits a byte, the lowest first, the top bit set in all bytes
/// but the last.
pub fn put_count(to: &mut Vec<u8>, mut count: u64) {
    while count >= 0x80 {
        to.push(count as u8 | 0x80);
        count >>= 7;
    }
    to.push(count as u8);
}

/// Appends a byte string: its length, as a count, and itself.
pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_count(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends an integer.
pub fn put_u64(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(&number.to_le_bytes());
}

/// Appends an integer.
pub fn put_i64(to: &mut Vec<u8>, number: i64) {
    to.extend_from_slice(&number.to_le_bytes());
}

/// Reads from the beginning of bytes.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The number of bytes at the beginning.
    len: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        let len = bytes.len();
        Reader { rest: bytes, len }
    }

    /// Returns the bytes that have not been read.
    #[must_use]
    pub fn unread(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns an error that says that the bytes which come next, or came last, are malformed.
    #[must_use]
    pub fn malformed(&self, kind: MalformedKind) -> Malformed {
        let at = self.len - self.rest.len();
        Malformed { kind, at }
    }

    fn cut(&self) -> Malformed {
        self.malformed(MalformedKind::Cut)
    }

    /// Fails unless everything has been read.
    ///
    /// # Errors
    /// Returns an error if bytes are left.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.rest {
            [] => Ok(()),
            _ => Err(self.malformed(MalformedKind::TooMuch)),
        }
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    /// Returns an error if there are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(self.cut())?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// Returns an error if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.cut())?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads all bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads an integer, little-endian, as the functions below.
    ///
    /// # Errors
    /// Returns an error if it is cut off.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// Returns an error if it is cut off.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// Returns an error if it is cut off.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// Returns an error if it is cut off.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads a flag, one byte.
    ///
    /// # Errors
    /// Returns an error if it is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed(MalformedKind::BadFlag)),
        }
    }

    /// Reads a transaction's id.
    ///
    /// # Errors
    /// Returns an error if it is cut off.
    pub fn id(&mut self) -> Result<TransactionId, Malformed> {
        self.array().map(TransactionId::from_bytes)
    }

    /// Reads a number of [`put_count`], only in the form in which that function writes it.
    ///
    /// # Errors
    /// Returns an error if it is cut off, or written in another form.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            // The tenth byte has room for one bit; a last byte of zero says nothing.
            if shift == 63 && bits > 1 || shift > 0 && byte == 0 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.malformed(MalformedKind::BadCount))
    }

    /// Reads the number of items that follow, of which each takes a byte at least.
    ///
    /// # Errors
    /// Returns an error if there are not so many bytes.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(self.cut()),
        }
    }

    /// Reads a length in memory.
    ///
    /// # Errors
    /// As [`Reader::number`].
    pub fn size(&mut self) -> Result<usize, Malformed> {
        let bad = self.malformed(MalformedKind::BadCount);
        usize::try_from(self.number()?).map_err(|_| bad)
    }

    /// Reads bytes of [`put_bytes`].
    ///
    /// # Errors
    /// Returns an error if they are cut off.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.count()?;
        self.take(len)
    }

    /// Reads bytes as [`Reader::bytes`], in UTF-8.
    ///
    /// # Errors
    /// As there, or if they are not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed(MalformedKind::NotText))
    }

    /// Reads a count, and then so many items with `one`.
    ///
    /// # Errors
    /// As `one`, or if the count is out of range.
    pub fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count()?;
        // A count is only a claim: memory for more than a few items is taken as they are read.
        let mut list = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            list.push(one(self)?);
        }
        Ok(list)
    }
}
