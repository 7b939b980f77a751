//! Writing listpacks: the blocks in which Redis 7 keeps small collections.
//!
//! | bytes | are |
//! |---|---|
//! | 4 | the number of bytes of the block, little-endian |
//! | 2 | the number of entries, little-endian; 65535: so many or more |
//! | … | the entries |
//! | 1 | 255 |
//!
//! An entry is its encoding, its bytes, and the length of both in groups of seven bits: the highest group first, the
//! highest bit set in all groups but the first.
//!
//! | encoding | entry |
//! |---|---|
//! | `0xxxxxxx` | an integer from 0 to 127 |
//! | `10xxxxxx` | a string of so many bytes |
//! | `110xxxxx` and a byte | a signed integer of 13 bits |
//! | `1110xxxx` and a byte | a string of so many bytes |
//! | 0xf0 and 4 bytes, little-endian | a string of so many bytes |
//! | 0xf1, 0xf2, 0xf3, 0xf4 | a signed integer of 2, 3, 4 or 8 bytes, little-endian |

use base::number::parse_int;

pub(crate) const HEADER: usize = 6;
pub(crate) const END: u8 = 0xff;
/// The number of entries that stands for itself and all greater ones.
pub(crate) const MANY: u16 = u16::MAX;

/// A listpack that is written.
pub(crate) struct ListpackWriter {
    bytes: Vec<u8>,
    entries: usize,
}

impl ListpackWriter {
    pub(crate) fn new() -> ListpackWriter {
        ListpackWriter {
            bytes: vec![0; HEADER],
            entries: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the length of the block in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, blob: &[u8]) {
        let start = self.bytes.len();
        match parse_int(blob) {
            Some(number) => self.push_int(number),
            None => self.push_string(blob),
        }
        let length = self.bytes.len() - start;
        push_backward_length(length, &mut self.bytes);
        self.entries += 1;
    }

    fn push_int(&mut self, number: i64) {
        let to = &mut self.bytes;
        let bytes = number.to_le_bytes();
        let fits = |bits: u32| number >> (bits - 1) == number >> 63;
        match number {
            0..=127 => to.push(number as u8),
            _ if fits(13) => to.extend((number as u16 & 0x1fff | 0xc000).to_be_bytes()),
            _ if fits(16) => push_wide(0xf1, &bytes[..2], to),
            _ if fits(24) => push_wide(0xf2, &bytes[..3], to),
            _ if fits(32) => push_wide(0xf3, &bytes[..4], to),
            _ => push_wide(0xf4, &bytes, to),
        }
    }

    fn push_string(&mut self, blob: &[u8]) {
        let to = &mut self.bytes;
        match blob.len() {
            length @ ..64 => to.push(length as u8 | 0x80),
            length @ ..4096 => to.extend((length as u16 | 0xe000).to_be_bytes()),
            length => push_wide(0xf0, &(length as u32).to_le_bytes(), to),
        }
        to.extend_from_slice(blob);
    }

    /// Returns the block.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let length = u32::try_from(self.bytes.len()).expect("values are shorter than 4 GiB");
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        let entries = u16::try_from(self.entries).unwrap_or(MANY);
        self.bytes[4..HEADER].copy_from_slice(&entries.to_le_bytes());
        self.bytes
    }
}

fn push_wide(encoding: u8, bytes: &[u8], to: &mut Vec<u8>) {
    to.push(encoding);
    to.extend_from_slice(bytes);
}

/// Returns the number of groups of the length behind an entry of so many bytes. Redis takes one more than are
/// needed for 2^14 − 1, 2^21 − 1 and 2^28 − 1.
fn groups_of(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..=0x3ffe => 2,
        0x3fff..=0x1f_fffe => 3,
        0x1f_ffff..=0xfff_fffe => 4,
        _ => 5,
    }
}

/// Adds the length of an entry behind it.
pub(crate) fn push_backward_length(length: usize, to: &mut Vec<u8>) {
    let groups = groups_of(length);
    for group in (0..groups).rev() {
        let is_first = group == groups - 1;
        let bits = (length >> (7 * group)) as u8 & 0x7f;
        to.push(bits | if is_first { 0 } else { 0x80 });
    }
}
