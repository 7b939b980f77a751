//! A hash of the whole content of a snapshot, to find out if replicas agree.
//!
//! It covers these fields, in the order of keys: the generation that is visible and its TID; then
//! of every record key, value, type, generation, deadline, TID and origin, system records among
//! them. Data that a janitor may or may not have removed, such as keys that have expired, is in no
//! snapshot. It is no defence against people who want two states to have one hash.

use crate::log::RedoLog;
use crate::snapshot::{Snapshot, SnapshotEntry};
use crate::worker::Worker;

/// Records that are looked at within one epoch.
const SLICE: usize = 1_000;

/// Numbers and bytes, mixed eight bytes at a time.
struct Hash(u64);

impl Hash {
    /// The odd number nearest to 2⁶⁴ divided by the golden ratio: its multiples are far apart.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn number(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(Self::FACTOR);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn maybe(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or(0));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    fn entry(&mut self, entry: &SnapshotEntry<'_>) {
        self.bytes(entry.key);
        self.bytes(&values::canonical(entry.kind, &entry.value.bytes()));
        self.number(entry.kind as u64);
        self.number(u64::from(entry.generation));
        self.maybe(entry.deadline);
        self.number(entry.tid.to_bits());
        self.maybe(entry.origin.map(|origin| origin.id.timestamp.0));
        self.maybe(entry.origin.map(|origin| origin.id.unique));
        self.bytes(entry.origin.map_or(&[], |origin| origin.siblings));
    }
}

impl<L: RedoLog> Worker<L> {
    /// Returns the hash of the whole content of the snapshot: equal on replicas whose snapshots are
    /// of the same epoch.
    pub fn state_hash(&mut self, snapshot: &Snapshot) -> u64 {
        let mut hash = Hash(0);
        let (generation, tid) = self.snapshot_generation(snapshot);
        hash.number(u64::from(generation));
        hash.number(tid.to_bits());
        let mut from = Some(Vec::new());
        while let Some(key) = from {
            let mut looked = 0;
            from = self.walk_snapshot(snapshot, &key, None, |entry| {
                if let Some(entry) = &entry {
                    hash.entry(entry);
                }
                looked += 1;
                looked < SLICE
            });
        }
        hash.0
    }
}
