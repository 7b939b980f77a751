//! PostgreSQL's binary form of `numeric`.
//!
//! | bytes | content |
//! |---|---|
//! | 2 | how many digits to base 10,000 follow |
//! | 2 | the weight of the first one: a power of 10,000 |
//! | 2 | 0 for positive numbers, 0x4000 for negative ones, 0xC000 for NaN |
//! | 2 | how many decimal digits are shown behind the point |
//! | 2 each | the digits |

use bytes::{BufMut, BytesMut};

const BASE: u128 = 10_000;
const NEGATIVE: u16 = 0x4000;

/// Writes a decimal: an unscaled value and its scale.
pub(crate) fn write(unscaled: i128, scale: i8, into: &mut BytesMut) {
    let shown = u16::from(scale.max(0).unsigned_abs());
    let mut digits = Vec::new();
    // The point lies between digits: those behind it are filled up to groups of four.
    let groups_behind = shown.div_ceil(4);
    let fill = u32::from(groups_behind * 4 - shown);
    let magnitude = unscaled.unsigned_abs();
    let (mut rest, low) = shifted(magnitude, fill);
    digits.push(low);
    while rest > 0 {
        digits.push(digit(rest % BASE));
        rest /= BASE;
    }
    let mut weight = i32::try_from(digits.len()).unwrap_or(i32::MAX) - 1 - i32::from(groups_behind);
    digits.reverse();
    // A scale below zero is zeros before the point.
    if scale < 0 {
        let zeros = u32::from(scale.unsigned_abs());
        write_text_digits(magnitude, zeros, unscaled < 0, into);
        return;
    }
    let leading = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..leading);
    weight -= i32::try_from(leading).unwrap_or(0);
    put(&digits, weight, unscaled < 0, shown, into);
}

/// Returns the value times ten to the power of less than four, without its lowest digit to base 10,000, and
/// that digit.
fn shifted(magnitude: u128, fill: u32) -> (u128, u16) {
    let factor = 10u128.pow(fill);
    // The last digits to base 10 that fill one to base 10,000 with the zeros behind.
    let taken = 10u128.pow(4 - fill);
    (magnitude / taken, digit(magnitude % taken * factor))
}

/// Writes a number with so many zeros behind it.
fn write_text_digits(magnitude: u128, zeros: u32, negative: bool, into: &mut BytesMut) {
    let mut text = magnitude.to_string();
    text.extend(std::iter::repeat_n('0', zeros as usize));
    let first = text.len() % 4;
    let mut digits = Vec::new();
    if first > 0 {
        digits.push(text[..first].parse().unwrap_or(0));
    }
    let groups = text.as_bytes()[first..].chunks(4);
    digits.extend(groups.map(|group| {
        group
            .iter()
            .fold(0u16, |all, digit| all * 10 + u16::from(digit - b'0'))
    }));
    let weight = i32::try_from(digits.len()).unwrap_or(i32::MAX) - 1;
    put(&digits, weight, negative, 0, into);
}

fn put(digits: &[u16], weight: i32, negative: bool, shown: u16, into: &mut BytesMut) {
    let end = digits
        .iter()
        .rposition(|digit| *digit != 0)
        .map_or(0, |last| last + 1);
    let digits = &digits[..end];
    let weight = if digits.is_empty() { 0 } else { weight };
    into.put_u16(u16::try_from(digits.len()).unwrap_or(u16::MAX));
    into.put_i16(i16::try_from(weight).unwrap_or(i16::MAX));
    into.put_u16(if negative { NEGATIVE } else { 0 });
    into.put_u16(shown);
    for digit in digits {
        into.put_u16(*digit);
    }
}

fn digit(value: u128) -> u16 {
    u16::try_from(value).expect("it is below the base")
}

/// Reads a number as text, as `-12.05`; `None` if the bytes are no number.
pub(crate) fn read(bytes: &[u8]) -> Option<String> {
    let mut words = bytes
        .chunks_exact(2)
        .map(|two| u16::from_be_bytes([two[0], two[1]]));
    let (count, weight) = (words.next()?, words.next()?);
    let (sign, shown) = (words.next()?, usize::from(words.next()?));
    let digits: Vec<u16> = words.collect();
    let weight = i32::from(weight.cast_signed());
    let sane = digits.len() == usize::from(count)
        && digits.iter().all(|digit| u128::from(*digit) < BASE)
        && (-16..=16).contains(&weight)
        && shown <= 64
        && matches!(sign, 0 | NEGATIVE);
    if !sane || !bytes.len().is_multiple_of(2) {
        return None;
    }
    let group = |place: i32| {
        let found = usize::try_from(weight - place).ok();
        found.and_then(|at| digits.get(at)).copied().unwrap_or(0)
    };
    let mut text = if sign == NEGATIVE { "-" } else { "" }.to_owned();
    let whole: String = (0..=weight.max(0))
        .rev()
        .map(|p| format!("{:04}", group(p)))
        .collect();
    let whole = whole.trim_start_matches('0');
    text.push_str(if whole.is_empty() { "0" } else { whole });
    if shown > 0 {
        let groups = i32::try_from(shown.div_ceil(4)).ok()?;
        let behind: String = (1..=groups).map(|p| format!("{:04}", group(-p))).collect();
        text.push('.');
        text.push_str(&behind[..shown]);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unscaled: i128, scale: i8, words: &[u16], text: &str) {
        let mut bytes = BytesMut::new();
        write(unscaled, scale, &mut bytes);
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(&bytes[..], expected, "{text}");
        assert_eq!(read(&bytes).unwrap(), text);
    }

    #[test]
    fn decimals_have_postgresqls_form() {
        // As PostgreSQL's numeric_send gives them.
        check(0, 0, &[0, 0, 0, 0], "0");
        check(0, 2, &[0, 0, 0, 2], "0.00");
        check(1, 0, &[1, 0, 0, 0, 1], "1");
        check(10_000, 0, &[1, 1, 0, 0, 1], "10000");
        check(12_345, 0, &[2, 1, 0, 0, 1, 2_345], "12345");
        check(-1_205, 2, &[2, 0, NEGATIVE, 2, 12, 500], "-12.05");
        check(5, 2, &[1, 0xffff, 0, 2, 500], "0.05");
        check(1, 5, &[1, 0xfffe, 0, 5, 1_000], "0.00001");
        check(123_456_789, 4, &[3, 1, 0, 4, 1, 2_345, 6_789], "12345.6789");
        check(7, -5, &[1, 1, 0, 0, 70], "700000");
    }

    #[test]
    fn the_widest_are_right() {
        for (value, scale) in [(i128::MAX, 0), (i128::MIN, 38), (i128::MAX, 37), (-1, 38)] {
            let mut bytes = BytesMut::new();
            write(value, scale, &mut bytes);
            let text = read(&bytes).unwrap();
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            let digits = digits.trim_start_matches('0');
            assert_eq!(digits, value.unsigned_abs().to_string());
            assert_eq!(text.starts_with('-'), value < 0);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bytes in [
            &[][..],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            &[0, 1, 0x7f, 0xff, 0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 0, 0xc0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
