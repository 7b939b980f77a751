//! The entries of a tree that is built at once, in any order.

use crate::tree::{KeyOrder, NodeLimits, TreeBuilder, TreeEditor, VersionStamp};

/// Entries with distinct keys. Their bytes lie one after the other, so that few allocations are made.
#[derive(Default)]
pub(super) struct UnsortedEntries {
    bytes: Vec<u8>,
    entries: Vec<EntryPlace>,
}

struct EntryPlace {
    /// The first eight bytes of the key as a number, which decide most comparisons.
    head: u64,
    start: usize,
    key_len: u32,
    value_len: u32,
}

impl UnsortedEntries {
    /// Adds an entry.
    ///
    /// # Panics
    /// Panics if the key or the value has 4 GiB.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("it has less than 4 GiB");
        let mut head = [0; 8];
        let shown = key.len().min(head.len());
        head[..shown].copy_from_slice(&key[..shown]);
        self.entries.push(EntryPlace {
            head: u64::from_be_bytes(head),
            start: self.bytes.len(),
            key_len: len(key),
            value_len: len(value),
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Returns a tree of the entries. If they come in the order of their keys, the time that it takes is linear.
    pub(super) fn into_tree(mut self, stamp: VersionStamp) -> TreeEditor<KeyOrder> {
        let bytes = &self.bytes;
        let key = |entry: &EntryPlace| &bytes[entry.start..][..entry.key_len as usize];
        self.entries.sort_unstable_by(|left, right| {
            left.head
                .cmp(&right.head)
                .then_with(|| key(left).cmp(key(right)))
        });
        let mut tree = TreeBuilder::<KeyOrder>::new(stamp, NodeLimits::default());
        for entry in &self.entries {
            let value = entry.start + entry.key_len as usize;
            tree.push(key(entry), &bytes[value..][..entry.value_len as usize]);
        }
        tree.finish()
    }
}
