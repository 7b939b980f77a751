//! Ziplists: the blocks in which Redis before 7 kept small collections. They are only read.
//!
//! | bytes | are |
//! |---|---|
//! | 4 | the number of bytes of the block, little-endian |
//! | 4 | the place of the last entry; without entries that of the end |
//! | 2 | the number of entries, little-endian; 65535: so many or more |
//! | … | the entries |
//! | 1 | 255 |
//!
//! An entry is the length of the entry before it (a byte, or 254 and 4 bytes, little-endian), its encoding, and its
//! bytes.
//!
//! | encoding | entry |
//! |---|---|
//! | `00xxxxxx` | a string of so many bytes |
//! | `01xxxxxx` and a byte | a string of so many bytes |
//! | `10……` and 4 bytes, big-endian | a string of so many bytes |
//! | 0xc0, 0xd0, 0xe0 | a signed integer of 2, 4 or 8 bytes, little-endian |
//! | 0xf0, 0xfe | a signed integer of 3 bytes or of one |
//! | 0xf1 to 0xfd | an integer from 0 to 12 |

use super::block_entry::{BlockEntry, signed};
use super::payload::PayloadError;

const HEADER: usize = 10;
const END: u8 = 0xff;
/// The number of entries that stands for itself and all greater ones.
const MANY: u16 = u16::MAX;
/// The first byte of a length of five bytes.
const WIDE: u8 = 0xfe;

/// The entries of a ziplist that is read; after an error there are no more.
pub(super) struct ZiplistEntries<'b> {
    block: &'b [u8],
    at: usize,
    /// The place of the last entry, as the header has it.
    last: usize,
    /// The number of entries, if the header has it.
    announced: Option<usize>,
    read: usize,
    /// The length of the entry before.
    before: usize,
    has_ended: bool,
}

impl<'b> ZiplistEntries<'b> {
    /// Begins to read a block.
    pub(super) fn new(block: &'b [u8]) -> Result<ZiplistEntries<'b>, PayloadError> {
        let header = block
            .first_chunk::<HEADER>()
            .ok_or(PayloadError::Malformed)?;
        let word = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("it has four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        if word(0) != block.len() {
            return Err(PayloadError::Malformed);
        }
        let announced = u16::from_le_bytes([header[8], header[9]]);
        Ok(ZiplistEntries {
            block,
            at: HEADER,
            last: word(4),
            announced: (announced != MANY).then_some(announced.into()),
            read: 0,
            before: 0,
            has_ended: false,
        })
    }

    /// Returns the next entry; `Some(None)` at the end, `None` if the block is malformed.
    fn entry(&mut self) -> Option<Option<BlockEntry<'b>>> {
        let start = &self.block[self.at..];
        let first = *start.first()?;
        if first == END {
            let is_whole = self.announced.is_none_or(|entries| entries == self.read)
                && self.last == self.at - self.before;
            return (start.len() == 1 && is_whole).then_some(None);
        }
        let (before, rest) = match first {
            WIDE => {
                let before = u32::from_le_bytes(*start[1..].first_chunk()?);
                (before as usize, &start[5..])
            }
            short => (short.into(), &start[1..]),
        };
        let (entry, rest) = entry_of(rest)?;
        if before != self.before {
            return None;
        }
        self.before = start.len() - rest.len();
        self.at += self.before;
        self.read += 1;
        Some(Some(entry))
    }
}

/// Reads an entry without the length before it. Returns the bytes behind it, too.
fn entry_of(bytes: &[u8]) -> Option<(BlockEntry<'_>, &[u8])> {
    let (&encoding, behind) = bytes.split_first()?;
    let integer = |length: usize| {
        let (number, rest) = behind.split_at_checked(length)?;
        Some((BlockEntry::Int(signed(number)), rest))
    };
    let (length, behind) = match encoding {
        0..=0x3f => (usize::from(encoding), behind),
        0x40..=0x7f => {
            let (&low, behind) = behind.split_first()?;
            (usize::from(encoding & 0x3f) << 8 | usize::from(low), behind)
        }
        0x80..=0xbf => {
            let (length, behind) = behind.split_first_chunk()?;
            (u32::from_be_bytes(*length) as usize, behind)
        }
        0xc0 => return integer(2),
        0xd0 => return integer(4),
        0xe0 => return integer(8),
        0xf0 => return integer(3),
        0xfe => return integer(1),
        0xf1..=0xfd => return Some((BlockEntry::Int(i64::from(encoding) - 0xf1), behind)),
        _ => return None,
    };
    let (string, rest) = behind.split_at_checked(length)?;
    Some((BlockEntry::Bytes(string), rest))
}

impl<'b> Iterator for ZiplistEntries<'b> {
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
