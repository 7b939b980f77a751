//! Numbers in LEB128: seven bits in each byte, the least ones first; all bytes but the last have the highest bit.

/// Appends a number.
pub(crate) fn push_number(to: &mut impl Extend<u8>, mut number: u64) {
    while number >= 0x80 {
        to.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    to.extend([number as u8]);
}

/// Takes a number from the begin of some bytes.
#[inline]
pub(crate) fn read_number(from: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

/// Appends bytes behind their length.
pub(crate) fn push_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    push_number(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Takes bytes, which their length precedes.
pub(crate) fn read_bytes<'l>(from: &mut &'l [u8]) -> Option<&'l [u8]> {
    let length = usize::try_from(read_number(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

/// Returns the bytes that a number takes.
pub(crate) fn number_bytes(number: u64) -> usize {
    (number.max(1).ilog2() / 7 + 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for shift in 0..64 {
            for number in [(1 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                push_number(&mut bytes, number);
                assert_eq!(bytes.len(), number_bytes(number), "{number}");
                let mut rest = &bytes[..];
                assert_eq!(read_number(&mut rest), Some(number));
                assert!(rest.is_empty());
                assert_eq!(read_number(&mut &bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(read_number(&mut &[0xff; 12][..]), None);
        assert_eq!(read_bytes(&mut &[2, b'a'][..]), None);
    }
}
