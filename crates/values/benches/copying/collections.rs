//! Collections and their operations.

use std::marker::PhantomData;

use kumiki_values::tree::{KeyOrder, NodeLimits, PositionOrder, TreeBuilder, VersionStamp};

use crate::versions::Versions;

/// A collection of entries that numbers define. Operations return `false` if it has none of the kind.
pub trait Collection {
    const NAME: &'static str;

    /// Makes a collection of the entries with the numbers from 0 on, inserted one by one in random order.
    fn fill(limits: NodeLimits, entries: usize) -> Self;
    /// Makes the same collection from its entries in order.
    fn build(limits: NodeLimits, entries: usize) -> Self;
    fn update(&mut self) -> bool;
    fn push_or_pop(&mut self) -> bool;
    fn get(&mut self) -> bool;
    fn nth(&mut self) -> bool;
    fn rank(&mut self) -> bool;
    /// Makes a version with so many changes: insertions of new entries and removals of any, in turns.
    fn change(&mut self, changes: usize);
    /// Returns the bytes of the collection's nodes.
    fn bytes(&mut self) -> usize;
    /// Returns the bytes of all nodes that were made.
    fn made(&self) -> usize;
    /// Compares the collection with what it should be.
    fn check(&self);
}

/// Returns a number without order, a different one for each number.
fn scramble(number: u64) -> u64 {
    let mixed = (number ^ number >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn value(number: u64) -> [u8; 10] {
    let mut value = [b'.'; 10];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("a value of ten bytes"))
}

fn shuffled(entries: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..entries as u64).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut numbers);
    numbers
}

/// A kind of collections whose entries have keys.
pub trait Kind {
    const NAME: &'static str;
    /// The lengths of keys, for each tree.
    const KEYS: &'static [usize];
    /// The entries of the first tree have values.
    const VALUED: bool;
    /// The tree in which entries are looked up.
    const LOOKED_UP: usize = 0;
}

pub enum SetKind {}
pub enum HashKind {}
pub enum ExpiringHashKind {}
pub enum SortedSetKind {}

impl Kind for SetKind {
    const NAME: &'static str = "set";
    const KEYS: &'static [usize] = &[20];
    const VALUED: bool = false;
}

impl Kind for HashKind {
    const NAME: &'static str = "hash";
    const KEYS: &'static [usize] = &[14];
    const VALUED: bool = true;
}

impl Kind for ExpiringHashKind {
    const NAME: &'static str = "expiring";
    const KEYS: &'static [usize] = &[14, 18];
    const VALUED: bool = true;
}

impl Kind for SortedSetKind {
    const NAME: &'static str = "zset";
    const KEYS: &'static [usize] = &[24, 12];
    const VALUED: bool = false;
    const LOOKED_UP: usize = 1;
}

pub type Set = Keys<SetKind>;
pub type Hash = Keys<HashKind>;
pub type ExpiringHash = Keys<ExpiringHashKind>;
pub type SortedSet = Keys<SortedSetKind>;

/// The key of an entry in a tree.
struct Key([u8; 24], usize);

impl Key {
    fn new(number: u64, len: usize) -> Key {
        let mut key = [b'.'; 24];
        key[..8].copy_from_slice(&scramble(number).to_be_bytes());
        key[len - 4..len].copy_from_slice(&(number as u32).to_be_bytes());
        Key(key, len)
    }

