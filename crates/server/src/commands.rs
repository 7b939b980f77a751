//! The commands, by what they are about.

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

pub(crate) use connection::{note_client, refuse_client};
pub(crate) use saving::finish_job;
pub(crate) use table::rows;

use base::number::parse_int;

use crate::refusal::Refusal;

/// An argument that is a 64-bit integer.
#[inline]
fn int(arg: &[u8]) -> Result<i64, Refusal> {
    parse_int(arg).ok_or(Refusal::NotInteger)
}

/// Whether an argument is this word, in any case.
#[inline]
fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The latest time of the past that may count on being past: in milliseconds, of 2023. Relative
/// times that would overflow from then on are refused without asking the clock.
const PAST_MS: i64 = 1_700_000_000_000;

/// A time in milliseconds, given in seconds or in milliseconds, if that can be told.
fn in_ms(given: i64, seconds: bool) -> Option<i64> {
    if seconds {
        given.checked_mul(1000)
    } else {
        Some(given)
    }
}

/// As [`in_ms`], for a time that counts from now on, if it has an end.
fn in_ms_from_now(given: i64, seconds: bool) -> Option<i64> {
    in_ms(given, seconds).filter(|ms| *ms <= i64::MAX - PAST_MS)
}
