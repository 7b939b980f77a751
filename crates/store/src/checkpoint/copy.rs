//! Copies a view to the parts of a checkpoint: threads take ranges of the keys, and write each key that
//! the view has.
//!
//! Invariants:
//! 1. A thread is in an epoch for a slice of [`SLICE`], in which it copies to memory; it writes to
//!    files outside.
//! 2. Memory is bounded: each thread has one block, or its largest value.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use engine::{NoLog, Snapshot, SnapshotEntry, Worker};
use journal::{CheckpointKey, CheckpointPart, PartWriter};
use parking_lot::Mutex;

use super::throttle::CheckpointThrottle;
use crate::checkpoint_report::CheckpointError;

/// The time for which a thread stays in an epoch.
const SLICE: Duration = Duration::from_micros(50);
/// Records between two looks at the clock.
const LOOK: usize = 16;
/// Bytes of a value that are copied in one slice.
const PIECE: usize = 256 << 10;
/// Records in a range.
const RANGE: usize = 64 << 10;
/// Records that are skipped in one slice.
const SKIP: usize = 2048;

/// The keys that no thread has taken yet.
pub(super) struct KeyRanges {
    /// The first key; `None` if no keys are left.
    next: Mutex<Option<Vec<u8>>>,
    threads: usize,
}

/// The keys from `from` to `to`.
struct KeyRange {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl KeyRanges {
    /// Returns all keys, for so many threads.
    pub(super) fn new(threads: usize) -> KeyRanges {
        KeyRanges {
            next: Mutex::new(Some(Vec::new())),
            threads,
        }
    }

    /// Returns a range for the calling thread. To find its end, this walks over the keys of the
    /// range, but not over their values; a thread that is alone takes everything.
    fn take(&self, worker: &mut Worker<NoLog>) -> Option<KeyRange> {
        let mut next = self.next.lock();
        let from = next.take()?;
        let mut at = from.clone();
        let mut end = None;
        for _ in 0..if self.threads > 1 { RANGE / SKIP } else { 0 } {
            end = worker.skip_records(&at, SKIP);
            match &end {
                Some(key) => at.clone_from(key),
                None => break,
            }
        }
        next.clone_from(&end);
        Some(KeyRange { from, to: end })
    }
}

/// Writes one part.
pub(super) fn copy(
    worker: &mut Worker<NoLog>,
    snapshot: &Snapshot,
    ranges: &KeyRanges,
    mut writer: PartWriter,
    mut throttle: CheckpointThrottle<'_>,
) -> Result<CheckpointPart, CheckpointError> {
    while let Some(KeyRange { from, to }) = ranges.take(worker) {
        let mut next = Some(from);
        while let Some(from) = next {
            let large;
            (next, large) = slice(worker, snapshot, &from, to.as_deref(), &mut writer);
            match large {
                None => {}
                Some(LargeValue::At(key)) => {
                    copy_large(worker, snapshot, &key, &mut writer, &mut throttle)?;
                }
                Some(LargeValue::Block(block)) => {
                    for piece in block.chunks(PIECE) {
                        writer.value(piece);
                        throttle.rest(writer.entries())?;
                    }
                }
            }
            if writer.is_full() {
                writer.flush()?;
            }
            throttle.rest(writer.entries())?;
        }
    }
    Ok(writer.finish()?)
}

/// A value that is too large for a slice.
enum LargeValue {
    /// It is that of this key.
    At(Vec<u8>),
    /// It is that of a large collection, made for the checkpoint.
    Block(Vec<u8>),
}

/// Copies keys for one slice. Returns where to go on, and the value of an entry that was begun if it is too
/// large for a slice.
fn slice(
    worker: &mut Worker<NoLog>,
    snapshot: &Snapshot,
    from: &[u8],
    to: Option<&[u8]>,
    writer: &mut PartWriter,
) -> (Option<Vec<u8>>, Option<LargeValue>) {
    let start = Instant::now();
    let (mut seen, mut copied, mut large) = (0, 0, None);
    let next = worker.copy_snapshot(snapshot, from, to, |entry| {
        if let Some(entry) = entry {
            let value = entry.value.bytes();
            writer.entry(&head(&entry, value.len()));
            if value.len() > PIECE {
                large = Some(match value {
                    Cow::Borrowed(_) => LargeValue::At(entry.key.to_vec()),
                    Cow::Owned(block) => LargeValue::Block(block),
                });
                return false;
            }
            writer.value(&value);
            copied += value.len();
        }
        seen += 1;
        let over = seen % LOOK == 0 && start.elapsed() > SLICE;
        !over && copied < PIECE && !writer.is_full()
    });
    (next, large)
}

fn head<'a>(entry: &SnapshotEntry<'a>, value_len: usize) -> CheckpointKey<'a> {
    CheckpointKey {
        tid: entry.tid,
        key: entry.key,
        value_len,
        kind: entry.kind,
        generation: entry.generation,
        deadline: entry.deadline,
        origin: entry.origin,
    }
}

/// Copies a value in pieces. It stays the same as long as the view lives.
fn copy_large(
    worker: &mut Worker<NoLog>,
    snapshot: &Snapshot,
    key: &[u8],
    writer: &mut PartWriter,
    throttle: &mut CheckpointThrottle<'_>,
) -> Result<(), CheckpointError> {
    let (mut at, mut length) = (0, usize::MAX);
    while at < length {
        let copied = worker.read_snapshot(snapshot, key, |entry| {
            let value = entry.value.bytes();
            length = value.len();
            let piece = &value[at..length.min(at + PIECE)];
            writer.value(piece);
            piece.len()
        });
        at += copied.expect("what a view has stays in it");
        throttle.rest(writer.entries())?;
    }
    Ok(())
}
