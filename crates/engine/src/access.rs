//! Reads and writes of keys within a transaction.

use base::transaction::{Kind, OpError};
use base::{Tid, Version};

use crate::log::RedoLog;
use crate::lookaside::KeyHash;
use crate::record::{Content, RecordRef, VersionRef};
use crate::system::RESERVED;
use crate::word::{DEAD, LOCK, Seen};
use crate::worker::{ScanRead, Stop, Worker};

/// The number of times that a reader looks again so that a commit on its record can finish, before
/// it reads the old version, which will then not validate.
const PATIENCE: u32 = 64;

/// The state of a key that a transaction sees.
#[derive(Clone, Copy)]
pub(crate) struct View {
    /// The version, if the key is present: not deleted, flushed or expired.
    pub(crate) live: Option<VersionRef>,
    /// The TID of this version, or of the write that made the key absent, as far as it is known.
    pub(crate) tid: Tid,
}

impl View {
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

/// The write of a key.
#[derive(Clone, Copy)]
pub(crate) struct Put<'a> {
    /// The value: these parts joined.
    pub(crate) parts: &'a [&'a [u8]],
    pub(crate) kind: Kind,
    pub(crate) deadline: Option<u64>,
}

impl<L: RedoLog> Worker<L> {
    /// Returns `true` if the transaction sees this version at all.
    pub(crate) fn visible(&self, version: VersionRef) -> bool {
        !version.is_absent()
            && version.generation() == self.state.generation
            && version
                .deadline()
                .is_none_or(|deadline| deadline > self.state.time_ms)
    }

    fn view(&self, version: VersionRef) -> View {
        let live = self.visible(version).then_some(version);
        View {
            live,
            tid: version.tid(),
        }
    }

    /// Reads a key.
    #[inline]
    pub(crate) fn read(&mut self, hash: KeyHash, key: &[u8]) -> View {
        match self.look(hash, key) {
            Some(version) => self.view(version),
            None => View {
                live: None,
                tid: Tid::ZERO,
            },
        }
    }

    /// Reads a record, including a version that is not visible; returns `None` if there is no
    /// record.
    pub(crate) fn look(&mut self, hash: KeyHash, key: &[u8]) -> Option<VersionRef> {
        let Some(record) = self.engine.index.get(hash, key) else {
            self.note_missing(key);
            return None;
        };
        if let Some(own) = self.own_write(record) {
            return Some(self.state.writes[own].version);
        }
        let seen = settled(record);
        if seen.has(DEAD) {
            self.note_missing(key);
            return None;
        }
        let version = RecordRef::version(seen);
        self.state.reads.push((record, seen));
        self.state.observed = self.state.observed.max(version.epoch());
        Some(version)
    }

    fn note_missing(&mut self, key: &[u8]) {
        self.state.missing.extend_from_slice(key);
        self.state.missing_ends.push(self.state.missing.len());
    }

    /// Returns the version of a key for `WATCH`.
    pub(crate) fn version_of(&mut self, hash: KeyHash, key: &[u8]) -> Version {
        let view = self.read(hash, key);
        match view.live {
            Some(_) => Version::present(view.tid),
            // The remains of absent keys depend on the janitor: here every entry gives another
            // version.
            None if self.state.exact => Version::absent(Tid::new(self.state.epoch, 0)),
            None => Version::absent(view.tid.max(self.engine.floors.get(key))),
        }
    }

    /// Writes a key, or deletes it.
    pub(crate) fn write(&mut self, hash: KeyHash, key: &[u8], put: Option<Put<'_>>) -> VersionRef {
        self.draw_origin_of(key);
        let record = self.record_for(hash, key);
        let content = put.map(|put| Content {
            parts: put.parts,
            kind: put.kind,
            deadline: put.deadline,
        });
        let origin = self.state.origin.as_ref();
        let version = VersionRef::new(self.state.generation, content, origin);
        self.note_write(record, version);
        version
    }

    /// Returns the record of a key, and makes one if there is none.
    pub(crate) fn record_for(&self, hash: KeyHash, key: &[u8]) -> RecordRef {
        let (record, made) = self.engine.index.get_or_insert(hash, key);
        if made {
            self.count_record(record);
        }
        record
    }

    /// Returns the record of a key, as [`Worker::record_for`].
    pub(crate) fn record_of(&self, key: &[u8]) -> RecordRef {
        self.record_for(self.engine.index.hash(key), key)
    }

    /// Makes every key absent: from here on this transaction, and once it has committed every
    /// other one, sees another generation.
    pub(crate) fn flush(&mut self) -> Result<(), Stop> {
        let next = self.engine.next_generation(self.state.generation)?;
        let version = crate::engine::Engine::generation_version(next);
        self.note_write(self.engine.generation, version);
        self.state.generation = next;
        Ok(())
    }

    /// Visits the live keys from `from` to `to` (exclusive) in order until `limit` were visited.
    pub(crate) fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        mut visit: impl FnMut(RecordRef, VersionRef),
    ) {
        // The keys behind are the engine's own.
        let to = to.map_or(&RESERVED[..], |to| to.min(&RESERVED[..]));
        let mut scan = ScanRead {
            from: from.to_vec(),
            to: to.to_vec(),
            records: Vec::new(),
        };
        let (mut left, mut last) = (limit, None);
        let engine = std::sync::Arc::clone(&self.engine);
        engine.index.range(from, Some(to), |record| {
            if left == 0 {
                scan.cut_behind(last);
                return false;
            }
            last = Some(record);
            let seen = settled(record);
            if seen.has(DEAD) {
                return true;
            }
            let version = RecordRef::version(seen);
            if !version.is_never() {
                scan.records.push(record);
            }
            let version = match self.own_write(record) {
                Some(own) => self.state.writes[own].version,
                None => {
                    self.state.reads.push((record, seen));
                    self.state.observed = self.state.observed.max(version.epoch());
                    version
                }
            };
            if self.visible(version) {
                left -= 1;
                visit(record, version);
            }
            true
        });
        self.state.scans.push(scan);
    }
}

/// Returns the record's word once no commit is changing it, or after some patience.
fn settled(record: RecordRef) -> Seen {
    let mut seen = record.word().load();
    for _ in 0..PATIENCE {
        if !seen.has(LOCK) {
            break;
        }
        std::hint::spin_loop();
        seen = record.word().load();
    }
    seen
}
