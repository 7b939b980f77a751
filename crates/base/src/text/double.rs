//! Doubles as texts, by the rules of C's `strtod` and `printf`.
//!
//! | text | meaning |
//! |---|---|
//! | `12` `.5` `5.` `1e3` | decimal digits, with a point and an exponent if they have one |
//! | `0x1f` `0x.8p-1` | hexadecimal digits, with a binary exponent |
//! | `inf` `infinity` | infinity, in any case |
//! | `nan` | not a number, in any case |
//!
//! Each may have a sign.

use std::io::Write;

/// The beginning of a text that is a number.
struct ScannedDouble {
    value: f64,
    /// Its length in bytes.
    len: usize,
    /// `false` if the number is too large, or so small that it is taken for zero.
    in_range: bool,
}

/// Parses a double as Redis parses scores: the whole text must be a number in the range of doubles, or infinite.
#[must_use]
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let scanned = scan(text)?;
    let is_number = scanned.len == text.len() && scanned.in_range && !scanned.value.is_nan();
    is_number.then_some(scanned.value)
}

/// Parses a double as Redis parses bounds of scores: blanks may precede it, a number out of range is infinite or
/// zero, a zero byte ends the text, and no text is zero.
#[must_use]
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let scanned = scan(&text[start..])?;
    let is_number = scanned.len == text.len() - start && !scanned.value.is_nan();
    is_number.then_some(scanned.value)
}

fn scan(text: &[u8]) -> Option<ScannedDouble> {
    let (sign, unsigned) = match text {
        [b'-', rest @ ..] => (-1.0, rest),
        [b'+', rest @ ..] => (1.0, rest),
        _ => (1.0, text),
    };
    let begins = |word: &str| {
        let beginning = unsigned.get(..word.len());
        beginning.is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()))
    };
    let exact = |value, len| ScannedDouble {
        value,
        len,
        in_range: true,
    };
    let mut scanned = match unsigned {
        _ if begins("infinity") => exact(f64::INFINITY, 8),
        _ if begins("inf") => exact(f64::INFINITY, 3),
        _ if begins("nan") => exact(f64::NAN, 3),
        [b'0', b'x' | b'X', rest @ ..] => match scan_hexadecimal(rest) {
            Some(scanned) => ScannedDouble {
                len: scanned.len + 2,
                ..scanned
            },
            None => exact(0.0, 1),
        },
        _ => scan_decimal(unsigned)?,
    };
    scanned.value *= sign;
    scanned.len += text.len() - unsigned.len();
    Some(scanned)
}

/// The lengths of a number's parts, and its exponent.
struct NumberParts {
    /// The length of the digits and the point.
    mantissa: usize,
    /// The length with the exponent.
    whole: usize,
    exponent: i32,
    /// `true` if a digit is not zero.
    is_some: bool,
}

/// Finds the parts of a number: digits with a point among them, and an exponent behind this mark.
fn parts(text: &[u8], is_digit: fn(&u8) -> bool, mark: u8) -> Option<NumberParts> {
    let (mut mantissa, mut digits, mut points, mut is_some) = (0, 0, 0, false);
    for byte in text {
        match byte {
            b'.' if points == 0 => points = 1,
            byte if is_digit(byte) => {
                digits += 1;
                is_some |= *byte != b'0';
            }
            _ => break,
        }
        mantissa += 1;
    }
    if digits == 0 {
        return None;
    }
    let (mut whole, mut exponent) = (mantissa, 0i32);
    if text.get(mantissa).map(u8::to_ascii_lowercase) == Some(mark) {
        let signed = usize::from(matches!(text.get(mantissa + 1), Some(b'+' | b'-')));
        let start = mantissa + 1 + signed;
        let numbers = text[start.min(text.len())..].iter();
        let count = numbers.take_while(|byte| byte.is_ascii_digit()).count();
        if count > 0 {
            whole = start + count;
            for byte in &text[start..whole] {
                exponent = exponent.saturating_mul(10);
                exponent = exponent.saturating_add(i32::from(byte - b'0'));
            }
            if text[mantissa + 1] == b'-' {
                exponent = -exponent;
            }
        }
    }
    Some(NumberParts {
        mantissa,
        whole,
        exponent,
        is_some,
    })
}

