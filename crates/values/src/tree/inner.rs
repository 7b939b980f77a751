//! Inner nodes: children, the entries below each of them, and separators of their keys.
//!
//! The body has, for n children, in the order of keys:
//!
//! | bytes | field |
//! |---|---|
//! | 8 n | heads of the separators: their first eight bytes as a number |
//! | 4 n | entries below each child |
//! | 4 n | ends of the separators, counted from the first one's begin |
//! | used | separators |
//! | … | unused |
//! | 8 n | addresses of the children, the first one last |
//!
//! In the order of positions it has the second and the last field only. A search reads the first field, which
//! is prefetched, and then one address.
//!
//! Invariants:
//! 1. All children have the same height, which is one less than the node's.
//! 2. In the order of keys, the separator of a child is greater than every key below the children before it,
//!    and not greater than any key below the child. The first child has an empty one, which is not used.
//! 3. A child is at most as young as its parent: a change copies the path to it.

use std::hint::select_unpredictable;
use std::marker::PhantomData;

use smallvec::SmallVec;

use super::node::{HEADER_BYTES, NewNode, NodeMut, NodePtr, NodeRef};
use super::search_key::{SearchKey, key_head};
use super::{TreeOrder, VersionStamp};

const ADDRESS_BYTES: usize = 8;
const FIELD_BYTES: usize = 4;
const HEAD_BYTES: usize = 8;

/// Returns the bytes in front of the numbers of entries, for each child.
const fn head_bytes<O: TreeOrder>() -> usize {
    if O::KEYED { HEAD_BYTES } else { 0 }
}

/// The bytes that separate the keys of two neighbouring nodes.
pub(super) type Separator = SmallVec<[u8; 16]>;

/// Returns the shortest prefix of `right` that is greater than `left`, a lesser key.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Separator {
    let equal = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    Separator::from_slice(&right[..right.len().min(equal + 1)])
}

/// A child, as an inner node has it.
#[derive(Debug)]
pub(super) struct ChildSlot {
    pub(super) node: NodePtr,
    pub(super) total: usize,
    pub(super) separator: Separator,
}

/// An inner node that others may read as well.
#[derive(Debug)]
pub(super) struct InnerRef<'a, O> {
    node: NodeRef<'a>,
    body: &'a [u8],
    order: PhantomData<O>,
}

impl<O> Clone for InnerRef<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for InnerRef<'_, O> {}

impl<'a, O: TreeOrder> InnerRef<'a, O> {
    #[inline]
    pub(super) fn new(node: NodeRef<'a>) -> Self {
        debug_assert!(node.height() > 0);
        let body = node.body();
        let order = PhantomData;
        InnerRef { node, body, order }
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        self.node.count()
    }

    #[inline]
    pub(super) fn child(self, index: usize) -> NodeRef<'a> {
        self.node.child(index)
    }

    #[inline]
    fn field(self, array: usize, index: usize) -> usize {
        let at = array + index * FIELD_BYTES;
        let field = self.body[at..at + FIELD_BYTES].try_into();
        u32::from_le_bytes(field.expect("four bytes")) as usize
    }

    /// Returns the entries below each child.
    #[inline]
    fn totals(self) -> impl Iterator<Item = usize> + 'a {
        let count = self.count();
        let fields = &self.body[head_bytes::<O>() * count..][..FIELD_BYTES * count];
        let fields = fields.as_chunks::<FIELD_BYTES>().0.iter();
        fields.map(|field| u32::from_le_bytes(*field) as usize)
    }

    /// Returns the entries below a child.
    pub(super) fn total(self, index: usize) -> usize {
        self.field(head_bytes::<O>() * self.count(), index)
    }

    /// Returns the entries below the children before this one.
    #[inline]
    pub(super) fn total_before(self, index: usize) -> usize {
        self.totals().take(index).sum()
    }

    /// Returns a separator; it is empty without keys.
    #[inline]
    pub(super) fn separator(self, index: usize) -> &'a [u8] {
        if !O::KEYED || index == 0 {
            return &[];
        }
        let ends = (HEAD_BYTES + FIELD_BYTES) * self.count();
        let separators = &self.body[ends + FIELD_BYTES * self.count()..];
        &separators[self.field(ends, index - 1)..self.field(ends, index)]
    }

    /// Returns the child that has a key, or would have it.
    #[inline]
    pub(super) fn child_of_key(self, key: SearchKey<'_>) -> usize {
        let count = self.count();
        let heads = self.body[..HEAD_BYTES * count].as_chunks::<HEAD_BYTES>().0;
        let (mut low, mut children) = (0, count);
        while children > 1 {
            let half = children / 2;
            let head = u64::from_le_bytes(heads[low + half]);
            let reaches = key.reaches_head(head, || self.separator(low + half));
            low = select_unpredictable(reaches, low + half, low);
            children -= half;
        }
        low
    }

    /// Returns the first child that ends at or behind `end`, a number of entries, and the entries before it.
    #[inline]
    pub(super) fn child_until(self, end: usize) -> (usize, usize) {
        let mut before = 0;
        let last = self.count() - 1;
        for (index, total) in self.totals().take(last).enumerate() {
            if end <= before + total {
                return (index, before);
            }
            before += total;
        }
        (last, before)
    }

    pub(super) fn slots(self) -> Vec<ChildSlot> {
        (0..self.count())
            .map(|index| ChildSlot {
                node: self.child(index).pointer(),
                total: self.total(index),
                separator: Separator::from_slice(self.separator(index)),
            })
            .collect()
    }
}

/// Makes an inner node.
pub(super) fn new_inner<O: TreeOrder>(
    slots: &[ChildSlot],
    height: u8,
    birth: VersionStamp,
) -> NewNode {
    let count = slots.len();
    let separators = || {
        let others = slots.iter().skip(1).map(|slot| &slot.separator[..]);
        std::iter::once(&[][..]).chain(others)
    };
    let field = |value: usize| {
        let value = u32::try_from(value).expect("totals and separators have less than 2^32");
        value.to_le_bytes()
    };
    let mut body = Vec::with_capacity(32 * count);
    if O::KEYED {
        separators().for_each(|separator| body.extend(key_head(separator).to_le_bytes()));
    }
    slots.iter().for_each(|slot| body.extend(field(slot.total)));
    let mut used = 0;
    if O::KEYED {
        for separator in separators() {
            used += separator.len();
            body.extend(field(used));
        }
        separators().for_each(|separator| body.extend_from_slice(separator));
    }
    let bytes = HEADER_BYTES + body.len() + ADDRESS_BYTES * count;
    let mut new = NewNode::new(bytes, height, birth, &[&body]);
    let node = new.as_mut();
    node.set_count(count);
    node.set_used(used);
    node.set_total(slots.iter().map(|slot| slot.total).sum());
    for (index, slot) in slots.iter().enumerate() {
        node.set_child(index, slot.node);
    }
    new
}

/// Replaces a child of an inner node by another one with the same separator.
pub(super) fn replace_child<O: TreeOrder>(
    node: &mut NodeMut<'_>,
    index: usize,
    child: NodePtr,
    total: usize,
) {
    let inner = InnerRef::<O>::new(node.as_ref());
    let at = head_bytes::<O>() * inner.count() + FIELD_BYTES * index;
    let all = node.as_ref().total() - inner.total(index) + total;
    node.set_total(all);
    node.set_child(index, child);
    let field = u32::try_from(total).expect("a tree has less than 2^32 entries");
    node.body()[at..at + FIELD_BYTES].copy_from_slice(&field.to_le_bytes());
}
