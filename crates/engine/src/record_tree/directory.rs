//! The leaves in their order.
//!
//! Leaves lie in groups. A leaf and a group each have a fence, the lowest key that belongs to it; that of the first ones
//! is the empty key. A group and its first leaf have the same fence.

use parking_lot::Mutex;

use super::leaf::{Leaf, MOST, common_prefix};
use crate::record::RecordRef;

/// The most leaves of a group.
const MOST_LEAVES: usize = 256;

/// A lower bound of keys.
#[derive(Clone, Default)]
struct Fence {
    /// The first eight bytes of the key, zero where it ends: most comparisons need no more.
    prefix: u64,
    key: Box<[u8]>,
}

impl Fence {
    fn new(key: &[u8]) -> Fence {
        Fence {
            prefix: prefix(key),
            key: key.into(),
        }
    }

    /// Returns `true` if this key belongs to what the fence begins, or to something behind it.
    fn admits(&self, prefix: u64, key: &[u8]) -> bool {
        self.prefix < prefix || self.prefix == prefix && *self.key <= *key
    }
}

/// Returns the first eight bytes of a key as a number.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

/// Something that begins at a fence.
struct Fenced<T> {
    fence: Fence,
    content: T,
}

/// Returns the position of the last one to which a key can belong: the first one admits all keys.
fn last_admitting<T>(parts: &[Fenced<T>], prefix: u64, key: &[u8]) -> usize {
    parts[1..].partition_point(|part| part.fence.admits(prefix, key))
}

type LeafGroup = Vec<Fenced<Mutex<Leaf>>>;

/// The place of a leaf: the position of its group, and that within the group.
#[derive(Clone, Copy)]
pub(super) struct LeafPlace {
    group: usize,
    leaf: usize,
}

/// See the module's description.
pub(super) struct Directory(Vec<Fenced<LeafGroup>>);

impl Default for Directory {
    /// Returns a directory of one empty leaf.
    fn default() -> Directory {
        let leaf = Fenced {
            fence: Fence::default(),
            content: Mutex::default(),
        };
        Directory(vec![Fenced {
            fence: Fence::default(),
            content: vec![leaf],
        }])
    }
}

impl Directory {
    /// Returns the place of the leaf to which a key belongs.
    pub(super) fn place(&self, key: &[u8]) -> LeafPlace {
        let prefix = prefix(key);
        let group = last_admitting(&self.0, prefix, key);
        let leaf = last_admitting(&self.0[group].content, prefix, key);
        LeafPlace { group, leaf }
    }

    /// Returns a leaf, not yet locked.
    pub(super) fn leaf(&self, place: LeafPlace) -> &Mutex<Leaf> {
        &self.0[place.group].content[place.leaf].content
    }

    pub(super) fn leaf_mut(&mut self, place: LeafPlace) -> &mut Leaf {
        self.0[place.group].content[place.leaf].content.get_mut()
    }

    /// Returns the place of the next leaf.
    pub(super) fn next(&self, place: LeafPlace) -> Option<LeafPlace> {
        let LeafPlace { group, leaf } = place;
        if leaf + 1 < self.0[group].content.len() {
            let leaf = leaf + 1;
            return Some(LeafPlace { group, leaf });
        }
        let group = group + 1;
        (group < self.0.len()).then_some(LeafPlace { group, leaf: 0 })
    }

    /// Splits a leaf if it is full. `key` is about to be added to it.
    pub(super) fn make_room(&mut self, place: LeafPlace, key: &[u8]) {
        let leaf = self.leaf_mut(place);
        let Some((_, last)) = leaf.bounds().filter(|_| leaf.is_full()) else {
            return;
        };
        // Keys that come in their order leave full leaves behind them.
        let is_last = last < key;
        let (fence, next) = if is_last && self.next(place).is_none() {
            (
                separator(last_key(self.leaf_mut(place)), key),
                Leaf::default(),
            )
        } else {
            let leaf = self.leaf_mut(place);
            let next = leaf.split(MOST / 2);
            let first = next.bounds().map_or(&[][..], |(first, _)| first);
            (separator(last_key(leaf), first), next)
        };
        let next = Fenced {
            fence,
            content: Mutex::new(next),
        };
        let group = &mut self.0[place.group].content;
        group.insert(place.leaf + 1, next);
        if group.len() > MOST_LEAVES {
            // As above: groups that grow at their end stay full.
            let is_last = place.group + 1 == self.0.len();
            let at = if is_last {
                MOST_LEAVES * 7 / 8
            } else {
                MOST_LEAVES / 2
            };
            let content = self.0[place.group].content.split_off(at);
            let fence = content[0].fence.clone();
            self.0.insert(place.group + 1, Fenced { fence, content });
        }
    }

    /// Joins a leaf with the next one or the one before, or removes it if it is empty, where that is possible within
    /// its group.
    pub(super) fn join(&mut self, place: LeafPlace) {
        let group = &mut self.0[place.group].content;
        let is_empty = group[place.leaf].content.get_mut().len() == 0;
        if group.len() == 1 {
            if is_empty && self.0.len() > 1 {
                self.remove_group(place.group);
            }
            return;
        }
        let pairs = group.len() - 1;
        for left in place.leaf.saturating_sub(1)..pairs.min(place.leaf + 1) {
            let [one, next] = &mut group[left..left + 2] else {
                return;
            };
            if one.content.get_mut().can_join(next.content.get_mut()) {
                let next = group.remove(left + 1);
                group[left]
                    .content
                    .get_mut()
                    .append(next.content.into_inner());
                return;
            }
        }
    }

    /// Removes a group without records. The keys between its fence and the next one belong to the group before, or, if
    /// there is none, to the next.
    fn remove_group(&mut self, at: usize) {
        let removed = self.0.remove(at);
        if at == 0 {
            let first = &mut self.0[0];
            first.fence = removed.fence.clone();
            first.content[0].fence = removed.fence;
        }
    }

    /// Returns all records.
    pub(super) fn into_records(self) -> impl Iterator<Item = RecordRef> {
        let leaves = self.0.into_iter().flat_map(|group| group.content);
        leaves.flat_map(|leaf| leaf.content.into_inner().records().collect::<Vec<_>>())
    }
}

fn last_key(leaf: &Leaf) -> &[u8] {
    leaf.bounds().map_or(&[], |(_, last)| last)
}

/// Returns a short key that is greater than `below` and not greater than `first`.
fn separator(below: &[u8], first: &[u8]) -> Fence {
    debug_assert!(below < first);
    Fence::new(&first[..=common_prefix(below, first)])
}

#[cfg(test)]
impl Directory {
    /// Checks the order of all fences and keys. Returns the numbers of leaves and of records.
    pub(super) fn check(&mut self) -> (usize, usize) {
        let (mut leaves, mut records) = (0, 0);
        let mut last: Option<Vec<u8>> = None;
        for group in &mut self.0 {
            assert_eq!(group.fence.key, group.content[0].fence.key);
            assert!((1..=MOST_LEAVES).contains(&group.content.len()));
            for leaf in &mut group.content {
                leaves += 1;
                let fence = leaf.fence.key.to_vec();
                assert!(last.as_ref().is_none_or(|last| *last < fence));
                let mut is_first = true;
                for record in leaf.content.get_mut().records() {
                    let key = record.key().to_vec();
                    let after = last.as_ref().unwrap_or(&fence);
                    assert!(fence <= key && (is_first || *after < key));
                    (last, is_first) = (Some(key), false);
                    records += 1;
                }
                last = last.max(Some(fence));
            }
        }
        (leaves, records)
    }
}
