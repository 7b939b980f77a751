//! Values that contain their writer and their key, so that a reader can check them.
//!
//! | bytes of the value | layout, little-endian |
//! |---|---|
//! | 4 … 15 | one word: sequence (14 bits), writer (6 bits), check (12 bits); then filler |
//! | 16 … | sequence (64 bits), writer (32 bits), check (32 bits); then filler |
//!
//! The check is a hash of key, writer, sequence and length; each byte of filler is its lowest one.
//! A short stamp keeps the lowest bits of writer and sequence.

/// The shortest value that can be stamped.
pub const SHORTEST: usize = 4;
/// The shortest value whose stamp keeps everything.
pub const WHOLE: usize = 16;

/// The writer of a value, and the number of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The writer; 0 is the loader.
    pub writer: u32,
    /// Numbers the writes of the writer.
    pub sequence: u64,
}

impl Stamp {
    /// The stamp of values that are there from the beginning.
    pub const INITIAL: Stamp = Stamp {
        writer: 0,
        sequence: 0,
    };

    /// Returns the part of this stamp that a value of `length` bytes keeps.
    fn kept(self, length: usize) -> Stamp {
        if length >= WHOLE {
            return self;
        }
        Stamp {
            writer: self.writer & 0x3f,
            sequence: self.sequence & 0x3fff,
        }
    }

    fn check(self, key: u64, length: usize) -> u32 {
        let x = key ^ u64::from(self.writer) << 40 ^ (length as u64) << 52;
        let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.sequence;
        let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x >> 32) as u32
    }

    /// Fills `value`, of key number `key`.
    ///
    /// # Panics
    /// Panics if the value is shorter than [`SHORTEST`].
    pub fn write(self, key: u64, value: &mut [u8]) {
        let kept = self.kept(value.len());
        let check = kept.check(key, value.len());
        let head = if value.len() >= WHOLE {
            value[..8].copy_from_slice(&kept.sequence.to_le_bytes());
            value[8..12].copy_from_slice(&kept.writer.to_le_bytes());
            value[12..16].copy_from_slice(&check.to_le_bytes());
            WHOLE
        } else {
            let word = kept.sequence as u32 | kept.writer << 14 | check << 20;
            value[..4].copy_from_slice(&word.to_le_bytes());
            SHORTEST
        };
        value[head..].fill(check as u8);
    }

    /// Returns the stamp in the value of key number `key`; `None` if no writer can have written it
    /// there.
    #[must_use]
    pub fn read(key: u64, value: &[u8]) -> Option<Stamp> {
        let word = |at: usize| Some(u32::from_le_bytes(value.get(at..at + 4)?.try_into().ok()?));
        let (stamp, check, head) = if value.len() >= WHOLE {
            let sequence = u64::from(word(0)?) | u64::from(word(4)?) << 32;
            let writer = word(8)?;
            (Stamp { writer, sequence }, word(12)?, WHOLE)
        } else {
            let word = word(0)?;
            let (writer, sequence) = (word >> 14 & 0x3f, u64::from(word & 0x3fff));
            (Stamp { writer, sequence }, word >> 20, SHORTEST)
        };
        let right = stamp.check(key, value.len());
        let mask = if head == WHOLE { u32::MAX } else { 0xfff };
        let filled = value[head..].iter().all(|&byte| byte == right as u8);
        (check == right & mask && filled).then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        writer: 5,
        sequence: 12_345,
    };

    #[test]
    fn stamps_are_read_back_at_every_length() {
        for length in [4, 5, 15, 16, 17, 100] {
            let mut value = vec![0; length];
            STAMP.write(77, &mut value);
            assert_eq!(Stamp::read(77, &value), Some(STAMP), "{length} bytes");
        }
    }

    #[test]
    fn a_value_of_another_key_or_length_and_a_changed_byte_are_seen() {
        for length in [4, 15, 16, 100] {
            let mut value = vec![0; length];
            STAMP.write(77, &mut value);
            let missed = (0..1000).filter(|&key| key != 77 && Stamp::read(key, &value).is_some());
            assert!(missed.count() <= 2, "twelve bits of check miss one in 4096");
            for at in 0..length {
                let mut changed = value.clone();
                changed[at] ^= 0x40;
                assert_ne!(
                    Stamp::read(77, &changed),
                    Some(STAMP),
                    "byte {at} of {length}"
                );
            }
            assert_eq!(Stamp::read(77, &value[..3]), None);
        }
    }

    #[test]
    fn a_long_value_keeps_all_of_its_stamp() {
        let stamp = Stamp {
            writer: 1 << 20,
            sequence: 1 << 40,
        };
        let mut value = [0; 16];
        stamp.write(1, &mut value);
        assert_eq!(Stamp::read(1, &value), Some(stamp));
    }
}
