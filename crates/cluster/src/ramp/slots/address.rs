//! The address of a key's slot: a reader keeps it to read the key again.

/// The address of a key's slot. It is good as long as the reader finds the key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The slot's first word in the region.
    pub at: u32,
    /// Words to read: those in use when the address was given, and some for growth.
    pub words: u32,
    /// The part of the region that the slot is in.
    pub part: u32,
    /// How often that part had been divided anew when the address was given.
    pub layout: u32,
    /// The owner's incarnation.
    pub incarnation: u64,
}

impl Address {
    /// Bytes of an address.
    pub const BYTES: usize = 24;

    /// Returns the address as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.at, self.words, self.part, self.layout];
        for (at, word) in words.into_iter().enumerate() {
            bytes[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    /// Decodes [`Address::to_bytes`]. Any bytes are accepted: a reader trusts no part of an address.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Address {
        let word = |at: usize| {
            let four = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(four)
        };
        Address {
            at: word(0),
            words: word(4),
            part: word(8),
            layout: word(12),
            incarnation: u64::from(word(16)) | u64::from(word(20)) << 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let address = Address {
            at: 1,
            words: u32::MAX,
            part: 3,
            layout: 4 << 24,
            incarnation: 0x0123_4567_89ab_cdef,
        };
        assert_eq!(Address::from_bytes(address.to_bytes()), address);
    }
}
