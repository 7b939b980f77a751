//! Numbers with exponents, written out.

use datafusion::common::{Result, plan_datafusion_err};

/// The most digits of a decimal.
const MOST_DIGITS: usize = 76;

/// A number in the form that DataFusion reads.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// It has no exponent.
    Same,
    /// Digits with a point.
    Decimal(String),
    /// It has too many digits for a decimal.
    Double,
}

/// Returns a number without an exponent.
///
/// # Errors
/// Returns an error if it exceeds the range of doubles.
pub(super) fn written_out(text: &str) -> Result<Written> {
    let Some((number, exponent)) = text.split_once(['e', 'E']) else {
        return Ok(Written::Same);
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all = whole.chars().chain(fraction.chars());
    let digits: String = all.filter(|digit| *digit != '_').collect();
    let Ok(exponent) = exponent.replace('_', "").parse::<i64>() else {
        return Ok(Written::Same);
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Ok(Written::Same);
    }
    let behind = fraction.chars().filter(|digit| *digit != '_').count();
    // The number of digits before the point.
    let point = i64::try_from(digits.len() - behind).unwrap_or(i64::MAX);
    let point = point.saturating_add(exponent);
    let last = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let shown = point.max(last).saturating_sub(point.min(0));
    if usize::try_from(shown).is_ok_and(|shown| shown <= MOST_DIGITS) {
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
        let digits = format!("{}{digits}{}", zeros(-point), zeros(point - last));
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
        return Ok(Written::Decimal(format!("0{whole}.{fraction}")));
    }
    let value: f64 = format!(
        "{digits}e{}",
        exponent.saturating_sub(i64::try_from(behind).unwrap_or(0))
    )
    .parse()
    .map_err(|_| plan_datafusion_err!("{text} is no number"))?;
    let zero = digits.bytes().all(|digit| digit == b'0');
    if !value.is_finite() || (value == 0.0 && !zero) {
        return Err(plan_datafusion_err!(
            "\"{text}\" is out of range for type double precision"
        ));
    }
    Ok(Written::Double)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_move_the_point() {
        for (text, expected) in [
            ("1e3", "01000."),
            ("1.5e1", "015."),
            ("1.25e1", "012.5"),
            ("15E-3", "0.015"),
            ("1.5e-3", "0.0015"),
            ("1e0", "01."),
            ("5e15", "05000000000000000."),
            ("1_0e-1", "01.0"),
        ] {
            let expected = Written::Decimal(expected.to_owned());
            assert_eq!(written_out(text).unwrap(), expected, "{text}");
        }
        assert_eq!(written_out("0.5").unwrap(), Written::Same);
        assert_eq!(written_out("1e300").unwrap(), Written::Double);
        assert_eq!(written_out("1e-300").unwrap(), Written::Double);
        for text in ["1e400", "1e-400", "1e9999999999"] {
            let error = written_out(text).unwrap_err().to_string();
            assert!(error.contains("out of range"), "{error}");
        }
    }
}
