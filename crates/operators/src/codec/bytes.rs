//! The parts of all encodings: numbers, texts, lists and options.

use base::codec::Reader;

use super::error::CodecError;

pub(super) type Result<T> = std::result::Result<T, CodecError>;

const ENDS: CodecError = CodecError::Malformed("they end too early");

/// Appends bytes.
pub(super) struct FragmentWriter {
    pub(super) bytes: Vec<u8>,
}

impl FragmentWriter {
    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn number(&mut self, mut number: u128) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    pub(super) fn signed(&mut self, number: i128) {
        self.number(((number << 1) ^ (number >> 127)) as u128);
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u128);
        self.bytes.extend(text);
    }

    pub(super) fn list<T>(
        &mut self,
        items: &[T],
        mut write: impl FnMut(&mut FragmentWriter, &T) -> Result<()>,
    ) -> Result<()> {
        self.number(items.len() as u128);
        items.iter().try_for_each(|item| write(self, item))
    }

    pub(super) fn option<T>(
        &mut self,
        item: Option<&T>,
        write: impl FnOnce(&mut FragmentWriter, &T) -> Result<()>,
    ) -> Result<()> {
        self.byte(item.is_some().into());
        item.map_or(Ok(()), |item| write(self, item))
    }
}

/// Takes bytes from the front.
pub(super) struct FragmentReader<'a> {
    bytes: Reader<'a>,
}

impl<'a> FragmentReader<'a> {
    /// Returns a reader at the first byte.
    pub(super) fn new(bytes: &'a [u8]) -> FragmentReader<'a> {
        let bytes = Reader::new(bytes);
        FragmentReader { bytes }
    }

    /// Returns `true` if everything has been read.
    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.unread().is_empty()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        self.bytes.take(len).map_err(|_| ENDS)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.bytes.array().map_err(|_| ENDS)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        self.bytes.u8().map_err(|_| ENDS)
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::Malformed("a yes or no is neither")),
        }
    }

    pub(super) fn number(&mut self) -> Result<u128> {
        let mut number = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let digit = u128::from(byte & 0x7F);
            if digit << shift >> shift != digit || (byte == 0 && shift > 0) {
                return Err(CodecError::Malformed("a number has too many digits"));
            }
            number |= digit << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(CodecError::Malformed("a number has too many digits"))
    }

    pub(super) fn signed(&mut self) -> Result<i128> {
        let number = self.number()?;
        Ok((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    pub(super) fn signed64(&mut self) -> Result<i64> {
        let number = self.signed()?;
        i64::try_from(number).map_err(|_| CodecError::TooLarge("a place in a text"))
    }

    /// Reads a column's place.
    pub(super) fn place(&mut self) -> Result<usize> {
        let number = self.number()?;
        u32::try_from(number)
            .map(|n| n as usize)
            .map_err(|_| CodecError::TooLarge("a column"))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.number()?).map_err(|_| ENDS)?;
        self.take(len)
    }

    pub(super) fn utf8(&mut self) -> Result<String> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(str::to_owned)
            .map_err(|_| CodecError::Malformed("a text is not UTF-8"))
    }

    pub(super) fn list<T>(
        &mut self,
        most: usize,
        mut read: impl FnMut(&mut FragmentReader<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let len = self.number()?;
        // Each item takes at least a byte, so no more memory is allocated than there may be items.
        if len > most as u128 || len > self.bytes.unread().len() as u128 {
            return Err(CodecError::TooLarge("a list"));
        }
        let mut items = Vec::new();
        for _ in 0..len {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut FragmentReader<'a>) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.flag()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }
}

/// Returns the code of an item: its place among all.
pub(super) fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter()
        .position(|known| known == one)
        .expect("all are listed") as u8
}
