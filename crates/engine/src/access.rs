//! Reads and writes of keys within a transaction.

use std::sync::Arc;

use base::database;
use base::transaction::{Kind, OpError};
use base::{Tid, Version};

use crate::effects::stored_version;
use crate::engine::Engine;
use crate::lookaside::KeyHash;
use crate::origin::OwnedOrigin;
use crate::record::{RecordRef, VersionContent, VersionRef};
use crate::thread_context::ThreadContext;
use crate::transaction::{ScanRead, TransactionState};
use crate::version_ids;
use crate::version_tree::VersionTree;
use crate::word::{DEAD, HELD, LOCK, STAGED, STAGING, WordValue};

/// The number of times that a reader looks again so that a commit on its record can finish, before
/// it reads the old version, which will then not validate.
const RETRIES: u32 = 64;

/// The state of a key that a transaction sees.
#[derive(Clone, Copy)]
pub(crate) struct KeyView {
    /// The version, if the key is present: not deleted, flushed or expired.
    pub(crate) live: Option<VersionRef>,
    /// The TID of this version, or of the write that made the key absent, as far as it is known.
    pub(crate) tid: Tid,
}

impl KeyView {
    pub(crate) fn deadline(self) -> Option<u64> {
        self.live.and_then(VersionRef::deadline)
    }

    /// Returns the value, which must be a string.
    pub(crate) fn string<'p>(self) -> Result<Option<&'p [u8]>, OpError> {
        match self.live {
            Some(version) if version.kind() != Kind::String => Err(OpError::WrongType),
            live => Ok(live.map(VersionRef::value)),
        }
    }
}

impl TransactionState {
    /// Reads a key.
    #[inline]
    pub(crate) fn read(&mut self, engine: &Engine, hash: KeyHash, key: &[u8]) -> KeyView {
        match self.read_version(engine, hash, key) {
            Some(version) => KeyView {
                live: self.sees(engine, key, version).then_some(version),
                tid: version.tid(),
            },
            None => KeyView {
                live: None,
                tid: Tid::ZERO,
            },
        }
    }

    /// Reads a record, including a version that the transaction does not see; returns `None` if there
    /// is no record.
    #[inline]
    pub(crate) fn read_version(
        &mut self,
        engine: &Engine,
        hash: KeyHash,
        key: &[u8],
    ) -> Option<VersionRef> {
        let Some(record) = engine.index.get(hash, key) else {
            self.note_missing(key);
            return None;
        };
        if let Some(own) = self.own_write(record) {
            return Some(self.writes[own].version);
        }
        let seen = self.newest(engine, record);
        if seen.has(DEAD) {
            self.note_missing(key);
            return None;
        }
        let version = RecordRef::version(seen);
        self.note_use(engine, record);
        self.reads.push((record, seen));
        self.observe(version.epoch());
        Some(version)
    }

    /// Returns the version of a key for `WATCH`.
    pub(crate) fn watch_version(&mut self, engine: &Engine, hash: KeyHash, key: &[u8]) -> Version {
        let read = self.read(engine, hash, key);
        // Its entry determines the version of what is staged.
        let staged = self.reads.last().filter(|(_, seen)| seen.has(STAGED));
        let awaited = staged.filter(|(record, _)| record.key() == key);
        self.awaited.extend(awaited.map(|(record, _)| *record));
        match read.live {
            Some(_) => self.version_of(engine, key, read.tid),
            // The remains of absent keys depend on the janitor: here every entry gives another
            // version.
            None if self.is_deterministic => Version::absent(Tid::new(self.epoch, 0)),
            None => Version::absent(read.tid.max(engine.floors.get(key))),
        }
    }

    /// Writes a key, or deletes it.
    #[inline]
    pub(crate) fn write(
        &mut self,
        thread: &mut ThreadContext,
        hash: KeyHash,
        key: &[u8],
        content: Option<VersionContent<'_>>,
    ) -> VersionRef {
        self.write_version(thread, (hash, key), |generation, origin| {
            VersionRef::new(generation, content, origin)
        })
    }

