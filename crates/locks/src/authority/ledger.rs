//! The durable part of a table in memory.
//!
//! | offset | size | field | |
//! |---|---|---|---|
//! | 0 | 1 | format | 1 |
//! | 1 | 1 | clean | 1: the table was stopped, and no lock was held |
//! | 2 | 8 | reserved | every token that was ever granted is below it |
//! | 10 | 8 | longest | no lease that was granted and may still run is longer, in milliseconds |
//!
//! Numbers are little-endian.

use std::time::Duration;

use base::codec::Reader;

use crate::lock::FencingToken;

const FORMAT: u8 = 1;

/// The durable part of a table in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ledger {
    /// Every token that was ever granted is below it.
    pub reserved: FencingToken,
    /// No lease that was granted and may still run is longer. Whole milliseconds.
    pub longest: Duration,
    /// The table was stopped, and no lock was held.
    pub clean: bool,
}

impl Ledger {
    /// Returns the bytes to be kept.
    #[must_use]
    pub fn encode(&self) -> [u8; 18] {
        let longest = u64::try_from(self.longest.as_millis()).unwrap_or(u64::MAX);
        let mut bytes = [0; 18];
        bytes[0] = FORMAT;
        bytes[1] = u8::from(self.clean);
        bytes[2..10].copy_from_slice(&self.reserved.0.to_le_bytes());
        bytes[10..].copy_from_slice(&longest.to_le_bytes());
        bytes
    }

    /// Decodes a ledger. Returns `None` if `bytes` are not one. Then nothing may be granted: the
    /// used tokens are unknown.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Ledger> {
        let mut from = Reader::new(bytes);
        let format = from.u8().ok()?;
        let clean = from.bool().ok()?;
        let reserved = FencingToken(from.u64().ok()?);
        let longest = Duration::from_millis(from.u64().ok()?);
        from.end().ok()?;
        (format == FORMAT).then_some(Ledger {
            reserved,
            longest,
            clean,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_comes_back_as_it_was_and_other_bytes_are_none() {
        for clean in [false, true] {
            let ledger = Ledger {
                reserved: FencingToken(u64::MAX - 3),
                longest: Duration::from_millis(12_345),
                clean,
            };
            let bytes = ledger.encode();
            assert_eq!(Ledger::decode(&bytes), Some(ledger));
            assert_eq!(Ledger::decode(&bytes[..17]), None);
            assert_eq!(Ledger::decode(&[&bytes[..], &[0]].concat()), None);
            for (at, byte) in [(0, 2), (1, 2)] {
                let mut bad = bytes;
                bad[at] = byte;
                assert_eq!(Ledger::decode(&bad), None);
            }
        }
    }
}
