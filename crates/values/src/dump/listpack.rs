//! Reading listpacks; their format is that of [`crate::listpack`].

use super::block_entry::{BlockEntry, signed};
use super::payload::PayloadError;
use crate::listpack::{END, HEADER, MANY, push_backward_length};

/// The entries of a listpack that is read; after an error there are no more.
pub(super) struct ListpackEntries<'b> {
    /// The entries that were not yet read, and the end.
    rest: &'b [u8],
    /// The number of entries, if the header has it.
    announced: Option<usize>,
    read: usize,
    has_ended: bool,
}

impl<'b> ListpackEntries<'b> {
    /// Begins to read a block.
    pub(super) fn new(block: &'b [u8]) -> Result<ListpackEntries<'b>, PayloadError> {
        let (header, rest) = block
            .split_first_chunk::<HEADER>()
            .ok_or(PayloadError::Malformed)?;
        let &[a, b, c, d, few, many] = header;
        if u32::from_le_bytes([a, b, c, d]) as usize != block.len() {
            return Err(PayloadError::Malformed);
        }
        let announced = u16::from_le_bytes([few, many]);
        Ok(ListpackEntries {
            rest,
            announced: (announced != MANY).then_some(announced.into()),
            read: 0,
            has_ended: false,
        })
    }

    /// Returns the next entry; `Some(None)` at the end, `None` if the block is malformed.
    fn entry(&mut self) -> Option<Option<BlockEntry<'b>>> {
        let start = self.rest;
        let (&first, behind) = start.split_first()?;
        if first == END {
            let is_whole = self.announced.is_none_or(|entries| entries == self.read);
            return (behind.is_empty() && is_whole).then_some(None);
        }
        let second = || behind.first().map(|byte| usize::from(*byte));
        let integer = |length: usize| {
            behind
                .get(..length)
                .map(|bytes| (signed(bytes), length + 1))
        };
        let (string, number) = match first {
            0..=0x7f => (None, (i64::from(first), 1)),
            0x80..=0xbf => (Some((1, usize::from(first & 0x3f))), (0, 0)),
            0xc0..=0xdf => {
                let bits = i64::from(first & 0x1f) << 8 | second()? as i64;
                (None, (bits << 51 >> 51, 2))
            }
            0xe0..=0xef => (Some((2, usize::from(first & 0xf) << 8 | second()?)), (0, 0)),
            0xf0 => {
                let length = u32::from_le_bytes(*behind.first_chunk()?);
                (Some((5, length as usize)), (0, 0))
            }
            0xf1 => (None, integer(2)?),
            0xf2 => (None, integer(3)?),
            0xf3 => (None, integer(4)?),
            0xf4 => (None, integer(8)?),
            _ => return None,
        };
        let (entry, length) = match string {
            Some((before, length)) => {
                let bytes = start.get(before..before + length)?;
                (BlockEntry::Bytes(bytes), before + length)
            }
            None => (BlockEntry::Int(number.0), number.1),
        };
        let mut expected = Vec::with_capacity(5);
        push_backward_length(length, &mut expected);
        self.rest = start[length..].strip_prefix(&expected[..])?;
        self.read += 1;
        Some(Some(entry))
    }
}

impl<'b> Iterator for ListpackEntries<'b> {
    type Item = Result<BlockEntry<'b>, PayloadError>;

    fn next(&mut self) -> Option<Result<BlockEntry<'b>, PayloadError>> {
        if self.has_ended {
            return None;
        }
        let entry = self.entry();
        self.has_ended = !matches!(entry, Some(Some(_)));
        entry.ok_or(PayloadError::Malformed).transpose()
    }
}
