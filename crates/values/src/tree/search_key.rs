//! Keys to search for.

/// A key, and its first eight bytes as a number, which decides nearly all comparisons.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchKey<'a> {
    bytes: &'a [u8],
    head: u64,
}

impl<'a> SearchKey<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let head = key_head(bytes);
        SearchKey { bytes, head }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns `true` if the key is the one with this head, or greater.
    #[inline]
    pub(super) fn reaches_head<'o>(self, head: u64, other: impl FnOnce() -> &'o [u8]) -> bool {
        if head == self.head {
            return self.bytes >= other();
        }
        self.head > head
    }
}

/// Returns the first eight bytes of a key, the first one being the most significant. Zeros follow a shorter
/// key: of two keys with distinct heads, the lesser one has the lesser head.
#[inline]
pub(super) fn key_head(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; 8];
    first[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(first)
}
