//! Numbers in values, by Redis's rules.
//!
//! Integers are strict 64-bit decimals. Fractions are decimals, kept exactly:
//!
//! | part | meaning |
//! |---|---|
//! | sign | negative or not |
//! | digits | decimal digits, the most significant first, none of them leading zeros |
//! | exponent | the power of ten of the last digit |
//!
//! 1. A sum is the exact decimal sum, rounded half away from zero to 17 decimals, trailing zeros
//!    dropped. (Redis adds in the processor's 80-bit format, which agrees wherever that format is
//!    exact enough to print 17 decimals.)
//! 2. The range is that of the 80-bit format: magnitudes of 1.19e4932 and above are infinite,
//!    those below 3.6e-4951 are out of range.

use crate::model::op_error::OpError;

/// Parses a signed 64-bit decimal as Redis does: no sign `+`, no leading zero, no blanks.
#[must_use]
pub fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    if negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// Parses the cursor of a scan as C's `strtoul` does: also accepts an empty text, and any sign.
#[must_use]
pub fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        [] => return Some(0),
        _ => (false, text),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match negative {
        true => number.wrapping_neg(),
        false => number,
    })
}

/// A number as [`parse_decimal`] reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// A finite number; see the module's table.
    Finite {
        /// `true` if the number is below zero.
        negative: bool,
        /// Its digits as numbers 0 to 9; empty for zero.
        digits: Vec<u8>,
        /// The power of ten of the last digit.
        exponent: i32,
    },
    /// An infinity.
    Infinite,
}

/// The longest text that can be a fraction, in bytes: one less than Redis's `MAX_LONG_DOUBLE_CHARS`. The greatest
/// sums have 4,933 digits before the point.
const MAX_TEXT: usize = 5 * 1024 - 1;
/// The most decimals that a sum has.
const DECIMALS: i32 = 17;
/// A finite number is below 1.19e4932: it has at most this many digits before the point.
const MAX_MAGNITUDE: i32 = 4933;
/// A number above zero has its first digit at this power of ten or a greater one.
const MIN_MAGNITUDE: i32 = -4951;
/// The first digits of the greatest finite number, for the numbers that come near it.
const GREATEST: [u8; 12] = [1, 1, 8, 9, 7, 3, 1, 4, 9, 5, 3, 5];

/// Parses a decimal fraction as Redis does: an optional sign, digits with an optional point, an
/// optional exponent; or an infinity by name. No blanks, nothing behind it, no NaN, nothing out of
/// range.
#[must_use]
pub fn parse_decimal(text: &[u8]) -> Option<Decimal> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        return Some(Decimal::Infinite);
    }
    let mantissa_end = text
        .iter()
        .position(|b| matches!(b, b'e' | b'E'))
        .unwrap_or(text.len());
    let (digits, decimals) = parse_mantissa(&text[..mantissa_end])?;
    let power = match text.get(mantissa_end + 1..) {
        Some(power) => parse_power(power)?,
        None => 0,
    };
    if digits.is_empty() {
        return Some(Decimal::Finite {
            negative,
            digits,
            exponent: 0,
        });
    }
    let exponent = power - decimals;
    let magnitude = exponent + digits.len() as i32;
    let in_range = (MIN_MAGNITUDE..=MAX_MAGNITUDE).contains(&magnitude)
        && !(magnitude == MAX_MAGNITUDE && overflows(&digits));
    in_range.then_some(Decimal::Finite {
        negative,
        digits,
        exponent,
    })
}

/// Returns the digits of a number without sign and exponent, leading zeros dropped, and how many of
/// them stand behind the point.
fn parse_mantissa(text: &[u8]) -> Option<(Vec<u8>, i32)> {
    let point = text.iter().position(|&b| b == b'.');
    let decimals = point.map_or(0, |at| text.len() - at - 1);
    let all = text.len() - usize::from(point.is_some());
    if all == 0 {
        return None;
    }
    let mut digits = Vec::with_capacity(all);
    for (at, &byte) in text.iter().enumerate() {
        if Some(at) == point {
            continue;
        }
        if !byte.is_ascii_digit() {
            return None;
        }
        if byte != b'0' || !digits.is_empty() {
            digits.push(byte - b'0');
        }
    }
    Some((digits, decimals as i32))
}

