//! Sizes of nodes and entries.

use super::super::{NodeLimits, TreeBuilder, TreeView};
use super::{ALL_LIMITS, KeyChain, PositionChain, SMALL};
use crate::tree::TreeOrder;
use crate::tree::inner::InnerRef;
use crate::tree::leaf::{LeafRef, leaf_bytes};
use crate::tree::node::NodeRef;

/// Returns the number of leaves, and the mean of their bytes.
fn leaves<O: TreeOrder>(tree: &TreeView<'_, O>) -> (usize, usize) {
    fn add<O: TreeOrder>(node: NodeRef<'_>, sum: &mut (usize, usize)) {
        if node.height() > 0 {
            let inner = InnerRef::<O>::new(node);
            return (0..inner.count()).for_each(|index| add::<O>(inner.child(index), sum));
        }
        let leaf = LeafRef::<O>::new(node);
        sum.0 += 1;
        sum.1 += leaf_bytes::<O>(leaf.used(), leaf.count());
    }
    let mut sum = (0, 0);
    add::<O>(tree.root().expect("a root"), &mut sum);
    (sum.0, sum.1 / sum.0)
}

fn assert_full<O: TreeOrder>(tree: &TreeView<'_, O>, limits: NodeLimits, percent: usize) {
    let (_, mean) = leaves(tree);
    assert!(mean * 100 >= limits.leaf_bytes * percent, "{mean} bytes");
}

#[test]
fn appended_and_built_leaves_are_full() {
    for limits in ALL_LIMITS {
        let mut appended = PositionChain::new(limits);
        for _ in 0..2000 {
            appended.commit(|editor| editor.insert(editor.view().len(), b"0123456789"));
            appended.release(0, 10);
        }
        assert_full(&appended.current(), limits, 85);
        let mut prepended = PositionChain::new(limits);
        prepended.commit(|editor| (0..2000).for_each(|_| editor.insert(0, b"0123456789")));
        assert_full(&prepended.current(), limits, 85);
        let mut built = KeyChain::new(limits);
        let mut builder = TreeBuilder::<super::KeyOrder>::new(built.next_stamp(), limits);
        (0..9999_u64).for_each(|number| builder.push(&number.to_be_bytes(), b""));
        built.publish(builder.finish());
        assert_full(&built.current(), limits, 90);
    }
}

#[test]
fn leaves_of_a_queue_stay_full() {
    for limits in ALL_LIMITS {
        let mut chain = PositionChain::new(limits);
        chain.commit(|editor| (0..500).for_each(|_| editor.insert(0, b"0123456789")));
        for _ in 0..2000 {
            chain.commit(|editor| {
                editor.insert(0, b"9876543210");
                editor.remove_range(500..501);
            });
            chain.release(0, 10);
        }
        chain.check();
        let (count, _) = leaves(&chain.current());
        let full = 500 * 11 / (limits.leaf_bytes - 48) + 1;
        assert!(count <= full + 2, "{count} leaves in place of {full}");
    }
}

#[test]
fn removals_leave_no_small_leaves() {
    for limits in ALL_LIMITS {
        let mut chain = KeyChain::new(limits);
        let mut keys: Vec<[u8; 8]> = (0..4000_u64).map(u64::to_be_bytes).collect();
        fastrand::Rng::with_seed(3).shuffle(&mut keys);
        chain.commit(|editor| keys.iter().for_each(|key| assert!(editor.put(key, b"v"))));
        for key in &keys[200..] {
            chain.commit(|editor| assert!(editor.remove(key)));
            chain.release(0, 10);
        }
        chain.check();
        assert_full(&chain.current(), limits, 25);
        for key in &keys[..200] {
            chain.commit(|editor| assert!(editor.remove(key)));
        }
        assert!(chain.current().is_empty());
    }
}

#[test]
fn lengths_at_the_limits_of_their_encodings() {
    let lengths = [
        0,
        1,
        253,
        254,
        255,
        256,
        65534,
        65535,
        65536,
        65537,
        1 << 20,
    ];
    let mut keys = KeyChain::new(SMALL);
    let mut positions = PositionChain::new(SMALL);
    for (number, len) in lengths.into_iter().enumerate() {
        let long = vec![b'x'; len];
        keys.commit(|editor| assert!(editor.put(&long, &number.to_be_bytes())));
        keys.commit(|editor| {
            assert!(editor.put(&[b"v", &number.to_be_bytes()[..]].concat(), &long))
        });
        positions.commit(|editor| editor.insert(number / 2, &long));
        keys.check_nodes();
        positions.check_nodes();
    }
    for (number, len) in lengths.into_iter().enumerate() {
        let long = vec![b'x'; len];
        assert_eq!(keys.current().get(&long), Some(&number.to_be_bytes()[..]));
        let value = keys
            .current()
            .get(&[b"v", &number.to_be_bytes()[..]].concat());
        assert_eq!(value, Some(&long[..]));
    }
    let mut stored: Vec<_> = positions
        .current()
        .iter()
        .map(|(_, value)| value.len())
        .collect();
    stored.sort_unstable();
    assert_eq!(stored, lengths);
    for _ in lengths {
        positions.commit(|editor| editor.remove_range(0..1));
        positions.check_nodes();
    }
}

#[test]
fn a_thousand_changes_copy_each_node_once() {
    let limits = NodeLimits::default();
    let mut chain = KeyChain::new(limits);
    let mut builder = TreeBuilder::<super::KeyOrder>::new(chain.next_stamp(), limits);
    (0..20_000_u64).for_each(|number| builder.push(&number.to_be_bytes(), b"00000000"));
    chain.publish(builder.finish());
    let (nodes, _) = leaves(&chain.current());
    chain.commit(|editor| {
        for number in 0..20_000_u64 {
            assert!(!editor.put(&number.to_be_bytes(), b"11111111"));
        }
        let (leaf_count, mean) = leaves(&editor.view());
        assert_eq!(leaf_count, nodes);
        let all = nodes * limits.leaf_bytes * 11 / 10;
        assert!(
            editor.allocated() <= all,
            "{} bytes, {mean} a leaf",
            editor.allocated()
        );
    });
}

#[test]
fn removing_a_range_copies_only_its_borders() {
    let limits = NodeLimits::default();
    let mut chain = PositionChain::new(limits);
    let mut builder = TreeBuilder::<super::PositionOrder>::new(chain.next_stamp(), limits);
    (0..100_000).for_each(|_| builder.push(b"0123456789"));
    chain.publish(builder.finish());
    chain.commit(|editor| {
        editor.remove_range(1000..99_000);
        assert!(editor.allocated() <= 8 * limits.leaf_bytes);
    });
    chain.check();
    assert_eq!(chain.current().len(), 2000);
}