fn scan_decimal(text: &[u8]) -> Option<ScannedDouble> {
    let parts = parts(text, u8::is_ascii_digit, b'e')?;
    let number = std::str::from_utf8(&text[..parts.whole]).ok()?;
    let value: f64 = number.parse().ok()?;
    Some(ScannedDouble {
        value,
        len: parts.whole,
        in_range: value.is_finite() && (value != 0.0 || !parts.is_some),
    })
}

fn scan_hexadecimal(text: &[u8]) -> Option<ScannedDouble> {
    let parts = parts(text, u8::is_ascii_hexdigit, b'p')?;
    // The first 15 digits that count have more bits than a double; of the rest only their number matters, and
    // whether there is one that is not zero.
    let (mut bits, mut shift, mut is_behind_point) = (0u64, 0i32, false);
    for byte in &text[..parts.mantissa] {
        let Some(digit) = char::from(*byte).to_digit(16) else {
            is_behind_point = true;
            continue;
        };
        if bits >> 60 == 0 {
            bits = bits << 4 | u64::from(digit);
            shift -= 4 * i32::from(is_behind_point);
        } else {
            bits |= u64::from(digit != 0);
            shift += 4 * i32::from(!is_behind_point);
        }
    }
    let exponent = shift.saturating_add(parts.exponent).clamp(-5000, 5000);
    // In two steps: a power of two may be out of range where the product is not.
    let half = exponent / 2;
    let value = bits as f64 * 2f64.powi(half) * 2f64.powi(exponent - half);
    Some(ScannedDouble {
        value,
        len: parts.whole,
        in_range: value.is_finite() && (value != 0.0 || !parts.is_some),
    })
}

/// The text of a double.
#[derive(Clone, Copy, Debug)]
pub struct DoubleText {
    bytes: [u8; DoubleText::LONGEST],
    len: usize,
}

impl DoubleText {
    /// A double of 17 digits takes a sign, a point, and an exponent of five bytes besides.
    const LONGEST: usize = 32;

