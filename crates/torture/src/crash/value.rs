//! Values that can be distinguished from any other value, and from damaged ones.
//!
//! | part | form |
//! |---|---|
//! | id | hexadecimal, never used twice in one run |
//! | `.` and length | hexadecimal, of the whole value in bytes |
//! | `:` and filler | pseudo-random bytes that follow from id and length |

/// A value, known by its id and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrashValue {
    /// Unique in a run.
    pub id: u64,
    /// Length in bytes; at least [`CrashValue::MIN_LEN`].
    pub len: usize,
}

impl CrashValue {
    /// Room for every id and length.
    pub const MIN_LEN: usize = 32;

    /// Returns the bytes to store.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.len >= CrashValue::MIN_LEN);
        let mut bytes = format!("{:x}.{:x}:", self.id, self.len).into_bytes();
        let start = bytes.len();
        bytes.resize(self.len, 0);
        // The seed is spread out, so that values of neighbouring ids share nothing.
        let seed = (self.id ^ (self.len as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        fastrand::Rng::with_seed(seed).fill(&mut bytes[start..]);
        bytes
    }

    /// Returns the value that encodes to exactly these bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<CrashValue> {
        let head = bytes.split(|&b| b == b':').next()?;
        let (id, len) = std::str::from_utf8(head).ok()?.split_once('.')?;
        let id = u64::from_str_radix(id, 16).ok()?;
        let len = usize::from_str_radix(len, 16).ok()?;
        let value = CrashValue { id, len };
        (len == bytes.len() && len >= CrashValue::MIN_LEN && value.encode() == bytes)
            .then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_again_and_damage_is_seen() {
        let value = CrashValue {
            id: u64::MAX,
            len: 100,
        };
        let bytes = value.encode();
        assert_eq!(CrashValue::decode(&bytes), Some(value));
        assert_eq!(CrashValue::decode(&bytes[..99]), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_ne!(CrashValue::decode(&damaged), Some(value), "byte {at}");
        }
    }
}