/// Parses the number behind `e`. A number too great for any use is cut to one that is still too
/// great.
fn parse_power(text: &[u8]) -> Option<i32> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut power = 0i32;
    for &digit in digits {
        power = (power * 10 + i32::from(digit - b'0')).min(100_000);
    }
    Some(if negative { -power } else { power })
}

/// Returns `true` if digits that start at the greatest power of ten are beyond the greatest finite
/// number.
fn overflows(digits: &[u8]) -> bool {
    let shown = digits.len().min(GREATEST.len());
    digits[..shown] > GREATEST[..shown]
}

/// Returns the sum of two fractions, as text. Both are texts that [`parse_decimal`] accepts.
///
/// # Errors
/// Returns [`OpError::NotNumber`] if either is not a number, [`OpError::NotFinite`] if the sum, or
/// one of them, is not finite.
pub fn add_decimal(value: &[u8], delta: &[u8]) -> Result<Vec<u8>, OpError> {
    let value = parse_decimal(value).ok_or(OpError::NotNumber)?;
    let delta = parse_decimal(delta).ok_or(OpError::NotNumber)?;
    let (
        Decimal::Finite {
            negative: na,
            digits: da,
            exponent: ea,
        },
        Decimal::Finite {
            negative: nb,
            digits: db,
            exponent: eb,
        },
    ) = (value, delta)
    else {
        return Err(OpError::NotFinite);
    };
    // From here on numbers are columns of digits, the least significant first, which start at the
    // same power of ten; one more decimal than is kept decides how to round.
    let low = ea.min(eb).min(-DECIMALS - 1);
    let a = columns(&da, ea, low);
    let b = columns(&db, eb, low);
    let (negative, mut sum) = match (na == nb, at_least(&a, &b)) {
        (true, _) => (na, plus(&a, &b)),
        (false, true) => (na, minus(&a, &b)),
        (false, false) => (nb, minus(&b, &a)),
    };
    round(&mut sum, (-DECIMALS - low) as usize);
    let first = sum.iter().rposition(|&digit| digit != 0);
    let before_point = first.map_or(0, |at| at as i32 + 1 - DECIMALS);
    if before_point > MAX_MAGNITUDE
        || before_point == MAX_MAGNITUDE
            && overflows(
                &sum.iter()
                    .rev()
                    .copied()
                    .skip_while(|&d| d == 0)
                    .collect::<Vec<_>>(),
            )
    {
        return Err(OpError::NotFinite);
    }
    Ok(print(negative && first.is_some(), &sum))
}

fn columns(digits: &[u8], exponent: i32, low: i32) -> Vec<u8> {
    let mut columns = vec![0; (exponent.max(low) - low) as usize];
    columns.extend(digits.iter().rev());
    columns
}

fn at_least(a: &[u8], b: &[u8]) -> bool {
    let digit = |of: &[u8], at: usize| of.get(at).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .rev()
        .map(|at| digit(a, at).cmp(&digit(b, at)))
        .find(|order| order.is_ne())
        .is_none_or(std::cmp::Ordering::is_gt)
}

fn plus(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut sum = Vec::with_capacity(a.len().max(b.len()) + 1);
    for at in 0..a.len().max(b.len()) {
        let digit = a.get(at).unwrap_or(&0) + b.get(at).unwrap_or(&0) + carry;
        sum.push(digit % 10);
        carry = digit / 10;
    }
    sum.push(carry);
    sum
}

/// Returns `a - b`, where `a` is at least `b`.
fn minus(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let mut difference = Vec::with_capacity(a.len());
    for (at, &digit) in a.iter().enumerate() {
        let take = b.get(at).unwrap_or(&0) + borrow;
        borrow = u8::from(digit < take);
        difference.push(digit + 10 * borrow - take);
    }
    difference
}

