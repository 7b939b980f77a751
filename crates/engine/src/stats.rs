//! Figures of an engine, added up from the counters of its threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::engine::Engine;
use crate::index::TREE_BYTES_PER_RECORD;
use crate::record::RecordRef;
use crate::worker_slot::{DEADLINE_UNIT_MS, KeyCount, WorkerSlot};

/// The most bytes of the table of hints that count as memory of keys: if there are none, and of each key.
const HINTS_OF_NONE: u64 = 64 * 1024;
const HINTS_PER_KEY: u64 = 64;

/// Figures of an engine. Sums over workers, each read at its own moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Keys of all databases; those that have expired and were not yet reclaimed count.
    pub keys: u64,
    /// Those of them that have a deadline.
    pub expiring: u64,
    /// The mean of their deadlines, in milliseconds since the Unix epoch; 0 without one.
    pub mean_deadline_ms: u64,
    /// Records in the index, deleted ones that wait for reclamation among them.
    pub records: u64,
    /// Bytes of records, versions and index.
    pub memory_bytes: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Attempts that met a conflict.
    pub conflicts: u64,
    /// Keys removed because they had expired.
    pub expired: u64,
    /// The number of times that the machine's clock was seen to have been set.
    pub clock_steps: u64,
    /// Versions of read-atomic keys that are kept behind newer ones.
    pub kept_versions: u64,
    /// Keys that were evicted because memory was full.
    pub evicted: u64,
    /// Milliseconds for which more memory was used than the limit, under a policy that evicts.
    pub eviction_exceeded_ms: u64,
}

/// Figures of the keys of a database, as those of [`EngineStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStats {
    /// Keys.
    pub keys: u64,
    /// Those of them that have a deadline.
    pub expiring: u64,
    /// The mean of their deadlines, in milliseconds since the Unix epoch; 0 without one.
    pub mean_deadline_ms: u64,
}

/// Returns the bytes that a key and its value take, with the key's place in the index, if they have these
/// lengths. Older versions that transactions may still read are not among them.
#[must_use]
pub fn bytes_of_key(key_len: usize, value_len: usize, expires: bool) -> usize {
    RecordRef::bytes_for(key_len, value_len, expires) + TREE_BYTES_PER_RECORD
}

impl KeyStats {
    /// Returns the figures for a sum of deadlines in [`DEADLINE_UNIT_MS`].
    fn new(keys: u64, expiring: u64, deadlines: u64) -> KeyStats {
        KeyStats {
            keys,
            expiring,
            mean_deadline_ms: deadlines
                .checked_div(expiring)
                .map_or(0, |units| units * DEADLINE_UNIT_MS),
        }
    }
}

impl Engine {
    /// Returns the sum of the counts of all namespaces other than 0.
    fn count_others(&self) -> KeyCount {
        let mut sum = KeyCount::default();
        let table = self.databases_now.read();
        let Some(table) = table.as_ref() else {
            return sum;
        };
        for slot in &self.slots {
            for (&namespace, (generation, count)) in &*slot.namespaces.lock() {
                if *generation == table.generation_of(namespace) {
                    sum.add_count(*count);
                }
            }
        }
        sum
    }

    /// Returns the sum of the counts of a namespace other than 0.
    fn count_of(&self, namespace: u16, generation: u16) -> KeyCount {
        let mut sum = KeyCount::default();
        for slot in &self.slots {
            let namespaces = slot.namespaces.lock();
            let counted = namespaces.get(&namespace);
            if let Some((_, count)) = counted.filter(|counted| counted.0 == generation) {
                sum.add_count(*count);
            }
        }
        sum
    }

