//! The walk of a command that may visit every key (`KEYS`, and those about the keys of a slot): it runs on a
//! snapshot, in slices between which other connections get their turns. The connection waits in the
//! meantime.

use base::database;
use resp::{Protocol, Writer};
use sha2::{Digest, Sha256};
use store::{Snapshot, SnapshotEntry};
use values::StoredBlock;

use crate::hexadecimal::hexadecimal;
use crate::limits::{SLICE_KEYS, SLICE_STEPS};
use crate::partition::{Partition, Worker};
use base::glob;

/// The bytes of a digest: as many as Redis's has.
const DIGEST_BYTES: usize = 20;

/// See the module's description.
pub(crate) struct KeyWalk {
    snapshot: Snapshot,
    selection: KeySelection,
    /// The key at which the next slice begins.
    from: Vec<u8>,
    /// The key before `from`, if its comparison with the pattern was interrupted.
    interrupted: Option<(Vec<u8>, glob::PatternMatch)>,
    /// No keys follow the interrupted one.
    at_end: bool,
    /// The upper bound of keys that can match.
    to: Option<Vec<u8>>,
    found: usize,
    /// The keys found, as RESP.
    body: Vec<u8>,
}

/// The progress of a walk.
pub(crate) enum WalkProgress {
    /// Keys are left to visit.
    Unfinished,
    /// Its reply can be written.
    Done,
    /// Given up: its reply exceeds the limit of replies.
    TooLong,
}

/// The keys that a command selects.
enum KeySelection {
    /// Those that match a pattern.
    Matching(Vec<u8>),
    /// Those of a slot, at most `most`.
    Of { slot: u16, most: usize },
    /// Only the number of keys of a slot.
    CountOf { slot: u16 },
    /// A digest of all keys, with their values and deadlines.
    Digest([u8; DIGEST_BYTES]),
    /// How the value of one key is kept.
    Description(Option<String>),
}

impl KeyWalk {
    /// Creates the walk of `KEYS`.
    pub(crate) fn matching(partition: &Partition, database: u16, pattern: &[u8]) -> KeyWalk {
        let selection = KeySelection::Matching(pattern.to_vec());
        KeyWalk::of_database(partition, database, selection, pattern)
    }

    /// Creates the walk of `CLUSTER GETKEYSINSLOT`.
    pub(crate) fn of_slot(partition: &Partition, database: u16, slot: u16, most: usize) -> KeyWalk {
        let selection = KeySelection::Of { slot, most };
        KeyWalk::of_database(partition, database, selection, b"*")
    }

    /// Creates the walk of `CLUSTER COUNTKEYSINSLOT`.
    pub(crate) fn count_of_slot(partition: &Partition, database: u16, slot: u16) -> KeyWalk {
        let selection = KeySelection::CountOf { slot };
        KeyWalk::of_database(partition, database, selection, b"*")
    }

    /// Creates the walk of `DEBUG DIGEST`, over all databases.
    pub(crate) fn digest(partition: &Partition) -> KeyWalk {
        let selection = KeySelection::Digest([0; DIGEST_BYTES]);
        KeyWalk::new(partition.snapshot(), selection, (Vec::new(), None))
    }

    /// Creates the walk of `DEBUG OBJECT`, which visits one key.
    pub(crate) fn description(partition: &Partition, database: u16, key: &[u8]) -> KeyWalk {
        let (snapshot, namespace) = partition.snapshot_of(database);
        let key = database::qualified(namespace, key);
        let behind = [&key[..], &[0]].concat();
        let selection = KeySelection::Description(None);
        KeyWalk::new(snapshot, selection, (key, Some(behind)))
    }

    /// Creates a walk over the keys of a database that can match a pattern.
    fn of_database(
        partition: &Partition,
        database: u16,
        selection: KeySelection,
        pattern: &[u8],
    ) -> KeyWalk {
        let (snapshot, namespace) = partition.snapshot_of(database);
        KeyWalk::new(snapshot, selection, glob::range(namespace, pattern))
    }

    fn new(
        snapshot: Snapshot,
        selection: KeySelection,
        (from, to): (Vec<u8>, Option<Vec<u8>>),
    ) -> KeyWalk {
        KeyWalk {
            snapshot,
            selection,
            from,
            interrupted: None,
            at_end: false,
            to,
            found: 0,
            body: Vec::new(),
        }
    }

    /// Returns the newest epoch in the view.
    pub(crate) fn epoch(&self) -> base::Epoch {
        self.snapshot.epoch()
    }

