//! Scores of sorted sets: their order as bytes, and their text.

/// The number of bytes of a score in an element of a sorted set.
pub(crate) const SCORE_BYTES: usize = 8;

const SIGN: u64 = 1 << 63;
/// Redis shows so many significant digits.
const DIGITS: i32 = 17;

/// Returns bytes whose order is that of the scores; −0 becomes 0. The score is a number.
pub(crate) fn sortable(score: f64) -> [u8; SCORE_BYTES] {
    let bits = (score + 0.0).to_bits();
    let ordered = match bits & SIGN {
        0 => bits | SIGN,
        _ => !bits,
    };
    ordered.to_be_bytes()
}

/// Returns the score of an element of a sorted set, and its member. An element has at least the bytes of a score.
pub(crate) fn split(element: &[u8]) -> (f64, &[u8]) {
    let (score, member) = element
        .split_first_chunk::<SCORE_BYTES>()
        .unwrap_or((&[0; SCORE_BYTES], b""));
    let ordered = u64::from_be_bytes(*score);
    let bits = match ordered & SIGN {
        0 => !ordered,
        _ => ordered & !SIGN,
    };
    (f64::from_bits(bits), member)
}

/// Returns the text of a score, as `%.17g` of C has it.
pub(crate) fn text(score: f64) -> String {
    if !score.is_finite() {
        return score.to_string();
    }
    let scientific = format!("{score:.*e}", DIGITS as usize - 1);
    let (digits, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("it is a number");
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        return without_zeros(&format!("{score:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let digits = without_zeros(digits);
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// Returns a decimal fraction without the zeros at its end.
fn without_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// Returns the score with this text, which is a number.
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_order_of_scores() {
        let scores = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            0.0,
            f64::MIN_POSITIVE,
            1.0,
            1.5,
            f64::MAX,
            f64::INFINITY,
        ];
        assert!(scores.map(sortable).is_sorted());
        assert_eq!(sortable(-0.0), sortable(0.0));
        for score in scores {
            let element = [&sortable(score)[..], b"member"].concat();
            assert_eq!(split(&element), (score, &b"member"[..]));
        }
    }

    #[test]
    fn texts_are_those_of_redis() {
        for (score, expected) in [
            (0.0, "0"),
            (3.0, "3"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000001"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(score), expected);
            assert_eq!(parse(expected.as_bytes()), Some(score));
        }
        assert_eq!(parse(b"nan"), None);
        assert_eq!(parse(b"1x"), None);
    }
}
