//! Checks that an entry of the log is the one that was proposed, and that it can be applied, without
//! applying it.
//!
//! The member that proposes an entry adds a checksum of its data (CRC-32C, little-endian) as the entry's
//! context. Each member compares it when the entry comes in a message, and again when it applies the entry:
//! so a change on the way, in memory or on a disk, is found at every member. Entries of releases before that
//! have no context.

use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType};

use crate::wire::{Payload, changes};

/// The reason why an entry cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidEntry(String);

fn invalid(reason: impl ToString) -> InvalidEntry {
    InvalidEntry(reason.to_string())
}

/// Returns the checksum of an entry's data.
pub(crate) fn checksum(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).to_le_bytes()
}

/// Returns `true` unless the data of an entry has changed since it was proposed.
pub(crate) fn is_intact(entry: &Entry) -> bool {
    entry.context.is_empty() || *entry.context == checksum(&entry.data)
}

/// Reads an entry as if to apply it, and returns the number of keys that it changes.
///
/// # Errors
/// Returns an error if this release cannot apply the entry, or if the entry has changed.
pub(crate) fn count_changes(entry: &Entry) -> Result<u64, InvalidEntry> {
    if entry.get_entry_type() != EntryType::EntryNormal {
        let read = ConfChangeV2::default().merge_from_bytes(&entry.data);
        return read.map(|()| 0).map_err(invalid);
    }
    if !is_intact(entry) {
        return Err(invalid("its data is not what was proposed"));
    }
    if entry.data.is_empty() {
        return Ok(0);
    }
    match Payload::decode(&entry.data).map_err(invalid)? {
        Payload::Transaction { changes: bytes, .. } => {
            changes(bytes).try_fold(0, |count, change| match change {
                Ok(_) => Ok(count + 1),
                Err((at, what)) => Err(invalid(format!("{what} (at byte {at})"))),
            })
        }
        Payload::Execute { ops, .. } => {
            let ops = base::codec::decode_ops(ops);
            ops.map(|ops| ops.len() as u64).map_err(invalid)
        }
        Payload::Tick { .. } | Payload::Sessions { .. } | Payload::Open { .. } => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick() -> Entry {
        let mut data = Vec::new();
        Payload::Tick { stamp_ms: 7 }.encode(&mut data);
        Entry {
            context: checksum(&data).to_vec().into(),
            data: data.into(),
            ..Entry::default()
        }
    }

    #[test]
    fn every_changed_bit_is_found() {
        let entry = tick();
        assert_eq!(count_changes(&entry), Ok(0));
        for bit in 0..8 * entry.data.len() {
            let mut changed = entry.data.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let changed = Entry {
                data: changed.into(),
                ..entry.clone()
            };
            assert!(!is_intact(&changed), "bit {bit}");
            assert!(count_changes(&changed).is_err(), "bit {bit}");
        }
        let other = Entry {
            context: b"12345".to_vec().into(),
            ..entry
        };
        assert!(!is_intact(&other));
    }

    #[test]
    fn entries_of_earlier_releases_have_no_checksum() {
        let earlier = Entry {
            context: Vec::new().into(),
            ..tick()
        };
        assert_eq!(count_changes(&earlier), Ok(0));
    }
}
