//! An entry of a listpack or a ziplist.

use std::borrow::Cow;

/// See the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockEntry<'b> {
    Bytes(&'b [u8]),
    /// It is kept as a number, and stands for its decimal digits.
    Int(i64),
}

impl<'b> BlockEntry<'b> {
    /// Returns the bytes for which it stands.
    pub(super) fn bytes(self) -> Cow<'b, [u8]> {
        match self {
            BlockEntry::Bytes(bytes) => Cow::Borrowed(bytes),
            BlockEntry::Int(number) => Cow::Owned(number.to_string().into_bytes()),
        }
    }
}

/// Returns the number in at most eight bytes, little-endian, with a sign.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (64 - 8 * bytes.len())
}
