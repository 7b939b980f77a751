//! Writes the contents of the engine into a snapshot.

use std::path::Path;
use std::sync::Arc;

use base::change::SYSTEM_GENERATION;
use disk::Disk;
use engine::{NoLog, Snapshot, SnapshotEntry};
use raft::eraftpb::SnapshotMetadata;

use crate::shared::MemberShared;
use crate::snapshot::{SnapshotError, SnapshotFile, SnapshotHead, SnapshotRecord, SnapshotWriter};

/// The number of records that are read from the view at a time.
const SLICE: usize = 1000;

/// Writes the view of the engine into a snapshot file, in the background.
///
/// # Errors
/// Returns an error if the file cannot be written, or if the partition is closed meanwhile.
pub(super) fn write_snapshot(
    shared: &MemberShared,
    snapshot: &Snapshot,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    (meta, stamp_ms): (SnapshotMetadata, u64),
    sessions: &[u8],
) -> Result<SnapshotFile, SnapshotError> {
    let mut worker = shared
        .engine
        .worker(|_| NoLog)
        .expect("a place is kept for this");
    let (generation, generation_tid) = worker.snapshot_generation(snapshot);
    let head = SnapshotHead {
        meta,
        stamp_ms,
        generation,
        generation_tid,
    };
    let mut writer = SnapshotWriter::create(disk, dir, &head)?;
    let mut from = Some(Vec::new());
    while let Some(begin) = from {
        if !*shared.may_publish.lock() {
            return Err(SnapshotError::Closed);
        }
        let mut outcome = Ok(());
        let mut left = SLICE;
        from = worker.copy_snapshot(snapshot, &begin, None, |entry| {
            if let Some(entry) = entry {
                debug_assert!([generation, SYSTEM_GENERATION].contains(&entry.generation));
                outcome = writer.put(&record(&entry, &entry.value.bytes()));
            }
            left -= 1;
            left > 0 && outcome.is_ok()
        });
        outcome?;
    }
    let may_publish = shared.may_publish.lock();
    if !*may_publish {
        return Err(SnapshotError::Closed);
    }
    writer.finish(sessions)
}

fn record<'e>(entry: &SnapshotEntry<'e>, value: &'e [u8]) -> SnapshotRecord<'e> {
    SnapshotRecord {
        key: entry.key,
        value,
        kind: entry.kind,
        generation: entry.generation,
        deadline: entry.deadline,
        tid: entry.tid,
        origin: entry.origin,
    }
}