    /// Returns the bytes of records, versions and index.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let records = self.sum(|p| &p.records) as usize;
        let index = records * TREE_BYTES_PER_RECORD + self.index.hints().bytes();
        self.sum(|p| &p.bytes)
            .wrapping_add(index as u64)
            .wrapping_add(self.origins.bytes())
            .wrapping_add(self.sliced_bytes.load(Ordering::Relaxed) as u64)
    }

    /// Returns sums of the workers' counters.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let keys = self.key_stats();
        let expiring: u64 = keys.iter().map(|(_, of)| of.expiring).sum();
        let deadlines = keys
            .iter()
            .map(|(_, of)| u128::from(of.mean_deadline_ms) * u128::from(of.expiring));
        EngineStats {
            keys: keys.iter().map(|(_, of)| of.keys).sum(),
            expiring,
            mean_deadline_ms: deadlines
                .sum::<u128>()
                .checked_div(u128::from(expiring))
                .map_or(0, |mean| mean as u64),
            records: self.sum(|p| &p.records),
            memory_bytes: self.memory_bytes(),
            commits: self.sum(|p| &p.commits),
            conflicts: self.sum(|p| &p.conflicts),
            expired: self.expired.load(Ordering::Relaxed),
            clock_steps: self.epochs.clock_steps(),
            kept_versions: self.sum(|p| &p.kept_versions),
            evicted: self.eviction.evicted(),
            eviction_exceeded_ms: self.eviction.exceeded_ms(self.epochs.time_ms()),
        }
    }

    /// Returns figures of the keys of database 0, and of each other database that has keys, in order.
    #[must_use]
    pub fn key_stats(&self) -> Vec<(u16, KeyStats)> {
        let slots = self.slots.iter();
        let used =
            slots.flat_map(|slot| slot.namespaces.lock().keys().copied().collect::<Vec<_>>());
        let used: BTreeSet<u16> = used.chain([0]).collect();
        let stats = used.into_iter().map(|namespace| {
            let generation = self.current_generation_of(namespace);
            let stats = self.key_stats_of(namespace, generation);
            (self.database_of(namespace), stats)
        });
        let stats = stats.filter(|(of, stats)| *of == 0 || stats.keys > 0);
        let stats: BTreeMap<u16, KeyStats> = stats.collect();
        stats.into_iter().collect()
    }

    fn key_stats_of(&self, namespace: u16, generation: u16) -> KeyStats {
        if namespace == 0 {
            let expiring = self.count(generation, |p| &p.expiring);
            let deadlines = self.count(generation, |p| &p.deadlines);
            return KeyStats::new(self.count(generation, |p| &p.keys), expiring, deadlines);
        }
        let sum = self.count_of(namespace, generation);
        let [keys, expiring, deadlines] =
            [sum.keys, sum.expiring, sum.deadlines].map(|sum| u64::try_from(sum).unwrap_or(0));
        KeyStats::new(keys, expiring, deadlines)
    }

    /// Returns about the bytes that the keys need: their records, their current versions, and the index. Memory that
    /// waits to be freed, or that only snapshots need, is not among them.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let own = self.current_generation();
        let keys = self.count(own, |p| &p.keys);
        let bytes = self.count(own, |p| &p.key_bytes);
        let others = self.count_others();
        let keys = keys + u64::try_from(others.keys).unwrap_or(0);
        let bytes = bytes + u64::try_from(others.bytes).unwrap_or(0);
        // The table of hints does not shrink: what it has more than so many keys need must not cause their eviction.
        let hints = (self.index.hints().bytes() as u64).min(HINTS_OF_NONE + keys * HINTS_PER_KEY);
        bytes + hints + self.origins.bytes()
    }

    fn sum(&self, counter: fn(&WorkerSlot) -> &AtomicU64) -> u64 {
        sum_of(self.slots.iter(), counter)
    }

    /// Returns the number of keys of a namespace that has this generation.
    pub(crate) fn count_keys_of(&self, namespace: u16, generation: u16) -> u64 {
        match namespace {
            0 => self.count(generation, |p| &p.keys),
            other => self.key_stats_of(other, generation).keys,
        }
    }

    /// Returns the sum of a counter that belongs to a generation of database 0.
    fn count(&self, generation: u16, counter: fn(&WorkerSlot) -> &AtomicU64) -> u64 {
        let of_it = |p: &&CachePadded<WorkerSlot>| {
            p.generation.load(Ordering::Acquire) == u64::from(generation)
        };
        sum_of(self.slots.iter().filter(of_it), counter)
    }
}

/// Adds up a counter. The slots are read one after another, so that what one worker made and another
/// removed may be seen as removed only: a passing negative sum means none.
fn sum_of<'a>(
    slots: impl Iterator<Item = &'a CachePadded<WorkerSlot>>,
    counter: fn(&WorkerSlot) -> &AtomicU64,
) -> u64 {
    let counts = slots.map(|slot| counter(slot).load(Ordering::Relaxed));
    let sum = counts.fold(0, u64::wrapping_add);
    if sum > i64::MAX as u64 { 0 } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passing_negative_sum_is_none() {
        let slots = [
            CachePadded::new(WorkerSlot::default()),
            CachePadded::default(),
        ];
        let sum = || sum_of(slots.iter(), |slot| &slot.records);
        WorkerSlot::count(&slots[0].records, 3);
        WorkerSlot::count(&slots[1].records, -1);
        assert_eq!(sum(), 2);
        WorkerSlot::count(&slots[1].records, -3);
        assert_eq!(sum(), 0);
    }
}
