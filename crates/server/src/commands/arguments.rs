//! Parsing of arguments that several commands have.

use std::time::Duration;

use base::number::parse_int;

use crate::refusal::Refusal;

/// Parses an argument as a 64-bit integer.
#[inline]
pub(super) fn int(arg: &[u8]) -> Result<i64, Refusal> {
    parse_int(arg).ok_or(Refusal::NotInteger)
}

/// Returns `true` if an argument is this word, in any case.
#[inline]
pub(super) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The latest time that certainly is in the past: in milliseconds, of 2023. Relative times that
/// would overflow when counted from it are refused without asking the clock.
const PAST_MS: i64 = 1_700_000_000_000;

/// Returns in milliseconds a time that is given in seconds or in milliseconds, unless it overflows.
pub(super) fn in_ms(given: i64, seconds: bool) -> Option<i64> {
    if seconds {
        given.checked_mul(1000)
    } else {
        Some(given)
    }
}

/// As [`in_ms`], for a time relative to now; `None` if it would overflow.
pub(super) fn in_ms_from_now(given: i64, seconds: bool) -> Option<i64> {
    in_ms(given, seconds).filter(|ms| *ms <= i64::MAX - PAST_MS)
}

/// Parses the time, in seconds, for which a command waits; `None`: for ever.
pub(super) fn wait_seconds(arg: &[u8]) -> Result<Option<Duration>, Refusal> {
    const NO_NUMBER: Refusal = Refusal::Text("ERR timeout is not a float or out of range");
    let text = std::str::from_utf8(arg).map_err(|_| NO_NUMBER)?;
    let seconds: f64 = text.parse().map_err(|_| NO_NUMBER)?;
    if seconds.is_nan() {
        return Err(NO_NUMBER);
    }
    let ms = (seconds * 1000.0).ceil();
    if ms < 0.0 {
        return Err(Refusal::Text("ERR timeout is negative"));
    }
    if ms > i64::MAX as f64 / 1000.0 {
        return Err(Refusal::Text("ERR timeout is out of range"));
    }
    Ok((ms > 0.0).then(|| Duration::from_millis(ms as u64)))
}

/// Parses the time, in milliseconds, for which a command waits; `None`: for ever.
pub(super) fn wait_ms(arg: &[u8]) -> Result<Option<Duration>, Refusal> {
    const NO_INTEGER: Refusal = Refusal::Text("ERR timeout is not an integer or out of range");
    let given = int(arg).map_err(|_| NO_INTEGER)?;
    if given < 0 {
        return Err(Refusal::Text("ERR timeout is negative"));
    }
    let ms = in_ms_from_now(given, false);
    let ms = ms.ok_or(Refusal::Text("ERR timeout is out of range"))?;
    Ok((ms > 0).then(|| Duration::from_millis(ms as u64)))
}
