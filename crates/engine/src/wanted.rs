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
//! The records are only compared, never followed: one may be noted just as it is removed.

use std::sync::atomic::{AtomicBool, Ordering};

use base::participant::State;
use base::transaction::Holder;
use base::{Abort, Tid, TransactionId};
use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::log::RedoLog;
use crate::record::RecordRef;
use crate::system;
use crate::word::Seen;
use crate::worker::{Stop, Worker};

/// The number of attempts that give way to a writer of a record that is not held any more: some
/// tenths of a millisecond, in which a thread that waited can wake. The writer may also have gone.
const GIVING_WAY: u32 = 20;

/// The time for which a mark lasts, in milliseconds: longer than a transaction usually stays
/// prepared, which takes a sync and a round between nodes.
const LASTS_MS: u64 = 100;

#[derive(Default)]
pub(crate) struct Wanted {
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
    /// The TID of the version that was current. Its address would not do, because addresses are
    /// reused.
    version: Tid,
    until_ms: u64,
}

impl Wanted {
    /// Returns `true` if there may be marks.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that a writer met readers of this version of a record at `now_ms`.
    pub(crate) fn note(&self, record: RecordRef, version: Tid, now_ms: u64) {
        let mut marks = self.marks.lock();
        if marks.of.len() == marks.of.capacity() {
            marks.of.retain(|_, mark| now_ms < mark.until_ms);
        }
        let until_ms = now_ms + LASTS_MS;
        marks.of.insert(record, Mark { version, until_ms });
        marks.until_ms = marks.until_ms.max(until_ms);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if a transaction wants to replace this version of a record. Removes marks
    /// that have ended.
    pub(crate) fn has(&self, record: RecordRef, version: Tid, now_ms: u64) -> bool {
        let mut marks = self.marks.lock();
        if now_ms >= marks.until_ms {
            marks.of.clear();
            self.any.store(false, Ordering::Relaxed);
        }
        let lasts = |mark: &Mark| now_ms < mark.until_ms && mark.version == version;
        let found = marks.of.get(&record).map(lasts);
        if found == Some(false) {
            marks.of.remove(&record);
        }
        found == Some(true)
    }

    /// Removes the mark of a record that is held exclusively, or leaves the index.
    pub(crate) fn forget(&self, record: RecordRef) {
        if self.any() {
            self.marks.lock().of.remove(&record);
        }
    }
}

impl<L: RedoLog> Worker<L> {
    /// Gives way to writers of records that this transaction would hold as a reader: until the
    /// present holders have ended, and a moment longer, in which the writers that waited may come
    /// first.
    pub(crate) fn give_way(&self, id: TransactionId, attempt: u32) -> Result<(), Stop> {
        let (state, holds) = (&self.state, &self.engine.holds);
        if !holds.wanted.any() {
            return Ok(());
        }
        let wanted = |(record, _): &&(RecordRef, Seen)| {
            let now = RecordRef::version(record.word().load()).tid();
            holds.wanted.has(*record, now, state.time_ms) && self.own_write(*record).is_none()
        };
        let (mut free, mut oldest) = (false, None::<Holder>);
        for (record, _) in state.reads.iter().filter(wanted) {
            match holds.holder(*record) {
                Some(by) if oldest.is_none_or(|old| (by.age, by.id) < (old.age, old.id)) => {
                    oldest = Some(by);
                }
                Some(_) => {}
                None => free = true,
            }
        }
        match oldest {
            // The attempt will be refused, and may be one of the holders itself.
            Some(_) if self.is_known(id) => Ok(()),
            Some(by) => Err(Stop::Abort(Abort::Held { by })),
            None if free && attempt < GIVING_WAY => Err(Stop::Conflict),
            None => Ok(()),
        }
    }

    fn is_known(&self, id: TransactionId) -> bool {
        let (key, index) = (system::key(id), &self.engine.index);
        let record = index.get(index.hash(&key), &key);
        let version = record.map(|record| RecordRef::version(record.word().load()));
        version.is_some_and(|version| self.known(version) != State::Unknown)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use base::Epoch;

    use super::*;

    #[test]
    fn a_mark_ends_with_time_with_the_version_and_with_a_hold() {
        let (wanted, record, other) = (
            Wanted::default(),
            RecordRef::new(b"k"),
            RecordRef::new(b"l"),
        );
        let seen = Tid::ZERO;
        let written = Tid::new(Epoch(1), 1);
        assert!(!wanted.any() && !wanted.has(record, seen, 0));
        wanted.note(record, seen, 1_000);
        assert!(wanted.any() && wanted.has(record, seen, 1_000 + LASTS_MS - 1));
        assert!(!wanted.has(other, seen, 1_000));
        assert!(!wanted.has(record, seen, 1_000 + LASTS_MS), "time");
        assert!(!wanted.any());
        wanted.note(record, seen, 2_000);
        assert!(!wanted.has(record, written, 2_000), "written");
        wanted.note(record, seen, 3_000);
        wanted.forget(record);
        assert!(!wanted.has(record, seen, 3_000), "held");
    }

    #[test]
    fn marks_do_not_add_up() {
        let wanted = Wanted::default();
        for at in 0..1_000 {
            let record = RecordRef::new(b"k");
            wanted.note(record, Tid::ZERO, at * LASTS_MS);
        }
        assert!(wanted.marks.lock().of.len() < 16);
    }
}