    fn new() -> DoubleText {
        DoubleText {
            bytes: [0; DoubleText::LONGEST],
            len: 0,
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        let mut rest = &mut self.bytes[self.len..];
        rest.write_fmt(text).expect("it has room for a double");
        self.len = DoubleText::LONGEST - rest.len();
    }

    fn push_digits(&mut self, digits: &[u8]) {
        self.bytes[self.len..self.len + digits.len()].copy_from_slice(digits);
        self.len += digits.len();
    }

    /// Returns the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the text of a double with at most 17 digits, as `printf` has it for `%.17g`.
#[must_use]
pub fn format_double(value: f64) -> DoubleText {
    let mut text = DoubleText::new();
    if value.is_nan() {
        text.push(format_args!("nan"));
        return text;
    }
    if value.is_infinite() {
        text.push(format_args!("{}", if value > 0.0 { "inf" } else { "-inf" }));
        return text;
    }
    if value.abs() < 1e17 && value.trunc() == value && (value != 0.0 || value.is_sign_positive()) {
        text.push(format_args!("{}", value as i64));
        return text;
    }
    let mut exact = DoubleText::new();
    exact.push(format_args!("{:.16e}", value.abs()));
    // The digits: one, a point, sixteen, then the exponent.
    let mut digits = [0; 17];
    digits[0] = exact.bytes[0];
    digits[1..].copy_from_slice(&exact.bytes[2..18]);
    let exponent = std::str::from_utf8(&exact.as_bytes()[19..]);
    let exponent: i32 = exponent.unwrap_or("0").parse().unwrap_or(0);
    let last = digits.iter().rposition(|digit| *digit != b'0');
    let digits = &digits[..last.unwrap_or(0) + 1];
    if value.is_sign_negative() {
        text.push_digits(b"-");
    }
    match exponent {
        -4..0 => {
            text.push_digits(b"0.");
            text.push_digits(&b"000"[..(-exponent - 1) as usize]);
            text.push_digits(digits);
        }
        0..17 => {
            let whole = exponent as usize + 1;
            let (before, behind) = digits.split_at(whole.min(digits.len()));
            text.push_digits(before);
            (before.len()..whole).for_each(|_| text.push_digits(b"0"));
            if !behind.is_empty() {
                text.push_digits(b".");
                text.push_digits(behind);
            }
        }
        _ => {
            text.push_digits(&digits[..1]);
            if digits.len() > 1 {
                text.push_digits(b".");
                text.push_digits(&digits[1..]);
            }
            let sign = if exponent < 0 { '-' } else { '+' };
            text.push(format_args!("e{sign}{:02}", exponent.abs()));
        }
    }
    text
}

/// Returns the text of a double without an exponent, with at most 17 digits behind the point.
#[must_use]
pub fn format_decimal(value: f64) -> String {
    let mut text = format!("{value:.17}");
    if text.contains('.') {
        let end = text.trim_end_matches('0').trim_end_matches('.').len();
        text.truncate(end);
    }
    match &text[..] {
        "-0" => "0".to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbers_as_in_redis() {
        for (text, expected) in [
            ("0x10", Some(16.0)),
            ("0x1p3", Some(8.0)),
            ("0x.8", Some(0.5)),
            ("0x1.8P-1", Some(0.75)),
            ("0x1fffffffffffff", Some(9_007_199_254_740_991.0)),
            ("0x123456789abcdef0123", Some(5.373003642731685e21)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p99999", None),
            ("0x1p-99999", None),
            ("0x", None),
            ("1e400", None),
            ("-1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("4.9e-324", Some(5e-324)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("+1", Some(1.0)),
            ("-1.5e2", Some(-150.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("nan", None),
            ("", None),
            (".", None),
            ("-", None),
            (" 1", None),
            ("1 ", None),
            ("1e", None),
            ("1e+", None),
            ("+-1", None),
            ("1_0", None),
            ("1f", None),
            ("infinit", None),
        ] {
            assert_eq!(parse_double(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn bounds_are_more_lenient() {
        for (text, expected) in [
            ("", Some(0.0)),
            ("\0x", Some(0.0)),
            (" ", None),
            (" 1.5", Some(1.5)),
            ("1.5 ", None),
            ("1\0x", Some(1.0)),
            ("1e400", Some(f64::INFINITY)),
            ("-1e400", Some(f64::NEG_INFINITY)),
            ("1e-400", Some(0.0)),
            ("nan", None),
            ("x", None),
        ] {
            assert_eq!(parse_bound(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn doubles_have_seventeen_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-17.5, "-17.5"),
            (3.15, "3.1499999999999999"),
            (0.1, "0.10000000000000001"),
            (0.0001, "0.0001"),
            (0.00001234, "1.234e-05"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (-4.9e-324, "-4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let text = format_double(value);
            assert_eq!(std::str::from_utf8(text.as_bytes()), Ok(expected));
        }
    }

    #[test]
    fn a_double_comes_back_from_its_text() {
        let mut bits = 5u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = match bits >> 40 & 1 {
                0 => f64::from_bits(bits),
                _ => (bits >> 44) as f64 / 1000.0,
            };
            if !value.is_nan() {
                let text = format_double(value);
                assert_eq!(parse_double(text.as_bytes()), Some(value));
            }
        }
    }

    #[test]
    fn decimals_have_no_exponent() {
        assert_eq!(
            format_decimal(13.361_389_338_970_184),
            "13.36138933897018433"
        );
        assert_eq!(format_decimal(-0.0), "0");
        assert_eq!(format_decimal(20.0), "20");
        assert_eq!(format_decimal(2.5), "2.5");
    }
}