/// Drops the lowest `drop` columns, rounding half away from zero.
fn round(columns: &mut Vec<u8>, drop: usize) {
    let up = columns.get(drop - 1).is_some_and(|&digit| digit >= 5);
    columns.drain(..drop.min(columns.len()));
    if up {
        *columns = plus(columns, &[1]);
    }
}

/// Returns the text of a number whose columns start at the last of [`DECIMALS`] decimals.
fn print(negative: bool, columns: &[u8]) -> Vec<u8> {
    let decimals = DECIMALS as usize;
    let digit = |at: usize| b'0' + columns.get(at).copied().unwrap_or(0);
    let top = columns
        .iter()
        .rposition(|&digit| digit != 0)
        .unwrap_or(0)
        .max(decimals);
    let mut text = Vec::with_capacity(top + 3);
    if negative {
        text.push(b'-');
    }
    text.extend((decimals..=top).rev().map(digit));
    if let Some(last) = columns.iter().take(decimals).position(|&digit| digit != 0) {
        text.push(b'.');
        text.extend((last..decimals).rev().map(digit));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strict() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("18446744073709551616", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
        ] {
            assert_eq!(parse_int(text.as_bytes()), value, "{text:?}");
        }
    }

    fn sum(value: &str, delta: &str) -> Result<String, OpError> {
        add_decimal(value.as_bytes(), delta.as_bytes()).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn decimals_add_exactly() {
        for (value, delta, expected) in [
            ("0", "0", "0"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1.5", "-0.5"),
            ("-1", "1", "0"),
            ("-0", "-0", "0"),
            ("3", "1.00000000000000001", "4.00000000000000001"),
            ("0", "1e-17", "0.00000000000000001"),
            ("0", "4e-18", "0"),
            ("0", "-5e-18", "-0.00000000000000001"),
            ("0.99999999999999999", "0.000000000000000005", "1"),
            ("1e20", ".5", "100000000000000000000.5"),
            ("+7.", "-.25", "6.75"),
            ("1e-4950", "1", "1"),
        ] {
            assert_eq!(
                sum(value, delta).as_deref(),
                Ok(expected),
                "{value} + {delta}"
            );
            assert_eq!(
                sum(delta, value).as_deref(),
                Ok(expected),
                "{delta} + {value}"
            );
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let long = format!("1.{}", "0".repeat(MAX_TEXT - 1));
        for text in [
            "", " 1", "1 ", "a", "1a", "nan", "-nan", "1e", "1e+", ".", "--1", "1.2.3", "1e5000",
            "1e-5000", &long,
        ] {
            assert_eq!(sum(text, "1"), Err(OpError::NotNumber), "{text:?}");
            assert_eq!(sum("1", text), Err(OpError::NotNumber), "{text:?}");
        }
    }

    #[test]
    fn infinities_are_numbers_that_cannot_be_stored() {
        for text in ["inf", "-INF", "+Infinity"] {
            assert_eq!(sum(text, "1"), Err(OpError::NotFinite));
        }
        assert_eq!(sum("1.1e4932", "1.1e4932"), Err(OpError::NotFinite));
        assert_eq!(sum("1.1e4932", "1").unwrap().len(), 4933);
    }

    #[test]
    fn a_sum_can_be_added_to_again() {
        let once = sum("0", "-1e308").unwrap();
        assert_eq!(once, format!("-1{}", "0".repeat(308)));
        assert_eq!(sum(&once, "-1e308"), Ok(format!("-2{}", "0".repeat(308))));
        let greatest = sum("1.1e4932", "0.00000000000000001").unwrap();
        assert!(greatest.len() <= MAX_TEXT);
        assert_eq!(
            sum(&greatest, "-1.1e4932").as_deref(),
            Ok("0.00000000000000001")
        );
        let fraction = format!("1.{}", "0".repeat(MAX_TEXT - 2));
        assert_eq!(sum(&fraction, "1").as_deref(), Ok("2"));
    }

    #[test]
    fn sums_agree_with_integers() {
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..2000 {
            let mut next = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random as i64) >> (random % 60)
            };
            let (a, b) = (i128::from(next()), i128::from(next()));
            assert_eq!(sum(&a.to_string(), &b.to_string()), Ok((a + b).to_string()));
        }
    }
}