    /// Visits the next slice. The reply may have `output_limit` bytes.
    pub(crate) fn step(&mut self, worker: &mut Worker, output_limit: usize) -> WalkProgress {
        let mut steps = SLICE_STEPS;
        if let Some((key, mut search)) = self.interrupted.take() {
            match self
                .selection
                .has(&key, self.found, &mut search, &mut steps)
            {
                None => {
                    self.interrupted = Some((key, search));
                    return WalkProgress::Unfinished;
                }
                Some(true) => add(&self.selection, &mut self.found, &mut self.body, &key),
                Some(false) => {}
            }
            if self.at_end {
                return WalkProgress::Done;
            }
        }
        let KeyWalk {
            snapshot,
            selection,
            from,
            interrupted,
            to,
            found,
            body,
            ..
        } = self;
        let mut seen = 0;
        let next = worker.walk_snapshot(snapshot, from, to.as_deref(), &mut |entry| {
            seen += 1;
            if let Some(entry) = entry.filter(|entry| !entry.is_system()) {
                selection.see(&entry);
                let mut search = glob::PatternMatch::default();
                let key = database::client_key(entry.key);
                match selection.has(key, *found, &mut search, &mut steps) {
                    None => *interrupted = Some((key.to_vec(), search)),
                    Some(true) => add(selection, found, body, key),
                    Some(false) => {}
                }
            }
            seen < SLICE_KEYS && steps > 0
        });
        if self.body.len() > output_limit {
            return WalkProgress::TooLong;
        }
        match next {
            Some(next) if !self.selection.has_enough(self.found) => {
                self.from = next;
                WalkProgress::Unfinished
            }
            _ if self.interrupted.is_some() => {
                self.at_end = true;
                WalkProgress::Unfinished
            }
            _ => WalkProgress::Done,
        }
    }

    /// Writes the reply.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match &self.selection {
            KeySelection::CountOf { .. } => writer.int(self.found as i64),
            KeySelection::Matching(_) | KeySelection::Of { .. } => {
                writer.array(self.found);
                writer.raw(&self.body);
            }
            KeySelection::Digest(digest) => writer.status(&hexadecimal(digest)),
            KeySelection::Description(Some(text)) => writer.status(text),
            KeySelection::Description(None) => writer.error("ERR no such key"),
        }
    }
}

/// Returns a digest of a key with its value and deadline.
fn digest_of(entry: &SnapshotEntry<'_>) -> [u8; DIGEST_BYTES] {
    let mut hash = Sha256::new();
    hash.update((entry.key.len() as u64).to_le_bytes());
    hash.update(entry.key);
    hash.update(entry.deadline.unwrap_or(0).to_le_bytes());
    hash.update([entry.kind as u8]);
    hash.update(values::canonical(entry.kind, &entry.value.bytes()));
    let hash = hash.finalize();
    std::array::from_fn(|at| hash[at])
}

/// Adds a key if it is selected.
fn add(selection: &KeySelection, found: &mut usize, body: &mut Vec<u8>, key: &[u8]) {
    *found += 1;
    if !selection.is_count() {
        Writer::new(body, Protocol::Resp2).bulk(key);
    }
}

impl KeySelection {
    /// Returns `true` if a key is selected when `found` keys have been found before, or `None` if
    /// `steps` did not suffice to compare it.
    fn has(
        &self,
        key: &[u8],
        found: usize,
        search: &mut glob::PatternMatch,
        steps: &mut usize,
    ) -> Option<bool> {
        match self {
            KeySelection::Matching(pattern) => search.resume(pattern, key, false, steps),
            KeySelection::Of { slot, .. } => {
                Some(!self.has_enough(found) && cluster::slot::of(key) == *slot)
            }
            KeySelection::CountOf { slot } => Some(cluster::slot::of(key) == *slot),
            KeySelection::Digest(_) | KeySelection::Description(_) => Some(false),
        }
    }

    /// Takes what it shows of a key besides its name.
    fn see(&mut self, entry: &SnapshotEntry<'_>) {
        match self {
            KeySelection::Digest(sum) => {
                let of_entry = digest_of(entry);
                for (byte, other) in sum.iter_mut().zip(of_entry) {
                    *byte ^= other;
                }
            }
            KeySelection::Description(text) => {
                let bytes = entry.value.bytes();
                let stored = StoredBlock {
                    kind: entry.kind,
                    bytes: &bytes,
                };
                let length = values::dump::length(stored);
                *text = Some(format!(
                    "Value at:0x0 refcount:1 encoding:{} serializedlength:{} lru:0 lru_seconds_idle:0",
                    values::encoding(stored),
                    length
                ));
            }
            _ => {}
        }
    }

    fn has_enough(&self, found: usize) -> bool {
        matches!(self, KeySelection::Of { most, .. } if found >= *most)
    }

    fn is_count(&self) -> bool {
        matches!(self, KeySelection::CountOf { .. })
    }
}
