//! Integers, byte strings and counts: what all encodings are made of.

use super::{Malformed, MalformedKind};

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
    /// How many bytes there were.
    len: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        let len = bytes.len();
        Reader { rest: bytes, len }
    }

    /// What has not been read.
    #[must_use]
    pub fn unread(&self) -> &'a [u8] {
        self.rest
    }

    /// Says that what comes next, or came last, is malformed.
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
    /// Bytes are left.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.rest {
            [] => Ok(()),
            _ => Err(self.malformed(MalformedKind::TooMuch)),
        }
    }

    /// So many bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(self.cut())?;
        self.rest = rest;
        Ok(taken)
    }

    /// So many bytes.
    ///
    /// # Errors
    /// If fewer follow.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.cut())?;
        self.rest = rest;
        Ok(*taken)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// One byte.
    ///
    /// # Errors
    /// There is none.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// An integer, little-endian, as those below.
    ///
    /// # Errors
    /// It is cut off.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// An integer.
    ///
    /// # Errors
    /// It is cut off.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// An integer.
    ///
    /// # Errors
    /// It is cut off.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// An integer.
    ///
    /// # Errors
    /// It is cut off.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// A flag, one byte.
    ///
    /// # Errors
    /// It is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed(MalformedKind::BadFlag)),
        }
    }

    /// A transaction's id.
    ///
    /// # Errors
    /// It is cut off.
    pub fn id(&mut self) -> Result<crate::TransactionId, Malformed> {
        self.array().map(crate::TransactionId::from_bytes)
    }

    /// A number of [`put_count`]; only as that function writes it.
    ///
    /// # Errors
    /// It is cut off, or written in another way.
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

    /// The number of things that follow, of which each takes a byte at least.
    ///
    /// # Errors
    /// There are not so many bytes.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(self.cut()),
        }
    }

    /// A length in memory.
    ///
    /// # Errors
    /// As [`Reader::number`].
    pub fn size(&mut self) -> Result<usize, Malformed> {
        let bad = self.malformed(MalformedKind::BadCount);
        usize::try_from(self.number()?).map_err(|_| bad)
    }

    /// Bytes of [`put_bytes`].
    ///
    /// # Errors
    /// They are cut off.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.count()?;
        self.take(len)
    }

    /// As [`Reader::bytes`], in UTF-8.
    ///
    /// # Errors
    /// As there, or they are no text.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed(MalformedKind::NotText))
    }

    /// As many as a count says, read by `one`.
    ///
    /// # Errors
    /// As `one`, or the count is out of range.
    pub fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count()?;
        // A count is a claim: memory for more than a few is taken as they are read.
        let mut list = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            list.push(one(self)?);
        }
        Ok(list)
    }
}
