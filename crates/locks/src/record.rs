//! A lock as a partition keeps it.
//!
//! | offset | size | field | |
//! |---|---|---|---|
//! | 0 | 1 | format | 1 |
//! | 1 | 1 | state | 0: released, 1: held |
//! | 2 | 8 | token | of this grant; of the last one when released |
//! | 10 | 8 | lease | in milliseconds; all ones: endless; zero when released |
//! | 18 | 8 | incarnation | of the proxy that wrote the record |
//! | 26 | 8 | sequence | of the write, among those of the incarnation |
//! | 34 | … | value | the owner; empty when released |
//!
//! Numbers are little-endian. A record's key is the table's prefix, the byte `r`, and the lock's
//! key; the key of an era (see [`crate::shared`]) is the prefix, the byte `e`, the incarnation and
//! the era's number, eight bytes each.
//!
//! 1. No two writes of records have the same incarnation and sequence, so these identify the write.
//! 2. A held record has no expiry in the partition; a released one has.

use std::sync::Arc;
use std::time::Duration;

use base::codec::Reader;

use crate::lock::{FencingToken, LockLease};

const FORMAT: u8 = 1;
const HEADER: usize = 34;
const ENDLESS: u64 = u64::MAX;

/// Identifies a write of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RecordWriteId {
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

/// A lock as a partition keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockRecord {
    pub(crate) token: FencingToken,
    pub(crate) id: RecordWriteId,
    pub(crate) state: RecordState,
}

/// State of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    Released,
    Held { value: Arc<[u8]>, lease: LockLease },
}

/// Returns the lease in whole milliseconds, rounded up.
pub(crate) fn whole_ms(lease: LockLease) -> LockLease {
    match lease {
        LockLease::For(time) => LockLease::For(Duration::from_millis(lease_ms(time))),
        LockLease::Endless => LockLease::Endless,
    }
}

fn lease_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).map_or(ENDLESS - 1, |ms| ms.min(ENDLESS - 1))
}

impl LockRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (state, lease, value): (u8, u64, &[u8]) = match &self.state {
            RecordState::Released => (0, 0, &[]),
            RecordState::Held { value, lease } => match *lease {
                LockLease::For(time) => (1, lease_ms(time), value),
                LockLease::Endless => (1, ENDLESS, value),
            },
        };
        let mut bytes = Vec::with_capacity(HEADER + value.len());
        bytes.extend([FORMAT, state]);
        for number in [self.token.0, lease, self.id.incarnation, self.id.sequence] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(value);
        bytes
    }

    /// Decodes a record. Returns `None` if `bytes` are not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<LockRecord> {
        let mut from = Reader::new(bytes);
        let (format, state) = (from.u8().ok()?, from.u8().ok()?);
        let token = FencingToken(from.u64().ok()?);
        let lease = from.u64().ok()?;
        let id = RecordWriteId {
            incarnation: from.u64().ok()?,
            sequence: from.u64().ok()?,
        };
        let value = from.rest();
        let state = match (format, state, lease) {
            (FORMAT, 0, 0) if value.is_empty() => RecordState::Released,
            (FORMAT, 1, ENDLESS) => RecordState::Held {
                value: value.into(),
                lease: LockLease::Endless,
            },
            (FORMAT, 1, ms @ 1..) => RecordState::Held {
                value: value.into(),
                lease: LockLease::For(Duration::from_millis(ms)),
            },
            _ => return None,
        };
        Some(LockRecord { token, id, state })
    }
}

/// Returns the key of a lock's record.
pub(crate) fn record_key(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    [prefix, b"r", key].concat()
}

/// Returns the key of an era.
pub(crate) fn era_key(prefix: &[u8], incarnation: u64, number: u64) -> Vec<u8> {
    [
        prefix,
        b"e",
        &incarnation.to_be_bytes(),
        &number.to_be_bytes(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: RecordState) -> LockRecord {
        LockRecord {
            token: FencingToken(0x0102_0304_0506_0708),
            id: RecordWriteId {
                incarnation: 7,
                sequence: 9,
            },
            state,
        }
    }

    fn held(value: &[u8], lease: LockLease) -> LockRecord {
        let value = value.into();
        record(RecordState::Held { value, lease })
    }

    #[test]
    fn a_record_is_laid_out_as_the_table_says() {
        let bytes = held(b"me", LockLease::For(Duration::from_millis(500))).encode();
        let mut expected = vec![1, 1, 8, 7, 6, 5, 4, 3, 2, 1];
        expected.extend(500u64.to_le_bytes());
        expected.extend(7u64.to_le_bytes());
        expected.extend(9u64.to_le_bytes());
        expected.extend(b"me");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn records_come_back_as_they_were() {
        for one in [
            record(RecordState::Released),
            held(b"", LockLease::Endless),
            held(&[0xff; 300], LockLease::For(Duration::from_millis(1))),
        ] {
            assert_eq!(LockRecord::decode(&one.encode()), Some(one));
        }
    }

    #[test]
    fn a_lease_is_never_shorter_in_the_record() {
        let bytes = held(b"x", LockLease::For(Duration::from_micros(1001))).encode();
        let expected = held(b"x", LockLease::For(Duration::from_millis(2)));
        assert_eq!(LockRecord::decode(&bytes), Some(expected));
    }

    #[test]
    fn other_bytes_are_no_record() {
        let good = held(b"me", LockLease::Endless).encode();
        for cut in 0..HEADER {
            assert_eq!(LockRecord::decode(&good[..cut]), None, "{cut} bytes");
        }
        for (at, byte) in [(0, 0), (0, 2), (1, 2), (1, 0)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(LockRecord::decode(&bad), None, "byte {at} is {byte}");
        }
        let mut zero = good;
        zero[10..18].fill(0);
        assert_eq!(
            LockRecord::decode(&zero),
            None,
            "held with a lease of nothing"
        );
    }
}
