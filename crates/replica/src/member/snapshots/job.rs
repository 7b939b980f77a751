//! Making a snapshot, on a thread beside the member.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use base::change::SYSTEM_GENERATION;
use disk::Disk;
use engine::{Engine, NoLog, Snapshot, SnapshotEntry};
use parking_lot::Mutex;
use raft::eraftpb::SnapshotMetadata;

use crate::shared::Shared;
use crate::snapshot::{Head, SnapshotError, SnapshotFile, SnapshotRecord, SnapshotWriter};

/// Records that the view is walked through at a time.
const SLICE: usize = 1000;

/// Where it is told what became of a snapshot.
pub(super) type Outcome = Arc<Mutex<Option<Result<SnapshotFile, Unmade>>>>;

/// Why a snapshot was not made. The log still has everything, so that nothing is lost by it.
pub(super) enum Unmade {
    Failed(SnapshotError),
    /// Its thread has panicked, or could not be started.
    Ended,
}

impl std::fmt::Display for Unmade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unmade::Failed(error) => write!(f, "no snapshot was made: {error}"),
            Unmade::Ended => f.write_str(
                "no snapshot was made: the thread that makes it has panicked, or could not be started",
            ),
        }
    }
}

impl Unmade {
    /// Logs it; returns `true` if the disk has no space.
    pub(super) fn tell(&self) -> bool {
        tracing::error!("{self}; it is tried again later");
        matches!(self, Unmade::Failed(error) if error.is_full())
    }
}

/// The work on a snapshot. However it ends, and be it that it never begins, there is an outcome, so
/// that the place for the next one is free.
pub(super) struct Job {
    outcome: Outcome,
    shared: Arc<Shared>,
}

impl Job {
    pub(super) fn new(outcome: Outcome, shared: Arc<Shared>) -> Job {
        Job { outcome, shared }
    }

    pub(super) fn run(self, make: impl FnOnce() -> Result<SnapshotFile, SnapshotError>) {
        if let Ok(made) = catch_unwind(AssertUnwindSafe(make)) {
            *self.outcome.lock() = Some(made.map_err(Unmade::Failed));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.outcome.lock().get_or_insert(Err(Unmade::Ended));
        self.shared.wake();
    }
}

/// Writes a snapshot of the engine.
pub(super) fn write(
    engine: &Arc<Engine>,
    snapshot: &Snapshot,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    (meta, stamp_ms): (SnapshotMetadata, u64),
    sessions: &[u8],
) -> Result<SnapshotFile, SnapshotError> {
    let mut worker = engine.worker(|_| NoLog).expect("a place is kept for this");
    let (generation, generation_tid) = worker.snapshot_generation(snapshot);
    let head = Head {
        meta,
        stamp_ms,
        generation,
        generation_tid,
    };
    let mut writer = SnapshotWriter::create(disk, dir, &head)?;
    let mut from = Some(Vec::new());
    while let Some(begin) = from {
        let mut outcome = Ok(());
        let mut left = SLICE;
        from = worker.copy_snapshot(snapshot, &begin, None, |entry| {
            if let Some(entry) = entry {
                debug_assert!([generation, SYSTEM_GENERATION].contains(&entry.generation));
                outcome = writer.put(&record(&entry));
            }
            left -= 1;
            left > 0 && outcome.is_ok()
        });
        outcome?;
    }
    writer.finish(sessions)
}

fn record<'e>(entry: &SnapshotEntry<'e>) -> SnapshotRecord<'e> {
    SnapshotRecord {
        key: entry.key,
        value: entry.value,
        kind: entry.kind,
        generation: entry.generation,
        deadline: entry.deadline,
        tid: entry.tid,
        origin: entry.origin,
    }
}
