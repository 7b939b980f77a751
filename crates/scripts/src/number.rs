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
    fn numbers_that_do_not_fit_become_the_smallest() {
        assert_eq!(truncate(-1.9), -1);
        for value in [1e20, -1e20, f64::NAN, f64::INFINITY] {
            assert_eq!(truncate(value), i64::MIN);
        }
    }
}