    /// Writes a key with a value as it is stored.
    pub(crate) fn write_stored(
        &mut self,
        thread: &mut ThreadContext,
        (hash, key): (KeyHash, &[u8]),
        value: (Kind, &[u8]),
        deadline: Option<u64>,
    ) {
        self.write_version(thread, (hash, key), |generation, origin| {
            stored_version(generation, value, deadline, origin)
        });
    }

    /// Writes a key with a large collection.
    pub(crate) fn write_tree(
        &mut self,
        thread: &mut ThreadContext,
        (hash, key): (KeyHash, &[u8]),
        tree: VersionTree,
        of: (Kind, Option<u64>),
    ) {
        self.write_version(thread, (hash, key), |generation, origin| {
            VersionRef::with_tree(generation, of, tree, origin)
        });
    }

    #[inline]
    fn write_version(
        &mut self,
        thread: &mut ThreadContext,
        (hash, key): (KeyHash, &[u8]),
        make: impl FnOnce(u16, Option<&Arc<OwnedOrigin>>) -> VersionRef,
    ) -> VersionRef {
        version_ids::draw_for_key(thread, self, key);
        let generation = self.generation_to_write(thread, key);
        let record = thread.record_for(hash, key);
        let version = make(generation, self.origin.as_ref());
        self.note_use(&thread.engine, record);
        self.note_write(record, version);
        version
    }

    /// Returns a record's word once no commit is changing it, or after some tries: with its newest staged version
    /// in place of the current one, if it has one and the transaction may use it.
    #[inline]
    fn newest(&mut self, engine: &Engine, record: RecordRef) -> WordValue {
        let seen = settled(record);
        match seen.has(STAGED) && !self.needs_applied {
            false => seen,
            true => self.newest_staged(engine, record),
        }
    }

    #[cold]
    fn newest_staged(&mut self, engine: &Engine, record: RecordRef) -> WordValue {
        loop {
            let seen = settled(record);
            if !seen.has(STAGED) {
                return seen;
            }
            if let Some(staged) = engine.holds.newest_staged(record) {
                self.staged_ticket = self.staged_ticket.max(staged.ticket);
                let marks = STAGED | seen.0 & (HELD | LOCK | STAGING);
                return WordValue(staged.version.address() | marks);
            }
        }
    }

    /// Visits the live keys of the database of `from`, from there to `to` (exclusive), in order until
    /// `limit` were visited.
    pub(crate) fn scan(
        &mut self,
        engine: &Engine,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        mut visit: impl FnMut(RecordRef, VersionRef),
    ) {
        // The keys behind are of other databases, or the engine's own.
        let (end, generation) = (database::end_of(from), self.generation_of(engine, from));
        let to = to.map_or(&end[..], |to| to.min(&end[..]));
        let mut scan = ScanRead {
            from: from.to_vec(),
            to: to.to_vec(),
            records: Vec::new(),
        };
        let (mut left, mut last) = (limit, None);
        engine.index.range(from, Some(to), |record| {
            if left == 0 {
                scan.cut_behind(last);
                return false;
            }
            last = Some(record);
            let seen = self.newest(engine, record);
            if seen.has(DEAD) {
                return true;
            }
            let version = RecordRef::version(seen);
            if !version.is_never() {
                scan.records.push(record);
            }
            let version = match self.own_write(record) {
                Some(own) => self.writes[own].version,
                None => {
                    self.reads.push((record, seen));
                    self.observe(version.epoch());
                    version
                }
            };
            if self.sees_of(generation, version) {
                left -= 1;
                visit(record, version);
            }
            true
        });
        self.scans.push(scan);
    }
}

/// Returns the record's word once no commit is changing it, or after some tries.
#[inline]
fn settled(record: RecordRef) -> WordValue {
    let mut seen = record.word().load();
    for _ in 0..RETRIES {
        if !seen.has(LOCK) {
            break;
        }
        std::hint::spin_loop();
        seen = record.word().load();
    }
    seen
}
