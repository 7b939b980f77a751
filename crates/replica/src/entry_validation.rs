//! Checks that an entry of the log can be applied, without applying it.

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

/// Reads an entry as if to apply it, and returns the number of keys that it changes.
///
/// # Errors
/// Returns an error if this release cannot apply the entry.
pub(crate) fn count_changes(entry: &Entry) -> Result<u64, InvalidEntry> {
    if entry.get_entry_type() != EntryType::EntryNormal {
        let read = ConfChangeV2::default().merge_from_bytes(&entry.data);
        return read.map(|()| 0).map_err(invalid);
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
