//! Records that a transaction wants to write while readers hold them. Readers share, so that
//! readers that come before the others have left would keep a writer out for ever; and each
//! prepared transaction reads the generation's record.
//!
//! A writer that meets such a hold leaves a mark. Transactions that are about to be prepared look
//! for marks and give way (module [`crate::prepare`]): the present holders end, and the writer,
//! which tries again when holds are given back, gets in.
//!
//! A mark lasts until the record is written, held exclusively or removed, or for some of the
//! engine's time: the writer may have gone. No transaction waits because of a mark for one that
//! holds nothing.
//!
//! Transactions that are staged one after another, each on the version that the one before has staged, may keep
//! out one that needs the applied version: it leaves a mark of another kind, which new versions do not end.
//!
//! The records are only compared, never followed: one may be noted just as it is removed.

use std::sync::atomic::{AtomicBool, Ordering};

use base::Tid;
use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::record::RecordRef;

/// The time for which a mark lasts, in milliseconds: longer than a transaction usually stays
/// prepared, which takes a sync and a round between nodes.
const LASTS_MS: u64 = 100;

#[derive(Default)]
pub(crate) struct WriterMarks {
    /// `true` if there may be marks.
    any: CachePadded<AtomicBool>,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    of: HashMap<RecordRef, Mark>,
    /// The time at which the last mark ends.
    until_ms: u64,
}

struct Mark {
    /// The TID of the version that was current; its address would not do, because addresses are
    /// reused. `None`: the transaction needs the applied version, whichever that is.
    version: Option<Tid>,
    until_ms: u64,
}

impl WriterMarks {
    /// Returns `true` if there may be marks.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that a writer met readers of this version of a record at `now_ms`.
    pub(crate) fn note(&self, record: RecordRef, version: Tid, now_ms: u64) {
        self.add(record, Some(version), now_ms);
    }

    fn add(&self, record: RecordRef, version: Option<Tid>, now_ms: u64) {
        let mut marks = self.marks.lock();
        if marks.of.len() == marks.of.capacity() {
            marks.of.retain(|_, mark| now_ms < mark.until_ms);
        }
        let until_ms = now_ms + LASTS_MS;
        marks.of.insert(record, Mark { version, until_ms });
        marks.until_ms = marks.until_ms.max(until_ms);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Notes that a transaction met staged versions of a record at `now_ms`, and needs the applied one.
    pub(crate) fn note_applied(&self, record: RecordRef, now_ms: u64) {
        self.add(record, None, now_ms);
    }

    /// Returns `true` if a transaction needs the applied version of a record, so that no further ones should be
    /// staged. Removes marks that have ended.
    pub(crate) fn needs_applied(&self, record: RecordRef, now_ms: u64) -> bool {
        self.find(record, now_ms) == Some(None)
    }

    /// Returns `true` if a transaction wants to replace this version of a record. Removes marks
    /// that have ended.
    pub(crate) fn has(&self, record: RecordRef, version: Tid, now_ms: u64) -> bool {
        let found = self.find(record, now_ms);
        if found.is_some_and(|wanted| wanted.is_some_and(|wanted| wanted != version)) {
            self.marks.lock().of.remove(&record);
        }
        found == Some(Some(version))
    }

    /// Returns the version in the mark of a record, if it has a mark that has not ended.
    fn find(&self, record: RecordRef, now_ms: u64) -> Option<Option<Tid>> {
        let mut marks = self.marks.lock();
        if now_ms >= marks.until_ms {
            marks.of.clear();
            self.any.store(false, Ordering::Relaxed);
        }
        let (until_ms, version) = marks
            .of
            .get(&record)
            .map(|mark| (mark.until_ms, mark.version))?;
        if now_ms >= until_ms {
            marks.of.remove(&record);
            return None;
        }
        Some(version)
    }

    /// Removes the mark of a record that is held exclusively, or leaves the index.
    pub(crate) fn forget(&self, record: RecordRef) {
        if self.any() {
            self.marks.lock().of.remove(&record);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Epoch;

    use super::*;

    #[test]
    fn a_mark_ends_with_time_with_the_version_and_with_a_hold() {
        let (marks, record, other) = (
            WriterMarks::default(),
            RecordRef::new(b"k"),
            RecordRef::new(b"l"),
        );
        let seen = Tid::ZERO;
        let written = Tid::new(Epoch(1), 1);
        assert!(!marks.any() && !marks.has(record, seen, 0));
        marks.note(record, seen, 1_000);
        assert!(marks.any() && marks.has(record, seen, 1_000 + LASTS_MS - 1));
        assert!(!marks.has(other, seen, 1_000));
        assert!(!marks.has(record, seen, 1_000 + LASTS_MS), "time");
        assert!(!marks.any());
        marks.note(record, seen, 2_000);
        assert!(!marks.has(record, written, 2_000), "written");
        marks.note(record, seen, 3_000);
        marks.forget(record);
        assert!(!marks.has(record, seen, 3_000), "held");
    }

    #[test]
    fn marks_do_not_add_up() {
        let marks = WriterMarks::default();
        for at in 0..1_000 {
            let record = RecordRef::new(b"k");
            marks.note(record, Tid::ZERO, at * LASTS_MS);
        }
        assert!(marks.marks.lock().of.len() < 16);
    }
}
