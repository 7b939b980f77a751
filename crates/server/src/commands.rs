//! The commands, grouped by subject.

mod admin;
mod cluster;
mod connection;
mod introspection;
pub(crate) mod key;
mod replication;
mod saving;
mod snapshot;
mod string;
mod table;

pub(crate) use connection::note_client;
pub(crate) use saving::finish_job;
pub(crate) use table::rows;

use base::number::parse_int;

use crate::refusal::Refusal;

/// Parses an argument as a 64-bit integer.
#[inline]
fn int(arg: &[u8]) -> Result<i64, Refusal> {
    parse_int(arg).ok_or(Refusal::NotInteger)
}

/// Returns `true` if an argument is this word, in any case.
#[inline]
fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The latest time that certainly is in the past: in milliseconds, of 2023. Relative times that
/// would overflow when counted from it are refused without asking the clock.
const PAST_MS: i64 = 1_700_000_000_000;

/// Returns in milliseconds a time that is given in seconds or in milliseconds, unless it overflows.
fn in_ms(given: i64, seconds: bool) -> Option<i64> {
    if seconds {
        given.checked_mul(1000)
    } else {
        Some(given)
    }
}

/// As [`in_ms`], for a time relative to now; `None` if it would overflow.
fn in_ms_from_now(given: i64, seconds: bool) -> Option<i64> {
    in_ms(given, seconds).filter(|ms| *ms <= i64::MAX - PAST_MS)
}
