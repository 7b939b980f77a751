//! Parsing of arguments that several commands have.

use base::number::parse_int;
use base::transaction::{CallError, OpError};

/// Parses an argument as a 64-bit integer.
pub(crate) fn int(arg: &[u8]) -> Result<i64, OpError> {
    parse_int(arg).ok_or(OpError::NotInteger)
}

/// Parses the count of elements that are drawn at random: negative, if the same element may come again.
pub(crate) fn random_count(arg: &[u8]) -> Result<i64, OpError> {
    match int(arg)? {
        i64::MIN => Err(OpError::Call(CallError::CountOutOfRange)),
        count => Ok(count),
    }
}

/// Returns `true` if an argument is this word, in any case.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
