//! Memory that was taken out of shared structures and waits until no worker can see it.
//!
//! Every worker has a bag. Memory that is put into it carries the grace period of that time, read
//! after the memory became unreachable; it is freed once that grace period and the next one have ended
//! ([`Epochs`] invariant 5). Workers end grace periods themselves as their bags grow, so that little
//! memory waits, however long epochs are. The janitor empties the bags of workers that fell idle.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use crate::epoch::Epochs;
use crate::lookaside::HintTable;
use crate::record::{RecordRef, VersionRef};
use crate::version_tree::VersionTree;
use values::ReplacedTrees;

/// Memory to free.
pub(crate) enum Garbage {
    /// A replaced version; the versions to which it links are freed separately.
    Version(VersionRef),
    /// A record that left the index, with its versions.
    Record(RecordRef),
    /// A look-aside table that was outgrown; dropping it frees it.
    Table(#[allow(dead_code)] Arc<HintTable>),
}

/// A bag of garbage, oldest first.
#[derive(Default)]
pub(crate) struct Bag {
    items: VecDeque<(u64, Garbage)>,
    /// Grace periods up to this one are known to have ended.
    ended: u64,
    /// Bytes freed since the last call of `take_freed`.
    freed: usize,
    /// Entries and bytes that were added since the bag was last looked at.
    added: usize,
    added_bytes: usize,
    /// `true` if memory was added since the last call of `sweep`.
    is_in_use: bool,
    /// Nodes of trees that no worker can see any more.
    nodes: ReplacedTrees,
}

/// A bag is looked at after this many entries, and later where there are many workers: a look reads
/// a cache line of each.
const LOOK_AFTER: usize = 64;
const LOOK_AFTER_PER_WORKER: usize = 8;
/// The nodes of trees that are freed with an entry that has few of them: those of a large collection are freed in
/// such slices. One node takes less than 0.1 µs.
const NODES: usize = 256;
/// An entry has one node freed for each of these bytes of nodes that replace its own; nodes have more bytes, so that
/// none are left behind.
const BYTES_PER_NODE: usize = 512;
/// The nodes that are freed at once in the bag of an idle worker.
const SWEPT_NODES: usize = 4096;
/// It is also looked at after this many bytes: what waits stays in the caches of the processor.
const LOOK_AFTER_BYTES: usize = 1 << 17;

impl Bag {
    /// Adds memory that has just become unreachable, and frees a little that is old enough. The
    /// caller is in an epoch.
    pub(crate) fn put(&mut self, epochs: &Epochs, garbage: Garbage) {
        self.is_in_use = true;
        self.added += 1;
        let mut nodes = NODES;
        if let Garbage::Version(version) = &garbage {
            let replaced = version.tree().map_or(0, VersionTree::successor_bytes);
            nodes += replaced / BYTES_PER_NODE;
            self.added_bytes += version.bytes() + replaced;
        }
        self.items.push_back((epochs.grace_period(), garbage));
        let enough = LOOK_AFTER.max(LOOK_AFTER_PER_WORKER * epochs.used());
        if self.added >= enough || self.added_bytes >= LOOK_AFTER_BYTES {
            self.look(epochs);
        }
        self.free(4, nodes);
    }

    /// Frees everything that is old enough, unless memory was added since the last call: a worker that
    /// goes on frees by itself, in its own cache. Returns `true` if something is left to free soon.
    pub(crate) fn sweep(&mut self, epochs: &Epochs) -> bool {
        if std::mem::take(&mut self.is_in_use) {
            return false;
        }
        self.look(epochs);
        self.free(usize::MAX, SWEPT_NODES);
        !self.items.is_empty() || !self.nodes.is_empty()
    }

    /// Looks which grace periods have ended; ends the current one if the oldest entry waits for it.
    fn look(&mut self, epochs: &Epochs) {
        (self.added, self.added_bytes) = (0, 0);
        self.ended = epochs.ended_grace_period();
        if self
            .items
            .front()
            .is_some_and(|(period, _)| *period >= self.ended)
        {
            epochs.end_grace_period();
        }
    }

    /// Returns the bytes freed since the last call.
    pub(crate) fn take_freed(&mut self) -> usize {
        std::mem::take(&mut self.freed)
    }

    fn free(&mut self, most: usize, nodes: usize) {
        if !self.nodes.is_empty() {
            self.free_nodes(nodes);
        }
        for _ in 0..most {
            match self.items.front() {
                Some((period, _)) if *period < self.ended => {}
                _ => return,
            }
            if let Some((_, garbage)) = self.items.pop_front() {
                self.drop_one(garbage);
            }
        }
    }

    /// Frees some nodes of trees.
    #[cold]
    fn free_nodes(&mut self, most: usize) {
        // SAFETY: grace periods have ended since their versions left, so that no worker can have them any more.
        let freed = unsafe { self.nodes.free_some(most) };
        self.freed += freed.bytes;
    }

    fn drop_one(&mut self, garbage: Garbage) {
        match garbage {
            Garbage::Version(version) => {
                self.freed += version.bytes();
                if let Some(tree) = version.tree() {
                    self.nodes.append(tree.take_nodes());
                }
                // SAFETY: grace periods have ended since, so that no worker can have it any more.
                unsafe { version.free() }
            }
            Garbage::Record(record) => {
                self.freed += record.bytes() + RecordRef::version(record.word().load()).bytes();
                // SAFETY: as above; the record is in no structure any more.
                self.nodes.append(unsafe { record.take_nodes() });
                // SAFETY: as above.
                unsafe { record.free() }
            }
            Garbage::Table(_) => {}
        }
    }
}

impl Drop for Bag {
    /// Frees everything: an engine is dropped after all its workers, when no thread can see the
    /// memory any more.
    fn drop(&mut self) {
        while let Some((_, garbage)) = self.items.pop_front() {
            self.drop_one(garbage);
        }
        while !self.nodes.is_empty() {
            self.free_nodes(SWEPT_NODES);
        }
    }
}
