//! Commands that may visit every key (`KEYS`, and those about the keys of a slot): on a snapshot,
//! in slices between which other connections get their turns. The connection that asked waits
//! meanwhile.

use resp::{Protocol, Writer};
use store::Snapshot;

use crate::glob;
use crate::limits::SLICE_KEYS;
use crate::partition::{Partition, Worker};
use crate::task::Step;

/// A command of that kind that is under way.
pub(crate) struct KeysTask {
    snapshot: Snapshot,
    wanted: Wanted,
    /// Where the next slice begins.
    from: Vec<u8>,
    /// Where matches end.
    to: Option<Vec<u8>>,
    found: usize,
    /// The keys found, as RESP.
    body: Vec<u8>,
}

/// Which keys are meant.
enum Wanted {
    /// Those that match a pattern.
    Matching(Vec<u8>),
    /// Those of a slot, at most so many.
    Of { slot: u16, most: usize },
    /// Those of a slot, and only how many they are.
    CountOf { slot: u16 },
}

impl KeysTask {
    /// `KEYS`.
    pub(crate) fn matching(partition: &Partition, pattern: &[u8]) -> KeysTask {
        let prefix = glob::prefix(pattern);
        let wanted = Wanted::Matching(pattern.to_vec());
        KeysTask::new(
            partition,
            wanted,
            prefix.to_vec(),
            glob::behind_prefix(prefix),
        )
    }

    /// `CLUSTER GETKEYSINSLOT`.
    pub(crate) fn of_slot(partition: &Partition, slot: u16, most: usize) -> KeysTask {
        KeysTask::new(partition, Wanted::Of { slot, most }, Vec::new(), None)
    }

    /// `CLUSTER COUNTKEYSINSLOT`.
    pub(crate) fn count_of_slot(partition: &Partition, slot: u16) -> KeysTask {
        KeysTask::new(partition, Wanted::CountOf { slot }, Vec::new(), None)
    }

    fn new(partition: &Partition, wanted: Wanted, from: Vec<u8>, to: Option<Vec<u8>>) -> KeysTask {
        KeysTask {
            snapshot: partition.snapshot(),
            wanted,
            from,
            to,
            found: 0,
            body: Vec::new(),
        }
    }

    /// The newest epoch in the view.
    pub(crate) fn epoch(&self) -> base::Epoch {
        self.snapshot.epoch()
    }

    /// Visits the next slice. The reply may have `output_limit` bytes.
    pub(crate) fn step(&mut self, worker: &mut Worker, output_limit: usize) -> Step {
        let KeysTask {
            snapshot,
            wanted,
            from,
            to,
            found,
            body,
        } = self;
        let next = worker.scan_snapshot(snapshot, from, to.as_deref(), SLICE_KEYS, &mut |entry| {
            if wanted.has(entry.key, *found) {
                *found += 1;
                if !wanted.is_count() {
                    Writer::new(body, Protocol::Resp2).bulk(entry.key);
                }
            }
        });
        if self.body.len() > output_limit {
            return Step::TooLong;
        }
        match next {
            Some(next) if !self.wanted.has_enough(self.found) => {
                self.from = next;
                Step::Waits
            }
            _ => Step::Done,
        }
    }

    /// Writes the reply.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        if self.wanted.is_count() {
            return writer.int(self.found as i64);
        }
        writer.array(self.found);
        writer.raw(&self.body);
    }
}

impl Wanted {
    /// Whether a key is meant when `found` have been found before.
    fn has(&self, key: &[u8], found: usize) -> bool {
        match self {
            Wanted::Matching(pattern) => glob::matches(pattern, key, false),
            Wanted::Of { slot, .. } => !self.has_enough(found) && cluster::slot::of(key) == *slot,
            Wanted::CountOf { slot } => cluster::slot::of(key) == *slot,
        }
    }

    fn has_enough(&self, found: usize) -> bool {
        matches!(self, Wanted::Of { most, .. } if found >= *most)
    }

    fn is_count(&self) -> bool {
        matches!(self, Wanted::CountOf { .. })
    }
}
