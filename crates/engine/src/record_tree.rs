//! The records in the order of their keys.
//!
//! | module | concept |
//! |---|---|
//! | [`leaf`] | up to [`leaf::MOST`] records whose keys follow each other, 8 bytes each |
//! | [`directory`] | the leaves in their order, and the lowest key that belongs to each |
//!
//! The directory has a readers-writer lock in parts, so that readers do not all write to one word. It is locked
//! exclusively when leaves are split, joined or removed. Each leaf has a mutex. Point look-ups rarely come here: [`crate::lookaside`] answers them.
//!
//! Invariants:
//! 1. A record of the tree has not been freed: it leaves the tree before the engine gives it up.
//! 2. No lock is held while a visitor looks at a record.

// `benches/index.rs` compiles this file as well, and looks for these from there.
#[path = "record_tree/directory.rs"]
mod directory;
#[path = "record_tree/leaf.rs"]
mod leaf;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use smallvec::SmallVec;

use crate::record::RecordRef;
use directory::Directory;
use leaf::{RecordBatch, WalkPosition};

/// See the module's description.
#[derive(Default)]
pub(crate) struct RecordTree(ShardedLock<Directory>);

const NO_PANIC: &str = "no thread panics while it has the directory locked";

impl RecordTree {
    fn read(&self) -> ShardedLockReadGuard<'_, Directory> {
        self.0.read().expect(NO_PANIC)
    }

    fn write(&self) -> ShardedLockWriteGuard<'_, Directory> {
        self.0.write().expect(NO_PANIC)
    }

    /// Returns the record of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Option<RecordRef> {
        let directory = self.read();
        let leaf = directory.leaf(directory.place(key)).lock();
        leaf.get(key)
    }

    /// Adds a record. Returns `false` if there is one of the same key.
    pub(crate) fn insert(&self, record: RecordRef) -> bool {
        let key = record.key();
        {
            let directory = self.read();
            let mut leaf = directory.leaf(directory.place(key)).lock();
            if !leaf.is_full() {
                return leaf.insert(record);
            }
            if leaf.get(key).is_some() {
                return false;
            }
        }
        let mut directory = self.write();
        let place = directory.place(key);
        directory.make_room(place, key);
        let place = directory.place(key);
        directory.leaf_mut(place).insert(record)
    }

    /// Removes a record. Returns `false` if it is not in the tree.
    pub(crate) fn remove(&self, record: RecordRef) -> bool {
        let key = record.key();
        let is_sparse = {
            let directory = self.read();
            let mut leaf = directory.leaf(directory.place(key)).lock();
            if !leaf.remove(record) {
                return false;
            }
            leaf.is_sparse()
        };
        if is_sparse {
            let mut directory = self.write();
            let place = directory.place(key);
            directory.join(place);
        }
        true
    }

    /// Visits the records from `from` on, in the order of their keys, until `visit` returns `false`. A record that
    /// enters or leaves meanwhile may be seen or not. The caller is in an epoch, or is the only thread that has records
    /// freed.
    pub(crate) fn range(&self, from: &[u8], mut visit: impl FnMut(RecordRef) -> bool) {
        let mut batch = RecordBatch::new();
        self.copy(WalkPosition::From(from), &mut batch);
        let mut last = SmallVec::<[u8; 64]>::new();
        while let Some(record) = batch.last() {
            // The visitor may have the record freed.
            last.clear();
            last.extend_from_slice(record.key());
            if !batch.drain(..).all(&mut visit) {
                return;
            }
            self.copy(WalkPosition::Behind(&last), &mut batch);
        }
    }

    /// Copies the records of the first leaf that has some at this position: none if that is behind all records.
    fn copy(&self, position: WalkPosition<'_>, into: &mut RecordBatch) {
        let directory = self.read();
        let (WalkPosition::From(key) | WalkPosition::Behind(key)) = position;
        let mut place = Some(directory.place(key));
        while let Some(at) = place {
            directory.leaf(at).lock().copy(position, into);
            if !into.is_empty() {
                return;
            }
            place = directory.next(at);
        }
    }

    /// Takes all records.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = RecordRef> {
        std::mem::take(self.0.get_mut().expect(NO_PANIC)).into_records()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Keys of several kinds: numbers in text with a common prefix, prefixes of each other, and bytes.
    fn key(random: &mut fastrand::Rng, kind: usize, most: u32) -> Vec<u8> {
        let number = random.u32(..most);
        match kind {
            0 => format!("user:{number:08}:name").into_bytes(),
            1 => vec![b'a'; number as usize % 300],
            2 => number.to_le_bytes()[..random.usize(..=4)].to_vec(),
            _ => number.to_be_bytes().to_vec(),
        }
    }

    fn seen(tree: &RecordTree, from: &[u8]) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        tree.range(from, |record| {
            keys.push(record.key().to_vec());
            true
        });
        keys
    }

    #[test]
    fn it_does_what_an_ordered_map_does() {
        let steps = 60_000;
        for kind in 0..4 {
            let mut random = fastrand::Rng::with_seed(kind as u64);
            let mut tree = RecordTree::default();
            let mut model = BTreeMap::<Vec<u8>, RecordRef>::new();
            for step in 0..steps {
                // It grows, shrinks, and grows again.
                let grows = step * 5 / steps % 2 == 0;
                let key = key(&mut random, kind, 20_000);
                if random.u32(..10) < if grows { 9 } else { 1 } {
                    let record = RecordRef::new(&key);
                    assert_eq!(tree.insert(record), !model.contains_key(&key), "{key:?}");
                    match model.contains_key(&key) {
                        true => record.free_unpublished(),
                        false => drop(model.insert(key, record)),
                    }
                } else if grows || random.bool() {
                    let record = model.remove(&key);
                    let removed = record.is_some_and(|record| tree.remove(record));
                    assert_eq!(removed, record.is_some());
                    record.into_iter().for_each(RecordRef::free_unpublished);
                } else if let Some((found, record)) = model.range(key..).next() {
                    let (found, record) = (found.clone(), *record);
                    assert!(tree.remove(record) && !tree.remove(record));
                    model.remove(&found);
                    record.free_unpublished();
                }
                let key = self::key(&mut random, kind, 20_000);
                assert_eq!(tree.get(&key), model.get(&key).copied());
                if step % 997 == 0 {
                    let expected: Vec<Vec<u8>> = model
                        .range(key.clone()..)
                        .map(|(key, _)| key.clone())
                        .collect();
                    assert_eq!(seen(&tree, &key), expected);
                }
            }
            let (leaves, records) = tree.0.get_mut().expect(NO_PANIC).check();
            assert_eq!(records, model.len());
            assert!(
                leaves <= 2 + records / (leaf::MOST / 8),
                "{leaves} for {records}"
            );
            for (record, (_, expected)) in tree.take().zip(&model) {
                assert_eq!(record, *expected);
                record.free_unpublished();
            }
            assert_eq!(seen(&tree, b""), Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn keys_in_their_order_fill_leaves() {
        for backwards in [false, true] {
            let mut tree = RecordTree::default();
            let count = 100 * leaf::MOST;
            for number in 0..count {
                let number = if backwards { count - number } else { number };
                assert!(tree.insert(RecordRef::new(format!("{number:09}").as_bytes())));
            }
            let (leaves, _) = tree.0.get_mut().expect(NO_PANIC).check();
            let most = if backwards { 210 } else { 101 };
            assert!(leaves <= most, "{leaves}");
            tree.take().for_each(RecordRef::free_unpublished);
        }
    }

    #[test]
    fn a_visitor_may_change_the_tree() {
        let mut tree = RecordTree::default();
        for number in 0..1000 {
            tree.insert(RecordRef::new(format!("{number:04}").as_bytes()));
        }
        let mut visited = 0;
        tree.range(b"0100", |record| {
            assert!(tree.remove(record));
            record.free_unpublished();
            visited += 1;
            visited < 800
        });
        assert_eq!(seen(&tree, b"").len(), 200);
        tree.take().for_each(RecordRef::free_unpublished);
    }

    /// Records that stay are seen by every walk, in their order, while others come and go.
    #[test]
    fn walks_see_what_stays() {
        let (rounds, stride) = (200_000, 50);
        let tree = RecordTree::default();
        let name = |number: u32| format!("key:{number:06}");
        let staying: Vec<u32> = (0..2000).filter(|number| number % stride == 0).collect();
        for &number in &staying {
            tree.insert(RecordRef::new(name(number).as_bytes()));
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changers = [1, 2].map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread.into());
                    let mut own = BTreeMap::new();
                    let mut removed = Vec::new();
                    for _ in 0..rounds {
                        let number = random.u32(..2000);
                        if number % stride != thread {
                            continue;
                        }
                        match own.remove(&number) {
                            Some(record) => {
                                assert!(tree.remove(record));
                                removed.push(record);
                            }
                            None => {
                                let record = RecordRef::new(name(number).as_bytes());
                                assert!(tree.insert(record));
                                assert_eq!(tree.get(record.key()), Some(record));
                                own.insert(number, record);
                            }
                        }
                    }
                    removed
                })
            });
            let walker = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let keys = seen(&tree, b"");
                    assert!(keys.is_sorted_by(|one, next| one < next));
                    let number = |key: &Vec<u8>| {
                        let text = std::str::from_utf8(&key[4..]).expect("digits");
                        text.parse::<u32>().expect("a number")
                    };
                    let mut numbers: Vec<u32> = keys.iter().map(number).collect();
                    numbers.retain(|number| number % stride == 0);
                    assert_eq!(numbers, staying);
                }
            });
            let removed = changers.map(|changer| changer.join().expect("it ends well"));
            is_over.store(true, Ordering::Relaxed);
            walker.join().expect("it ends well");
            removed
                .into_iter()
                .flatten()
                .for_each(RecordRef::free_unpublished);
        });
        let mut tree = tree;
        tree.0.get_mut().expect(NO_PANIC).check();
        tree.take().for_each(RecordRef::free_unpublished);
    }
}
