//! Paging states: the end of a page, in Cassandra's form. To clients they are opaque bytes, but a
//! node refuses a request with other bytes as malformed.
//!
//! | part | bytes |
//! |---|---|
//! | key of the partition | length, that many bytes; none: the request is about one partition |
//! | the last row's clustering | length, that many bytes |
//! | rows that are left | number |
//! | rows that are left in the partition | number |
//!
//! Lengths and numbers are unsigned and of one to nine bytes: the number of leading 1 bits of the
//! first byte is the number of bytes that follow, and the rest of the first byte has the number's
//! highest bits. A number takes as few bytes as possible. Numbers of rows fit 31 bits.
//!
//! This is the form of versions 4 and 5 of the protocol, since Cassandra 3.0. Nodes also accept
//! states of version 3, which have another form; this module does not recognize them.

/// Returns `true` if nodes can read `state`. Nodes may also be able to read a state for which this
/// returns `false`, if it is of another version.
#[must_use]
pub fn is_readable(state: &[u8]) -> bool {
    let mut rest = state;
    is_passed(&mut rest).is_some() && rest.is_empty()
}

/// Skips a state at the start of `rest`; `None` if there is none.
fn is_passed(rest: &mut &[u8]) -> Option<()> {
    for _ in 0..2 {
        let len = usize::try_from(number(rest)?).ok()?;
        *rest = rest.get(len..)?;
    }
    for _ in 0..2 {
        i32::try_from(number(rest)?).ok()?;
    }
    Some(())
}

/// Takes a number from the start of `rest`.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let (&first, behind) = rest.split_first()?;
    let more = first.leading_ones();
    let (bytes, behind) = behind.split_at_checked(more as usize)?;
    // After eight 1 bits the first byte has no bit left for the number.
    let highest = u64::from(first & 0xff_u8.checked_shr(more).unwrap_or(0));
    let value = bytes
        .iter()
        .fold(highest, |value, byte| value << 8 | u64::from(*byte));
    *rest = behind;
    (more == extra_bytes(value)).then_some(value)
}

/// Returns the number of bytes that a number takes besides the first one.
fn extra_bytes(value: u64) -> u32 {
    let bits = (u64::BITS - value.leading_zeros()).max(1);
    // Each further byte costs one bit of the first one, up to the last, which costs none.
    ((bits - 1) / 7).min(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<(u64, usize)> {
        let mut rest = bytes;
        number(&mut rest).map(|value| (value, rest.len()))
    }

    #[test]
    fn numbers_take_as_few_bytes_as_they_can() {
        for (bytes, value) in [
            (&b"\0"[..], 0),
            (b"\x7f", 127),
            (b"\x80\x80", 128),
            (b"\xbf\xff", (1 << 14) - 1),
            (b"\xc0\x40\0", 1 << 14),
            (b"\xf0\x7f\xff\xff\xff", i32::MAX as u64),
            (b"\xfe\x80\0\0\0\0\0\0", 1 << 55),
            (b"\xff\x01\0\0\0\0\0\0\0", 1 << 56),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", u64::MAX),
        ] {
            assert_eq!(read(bytes), Some((value, 0)), "{bytes:x?}");
            assert_eq!(read(&bytes[..bytes.len() - 1]), None, "{bytes:x?}");
            assert_eq!(read(&[bytes, &[7]].concat()), Some((value, 1)));
        }
        for longer in [
            &b"\x80\0"[..],
            b"\x80\x7f",
            b"\xc0\0\x80",
            b"\xff\0\0\0\0\0\0\0\x01",
        ] {
            assert_eq!(read(longer), None, "{longer:x?}");
        }
    }

    #[test]
    fn what_nodes_write_is_readable() {
        let long = format!("80c9{}3400f07ffffff800", "78".repeat(200));
        for state in [
            // Of one partition, of several, of a table whose rows have no clustering.
            "00080006726f77203036f07ffffff8f07ffffff8",
            "0400000001080006726f7720303617f07ffffff8",
            "0400000000080006726f77203031f07ffffff803",
            &long,
        ] {
            let bytes = (0..state.len()).step_by(2).map(|at| &state[at..at + 2]);
            let bytes = bytes.map(|digits| u8::from_str_radix(digits, 16).unwrap());
            assert!(is_readable(&bytes.collect::<Vec<_>>()), "{state}");
        }
    }

    #[test]
    fn states_have_four_parts_and_nothing_else() {
        let state = b"\x04\0\0\0\x32\x0a\0\x04\0\0\0\x06\0\x01\x02\x03\xf0\x7f\xff\xff\xf8\xf0\x7f\xff\xff\xff";
        assert!(is_readable(state));
        assert!(is_readable(b"\0\0\0\0"));
        for len in 0..state.len() {
            assert!(!is_readable(&state[..len]), "{len}");
        }
        assert!(!is_readable(&[&state[..], b"\0"].concat()));
        for other in [
            &b""[..],
            b"junk",
            // More rows than possible.
            b"\0\0\xf0\x80\0\0\0\0",
            b"\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            // A length beyond the end.
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0",
            b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0",
            // A state of version 3.
            b"\0\x01a\0\x01b\0\0\0\x05\0\0\0\x05",
        ] {
            assert!(!is_readable(other), "{other:x?}");
        }
    }
}