    fn number(&self) -> u64 {
        let field = self.0[self.1 - 4..self.1].try_into();
        u64::from(u32::from_be_bytes(field.expect("four bytes")))
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// A collection whose entries have keys: one tree of all entries for each length of keys.
pub struct Keys<K> {
    trees: Vec<Versions<KeyOrder>>,
    rng: fastrand::Rng,
    /// The numbers of the entries, in any order.
    numbers: Vec<u64>,
    next: u64,
    /// The numbers that the next version inserts or removes, with `true` for an insertion.
    changes: Vec<(u64, bool)>,
    kind: PhantomData<K>,
}

impl<K: Kind> Keys<K> {
    fn new(limits: NodeLimits, entries: usize) -> Self {
        Keys {
            trees: K::KEYS.iter().map(|_| Versions::new(limits)).collect(),
            rng: fastrand::Rng::with_seed(1),
            numbers: shuffled(entries),
            next: entries as u64,
            changes: Vec::with_capacity(1000),
            kind: PhantomData,
        }
    }

    /// Returns `true` if the entries of a tree have values.
    fn has_values(tree: usize) -> bool {
        K::VALUED && tree == 0
    }

    fn value(tree: usize, value: &[u8; 10]) -> &[u8] {
        if Self::has_values(tree) { value } else { &[] }
    }

    /// Returns the key of any entry in a tree.
    fn any(&mut self, tree: usize) -> Key {
        let number = self.numbers[self.rng.usize(..self.numbers.len())];
        Key::new(number, K::KEYS[tree])
    }

    /// Chooses changes: in turns the insertion of a new entry, and the removal of any.
    fn choose(&mut self, changes: usize) {
        for _ in 0..changes {
            if self.numbers.len().is_multiple_of(2) {
                self.numbers.push(self.next);
                self.changes.push((self.next, true));
                self.next += 1;
            } else {
                let index = self.rng.usize(..self.numbers.len());
                self.changes.push((self.numbers.swap_remove(index), false));
            }
        }
    }
}

impl<K: Kind> Collection for Keys<K> {
    const NAME: &'static str = K::NAME;

    fn fill(limits: NodeLimits, entries: usize) -> Self {
        let mut keys = Self::new(limits, entries);
        for (at, (tree, &len)) in keys.trees.iter_mut().zip(K::KEYS).enumerate() {
            for &number in &keys.numbers {
                tree.change(|editor| {
                    let key = Key::new(number, len);
                    assert!(editor.put(key.bytes(), Self::value(at, &value(number))));
                });
            }
        }
        keys
    }

    fn build(limits: NodeLimits, entries: usize) -> Self {
        let mut keys = Self::new(limits, entries);
        for (at, (tree, &len)) in keys.trees.iter_mut().zip(K::KEYS).enumerate() {
            keys.numbers
                .sort_unstable_by_key(|&number| scramble(number));
            let mut builder = TreeBuilder::<KeyOrder>::new(VersionStamp(1), limits);
            for &number in &keys.numbers {
                let key = Key::new(number, len);
                builder.push(key.bytes(), Self::value(at, &value(number)));
            }
            tree.publish(builder.finish());
        }
        keys
    }

    fn update(&mut self) -> bool {
        let key = self.any(0);
        if K::VALUED {
            let value = value(self.rng.u64(..) << 32 | key.number());
            self.trees[0].change(|editor| assert!(!editor.put(key.bytes(), &value)));
        }
        K::VALUED
    }

    fn change(&mut self, changes: usize) {
        self.choose(changes);
        for (at, (tree, &len)) in self.trees.iter_mut().zip(K::KEYS).enumerate() {
            tree.change(|editor| {
                for &(number, is_insertion) in &self.changes {
                    let key = Key::new(number, len);
                    assert!(if is_insertion {
                        editor.put(key.bytes(), Self::value(at, &value(number)))
                    } else {
                        editor.remove(key.bytes())
                    });
                }
            });
        }
        self.changes.clear();
    }

    fn push_or_pop(&mut self) -> bool {
        false
    }

    fn get(&mut self) -> bool {
        let key = self.any(K::LOOKED_UP);
        let value = self.trees[K::LOOKED_UP].view().get(key.bytes());
        let value = value.expect("the entry exists");
        assert!(!K::VALUED || number(value) as u32 == key.number() as u32);
        true
    }

    fn nth(&mut self) -> bool {
        let position = self.rng.usize(..self.numbers.len());
        let entry = self.trees[0].view().nth(position);
        assert_eq!(entry.map(|(key, _)| key.len()), Some(K::KEYS[0]));
        true
    }

    fn rank(&mut self) -> bool {
        let key = self.any(0);
        assert!(self.trees[0].view().rank(key.bytes()).is_ok());
        true
    }

    fn bytes(&mut self) -> usize {
        self.trees.iter_mut().map(Versions::bytes).sum()
    }

    fn made(&self) -> usize {
        self.trees.iter().map(Versions::made).sum()
    }

    fn check(&self) {
        let mut numbers = self.numbers.clone();
        numbers.sort_unstable_by_key(|&number| scramble(number));
        for (at, (tree, &len)) in self.trees.iter().zip(K::KEYS).enumerate() {
            let view = tree.view();
            assert_eq!(view.len(), numbers.len());
            for ((key, value), &expected) in view.iter().zip(&numbers) {
                assert_eq!(key, Key::new(expected, len).bytes());
                assert!(!Self::has_values(at) || number(value) as u32 == expected as u32);
            }
        }
    }
}

/// A list, whose first value is a number and whose others are one more than those before them, until values
/// are changed at random positions.
pub struct List {
    values: Versions<PositionOrder>,
    rng: fastrand::Rng,
    /// The number of values that were pushed.
    pushed: u64,
    /// The sum of the values.
    sum: u64,
}

impl List {
    fn new(limits: NodeLimits, entries: usize) -> Self {
        let pushed = entries as u64;
        List {
            values: Versions::new(limits),
            rng: fastrand::Rng::with_seed(1),
            pushed,
            sum: (0..pushed).sum(),
        }
    }

    fn at(&self, position: usize) -> u64 {
        number(self.values.view().nth(position).expect("a value").1)
    }
}

impl Collection for List {
    const NAME: &'static str = "list";

    fn fill(limits: NodeLimits, entries: usize) -> Self {
        let mut list = List::new(limits, entries);
        for number in 0..entries {
            let value = value(number as u64);
            list.values.change(|editor| editor.insert(number, &value));
        }
        list
    }

    fn build(limits: NodeLimits, entries: usize) -> Self {
        let mut list = List::new(limits, entries);
        let mut builder = TreeBuilder::<PositionOrder>::new(VersionStamp(1), limits);
        (0..entries as u64).for_each(|number| builder.push(&value(number)));
        list.values.publish(builder.finish());
        list
    }

    fn update(&mut self) -> bool {
        let position = self.rng.usize(..self.values.view().len());
        let new = self.rng.u64(..1000);
        self.sum = self.sum - self.at(position) + new;
        let value = value(new);
        self.values
            .change(|editor| editor.replace(position, &value));
        true
    }

    fn change(&mut self, changes: usize) {
        let List {
            values, rng, sum, ..
        } = self;
        values.change(|editor| {
            for _ in 0..changes {
                let len = editor.view().len();
                let position = rng.usize(..len);
                if len.is_multiple_of(2) {
                    let new = rng.u64(..1000);
                    *sum += new;
                    editor.insert(position, &value(new));
                } else {
                    let (_, old) = editor.view().nth(position).expect("a value");
                    *sum -= number(old);
                    editor.remove_range(position..position + 1);
                }
            }
        });
    }

    fn push_or_pop(&mut self) -> bool {
        let len = self.values.view().len();
        if len.is_multiple_of(2) {
            let value = value(self.pushed);
            self.sum += self.pushed;
            self.pushed += 1;
            self.values.change(|editor| editor.insert(len, &value));
        } else {
            self.sum -= self.at(0);
            self.values.change(|editor| editor.remove_range(0..1));
        }
        true
    }

    fn get(&mut self) -> bool {
        false
    }

    fn nth(&mut self) -> bool {
        let position = self.rng.usize(..self.values.view().len());
        assert!(self.at(position) < self.pushed);
        true
    }

    fn rank(&mut self) -> bool {
        false
    }

    fn bytes(&mut self) -> usize {
        self.values.bytes()
    }

    fn made(&self) -> usize {
        self.values.made()
    }

    fn check(&self) {
        let values = self.values.view().iter().map(|(_, value)| number(value));
        assert_eq!(values.sum::<u64>(), self.sum);
    }
}
