//! Numbers as text, in the form of C's `printf` with `%g`.

/// Appends a number with at most `precision` significant digits, as `%.{precision}g` does.
pub(crate) fn write_general(out: &mut Vec<u8>, value: f64, precision: usize) {
    if value.fract() == 0.0 && value.abs() < 1e14 && !(value == 0.0 && value.is_sign_negative()) {
        let limit = 10f64.powi(precision.min(14) as i32);
        if value.abs() < limit {
            out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
            return;
        }
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if !value.is_finite() {
        out.extend_from_slice(if value.is_nan() { b"nan" } else { b"inf" });
        return;
    }
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, value.abs());
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent's digits");
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(without_zeros(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    } else {
        let decimals = (precision as i32 - 1 - exponent) as usize;
        let fixed = format!("{:.*}", decimals, value.abs());
        out.extend_from_slice(without_zeros(&fixed).as_bytes());
    }
}

/// Returns a decimal fraction without the zeros at its end.
fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// Reads the longest number at the beginning of a text, as C's `strtod` does. Returns it and its
/// length.
pub(crate) fn read_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = &text[sign..];
    let starts_with = |word: &[u8]| {
        digits
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let (value, len) = if starts_with(b"infinity") {
        (f64::INFINITY, 8)
    } else if starts_with(b"inf") {
        (f64::INFINITY, 3)
    } else if starts_with(b"nan") {
        (f64::NAN, 3)
    } else if starts_with(b"0x")
        && let Some(number) = read_hexadecimal(digits)
    {
        number
    } else {
        read_decimal(digits)?
    };
    let negative = text.first() == Some(&b'-');
    Some((if negative { -value } else { value }, sign + len))
}

/// Returns the number of digits at the beginning of a text.
fn count_digits(text: &[u8], radix: u32) -> usize {
    let digits = text.iter();
    digits
        .take_while(|&&byte| char::from(byte).is_digit(radix))
        .count()
}

/// Returns the length of an exponent behind one of two letters; 0 if there is none.
fn exponent_len(text: &[u8], letters: [u8; 2]) -> usize {
    let Some((letter, rest)) = text.split_first() else {
        return 0;
    };
    let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
    match count_digits(&rest[sign..], 10) {
        digits if digits > 0 && letters.contains(letter) => 1 + sign + digits,
        _ => 0,
    }
}

fn read_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let whole = count_digits(text, 10);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let fraction = count_digits(&text[len + 1..], 10);
        if whole + fraction > 0 {
            len += 1 + fraction;
        }
    }
    if len == 0 {
        return None;
    }
    len += exponent_len(&text[len..], [b'e', b'E']);
    let value = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some((value, len))
}

fn read_hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let whole = count_digits(&text[2..], 16);
    let mut len = 2 + whole;
    let mut fraction = 0;
    if text.get(len) == Some(&b'.') {
        fraction = count_digits(&text[len + 1..], 16);
        len += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    let mut value = 0.0;
    for &byte in text[2..len].iter().filter(|&&byte| byte != b'.') {
        value = value * 16.0 + f64::from(char::from(byte).to_digit(16)?);
    }
    let exponent = exponent_len(&text[len..], [b'p', b'P']);
    let power: i32 = match exponent {
        0 => 0,
        _ => std::str::from_utf8(&text[len + 1..len + exponent])
            .ok()?
            .parse()
            .unwrap_or(i32::MAX),
    };
    let scaled = value * 2f64.powi(power.saturating_sub(4 * fraction as i32));
    Some((scaled, len + exponent))
}

/// Returns a number as C casts it: without its fraction, and the smallest integer for all that do
/// not fit.
pub(crate) fn truncate(value: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        let table: [(f64, usize, &str); 16] = [
            (0.1, 17, "0.10000000000000001"),
            (1e15, 17, "1000000000000000"),
            (1e17, 17, "1e+17"),
            (-0.0, 17, "-0"),
            (9_007_199_254_740_993.0, 17, "9007199254740992"),
            (12_345_678_901_234_567_890.0, 17, "1.2345678901234567e+19"),
            (1e100, 17, "1e+100"),
            (f64::NEG_INFINITY, 17, "-inf"),
            (f64::NAN, 17, "nan"),
            (3.000_000_000_1, 17, "3.0000000001"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (99_999.5, 5, "1e+05"),
            (123_456.0, 3, "1.23e+05"),
            (42.0, 14, "42"),
        ];
        for (value, precision, text) in table {
            let mut out = Vec::new();
            write_general(&mut out, value, precision);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn the_longest_number_is_read() {
        let table: [(&str, Option<(f64, usize)>); 13] = [
            ("12,", Some((12.0, 2))),
            ("-1.5e3x", Some((-1500.0, 6))),
            ("1e", Some((1.0, 1))),
            ("1e+", Some((1.0, 1))),
            ("5.", Some((5.0, 2))),
            ("-.5", Some((-0.5, 3))),
            ("0x10", Some((16.0, 4))),
            ("0x1.8p1", Some((3.0, 7))),
            ("0x", Some((0.0, 1))),
            ("-Infinity", Some((f64::NEG_INFINITY, 9))),
            ("infinit", Some((f64::INFINITY, 3))),
            ("1e400", Some((f64::INFINITY, 5))),
            ("--1", None),
        ];
        for (text, expected) in table {
            assert_eq!(read_number(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_become_the_smallest() {
        assert_eq!(truncate(-1.9), -1);
        for value in [1e20, -1e20, f64::NAN, f64::INFINITY] {
            assert_eq!(truncate(value), i64::MIN);
        }
    }
}
