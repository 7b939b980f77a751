//! Ids of the entries of streams.

use base::transaction::CallError;
use smallvec::SmallVec;

/// An id as a reply shows it.
pub(crate) type IdText = SmallVec<[u8; 48]>;

/// The longest text of an id, in bytes.
const LONGEST_TEXT: usize = 127;

/// The id of an entry: a time in milliseconds, and a number among the entries of that time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct EntryId {
    pub(crate) ms: u64,
    pub(crate) number: u64,
}

/// The id that `XADD` gives to its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestedId {
    /// `*`: the transaction's time.
    Time,
    /// `MS-*`: the next number of a time.
    NumberAt(u64),
    /// `MS-NUMBER`, or `MS`.
    Exact(EntryId),
}

impl EntryId {
    /// The least id, which no entry has.
    pub(crate) const MIN: EntryId = EntryId { ms: 0, number: 0 };
    /// The greatest id.
    pub(crate) const MAX: EntryId = EntryId {
        ms: u64::MAX,
        number: u64::MAX,
    };

    /// Returns the id with these big-endian bytes.
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> EntryId {
        let both = u128::from_be_bytes(bytes);
        EntryId {
            ms: (both >> 64) as u64,
            number: both as u64,
        }
    }

    /// Returns it as big-endian bytes, which are ordered as ids are.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.number)).to_be_bytes()
    }

    /// Returns the least id above this one.
    pub(crate) fn next(self) -> Option<EntryId> {
        let next = u128::from_be_bytes(self.to_bytes()).checked_add(1)?;
        Some(EntryId::from_bytes(next.to_be_bytes()))
    }

    /// Returns the greatest id below this one.
    pub(crate) fn previous(self) -> Option<EntryId> {
        let previous = u128::from_be_bytes(self.to_bytes()).checked_sub(1)?;
        Some(EntryId::from_bytes(previous.to_be_bytes()))
    }

    /// Returns its text.
    pub(crate) fn text(self) -> IdText {
        let mut text = IdText::new();
        push_number(&mut text, self.ms);
        text.push(b'-');
        push_number(&mut text, self.number);
        text
    }

    /// Parses `MS-NUMBER`, or `MS`, whose number is 0.
    pub(crate) fn parse(text: &[u8]) -> Result<EntryId, CallError> {
        EntryId::parse_with(text, 0)
    }

    /// Parses `MS-NUMBER`, or `MS`, which has the given number.
    fn parse_with(text: &[u8], number: u64) -> Result<EntryId, CallError> {
        let parsed = match split(text) {
            _ if text.len() > LONGEST_TEXT => None,
            (ms, None) => unsigned(ms).map(|ms| EntryId { ms, number }),
            (ms, Some(number)) => unsigned(ms)
                .zip(unsigned(number))
                .map(|(ms, number)| EntryId { ms, number }),
        };
        parsed.ok_or(CallError::BadStreamId)
    }

    /// Parses an id as [`EntryId::parse`] does, or `-` or `+`: the least and the greatest id.
    pub(crate) fn parse_or_end(text: &[u8]) -> Result<EntryId, CallError> {
        EntryId::parse_bound(text, 0)
    }

    fn parse_bound(text: &[u8], number: u64) -> Result<EntryId, CallError> {
        match text {
            b"-" => Ok(EntryId::MIN),
            b"+" => Ok(EntryId::MAX),
            _ => EntryId::parse_with(text, number),
        }
    }

    /// Parses the least id of an interval: an id, `-`, `+`, or `(` and an id that is not in the interval.
    pub(crate) fn parse_start(text: &[u8]) -> Result<EntryId, CallError> {
        match text {
            [b'(', id @ ..] if !id.is_empty() => {
                let before = EntryId::parse_with(id, 0)?;
                before.next().ok_or(CallError::BadIntervalStart)
            }
            _ => EntryId::parse_bound(text, 0),
        }
    }

    /// Parses the greatest id of an interval, as [`EntryId::parse_start`] does. A time alone is its last id.
    pub(crate) fn parse_end(text: &[u8]) -> Result<EntryId, CallError> {
        match text {
            [b'(', id @ ..] if !id.is_empty() => {
                let behind = EntryId::parse_with(id, u64::MAX)?;
                behind.previous().ok_or(CallError::BadIntervalEnd)
            }
            _ => EntryId::parse_bound(text, u64::MAX),
        }
    }
}

impl RequestedId {
    /// Parses an id of `XADD`.
    pub(crate) fn parse(text: &[u8]) -> Result<RequestedId, CallError> {
        match split(text) {
            (b"*", None) => Ok(RequestedId::Time),
            (ms, Some(b"*")) if text.len() <= LONGEST_TEXT => {
                let ms = unsigned(ms).ok_or(CallError::BadStreamId)?;
                Ok(RequestedId::NumberAt(ms))
            }
            _ => EntryId::parse(text).map(RequestedId::Exact),
        }
    }
}

/// Appends a number in decimal digits.
fn push_number(to: &mut IdText, mut number: u64) {
    let begin = to.len();
    loop {
        to.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    to[begin..].reverse();
}

/// Splits a text at its first hyphen.
fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b'-') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Parses a number as C's `strtoull` does: blanks, a plus sign and zeros may stand before it.
fn unsigned(text: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    let digits = text[blanks..].strip_prefix(b"+").unwrap_or(&text[blanks..]);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = char::from(digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, number: u64) -> EntryId {
        EntryId { ms, number }
    }

    #[test]
    fn ids_are_parsed_as_redis_does() {
        for (text, expected) in [
            ("5", Some(id(5, 0))),
            ("5-7", Some(id(5, 7))),
            ("007-+05", Some(id(7, 5))),
            (" 9", Some(id(9, 0))),
            (
                "18446744073709551615-18446744073709551615",
                Some(EntryId::MAX),
            ),
            ("18446744073709551616", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("9 ", None),
            ("-1", None),
            ("10-", None),
            ("10--1", None),
            ("5-*", None),
            (&*"0".repeat(127), Some(EntryId::MIN)),
            (&*"0".repeat(128), None),
        ] {
            assert_eq!(EntryId::parse(text.as_bytes()).ok(), expected, "{text}");
        }
        let requested = |text: &str| RequestedId::parse(text.as_bytes()).ok();
        assert_eq!(requested("*"), Some(RequestedId::Time));
        assert_eq!(requested("7-*"), Some(RequestedId::NumberAt(7)));
        assert_eq!(requested("7"), Some(RequestedId::Exact(id(7, 0))));
        assert_eq!(requested("7-*5"), None);
    }

    #[test]
    fn intervals_may_exclude_their_ends() {
        let start = |text: &str| EntryId::parse_start(text.as_bytes());
        let end = |text: &str| EntryId::parse_end(text.as_bytes());
        assert_eq!((start("-"), end("+")), (Ok(EntryId::MIN), Ok(EntryId::MAX)));
        assert_eq!((start("5"), end("5")), (Ok(id(5, 0)), Ok(id(5, u64::MAX))));
        assert_eq!(
            (start("(5"), end("(5-0")),
            (Ok(id(5, 1)), Ok(id(4, u64::MAX)))
        );
        assert_eq!(start("("), Err(CallError::BadStreamId));
        assert_eq!(start("(-"), Err(CallError::BadStreamId));
        let greatest = EntryId::MAX.text();
        let behind = [b"(", &greatest[..]].concat();
        assert_eq!(
            EntryId::parse_start(&behind),
            Err(CallError::BadIntervalStart)
        );
        assert_eq!(end("(0-0"), Err(CallError::BadIntervalEnd));
    }
}
