//! Little-endian integers at fixed places in bytes.

/// Puts bytes at a place.
///
/// # Panics
/// Panics if there is no room for them.
#[inline]
pub fn put_at(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes")
}

/// Returns the integer of two bytes at a place.
///
/// # Panics
/// Panics if the bytes end before.
#[inline]
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// Returns the integer of four bytes at a place.
///
/// # Panics
/// Panics if the bytes end before.
#[inline]
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// Returns the integer of eight bytes at a place.
///
/// # Panics
/// Panics if the bytes end before.
#[inline]
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Returns the integer of sixteen bytes at a place.
///
/// # Panics
/// Panics if the bytes end before.
#[inline]
#[must_use]
pub fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back_from_their_places() {
        let mut bytes = [0; 40];
        put_at(&mut bytes, 1, &0x0102_u16.to_le_bytes());
        put_at(&mut bytes, 3, &0x0304_0506_u32.to_le_bytes());
        put_at(&mut bytes, 7, &0x0708_090a_0b0c_0d0e_u64.to_le_bytes());
        put_at(&mut bytes, 15, &u128::MAX.wrapping_sub(5).to_le_bytes());
        assert_eq!(
            (u16_at(&bytes, 1), u32_at(&bytes, 3)),
            (0x0102, 0x0304_0506)
        );
        assert_eq!(u64_at(&bytes, 7), 0x0708_090a_0b0c_0d0e);
        assert_eq!(
            (u128_at(&bytes, 15), bytes[31..].iter().max()),
            (u128::MAX - 5, Some(&0))
        );
    }
}
