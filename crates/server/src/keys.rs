//! Commands that may visit every key (`KEYS`, and those about the keys of a slot): they run on a
//! snapshot, in slices between which other connections get their turns. The connection waits in the
//! meantime.

use resp::{Protocol, Writer};
use store::Snapshot;

use crate::glob;
use crate::limits::{SLICE_KEYS, SLICE_STEPS};
use crate::partition::{Partition, Worker};
use crate::task::Step;

/// A command of that kind that is under way.
pub(crate) struct KeysTask {
    snapshot: Snapshot,
    wanted: Wanted,
    /// The key at which the next slice begins.
    from: Vec<u8>,
    /// The key before `from`, if its comparison with the pattern was interrupted.
    interrupted: Option<(Vec<u8>, glob::Match)>,
    /// No keys follow the interrupted one.
    at_end: bool,
    /// The upper bound of keys that can match.
    to: Option<Vec<u8>>,
    found: usize,
    /// The keys found, as RESP.
    body: Vec<u8>,
}

/// The keys that a command selects.
enum Wanted {
    /// Those that match a pattern.
    Matching(Vec<u8>),
    /// Those of a slot, at most `most`.
    Of { slot: u16, most: usize },
    /// Only the number of keys of a slot.
    CountOf { slot: u16 },
}

impl KeysTask {
    /// Creates the task of `KEYS`.
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

    /// Creates the task of `CLUSTER GETKEYSINSLOT`.
    pub(crate) fn of_slot(partition: &Partition, slot: u16, most: usize) -> KeysTask {
        KeysTask::new(partition, Wanted::Of { slot, most }, Vec::new(), None)
    }

    /// Creates the task of `CLUSTER COUNTKEYSINSLOT`.
    pub(crate) fn count_of_slot(partition: &Partition, slot: u16) -> KeysTask {
        KeysTask::new(partition, Wanted::CountOf { slot }, Vec::new(), None)
    }

    fn new(partition: &Partition, wanted: Wanted, from: Vec<u8>, to: Option<Vec<u8>>) -> KeysTask {
        KeysTask {
            snapshot: partition.snapshot(),
            wanted,
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
    pub(crate) fn step(&mut self, worker: &mut Worker, output_limit: usize) -> Step {
        let mut steps = SLICE_STEPS;
        if let Some((key, mut search)) = self.interrupted.take() {
            match self.wanted.has(&key, self.found, &mut search, &mut steps) {
                None => {
                    self.interrupted = Some((key, search));
                    return Step::Waits;
                }
                Some(true) => add(&self.wanted, &mut self.found, &mut self.body, &key),
                Some(false) => {}
            }
            if self.at_end {
                return Step::Done;
            }
        }
        let KeysTask {
            snapshot,
            wanted,
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
                let mut search = glob::Match::default();
                match wanted.has(entry.key, *found, &mut search, &mut steps) {
                    None => *interrupted = Some((entry.key.to_vec(), search)),
                    Some(true) => add(wanted, found, body, entry.key),
                    Some(false) => {}
                }
            }
            seen < SLICE_KEYS && steps > 0
        });
        if self.body.len() > output_limit {
            return Step::TooLong;
        }
        match next {
            Some(next) if !self.wanted.has_enough(self.found) => {
                self.from = next;
                Step::Waits
            }
            _ if self.interrupted.is_some() => {
                self.at_end = true;
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

/// Adds a key if it is selected.
fn add(wanted: &Wanted, found: &mut usize, body: &mut Vec<u8>, key: &[u8]) {
    *found += 1;
    if !wanted.is_count() {
        Writer::new(body, Protocol::Resp2).bulk(key);
    }
}

impl Wanted {
    /// Returns `true` if a key is selected when `found` keys have been found before, or `None` if
    /// `steps` did not suffice to compare it.
    fn has(
        &self,
        key: &[u8],
        found: usize,
        search: &mut glob::Match,
        steps: &mut usize,
    ) -> Option<bool> {
        match self {
            Wanted::Matching(pattern) => search.resume(pattern, key, false, steps),
            Wanted::Of { slot, .. } => {
                Some(!self.has_enough(found) && cluster::slot::of(key) == *slot)
            }
            Wanted::CountOf { slot } => Some(cluster::slot::of(key) == *slot),
        }
    }

    fn has_enough(&self, found: usize) -> bool {
        matches!(self, Wanted::Of { most, .. } if found >= *most)
    }

    fn is_count(&self) -> bool {
        matches!(self, Wanted::CountOf { .. })
    }
}
