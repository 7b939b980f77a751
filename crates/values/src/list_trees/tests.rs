//! Random changes of lists in trees, beside vectors, over versions of which any but the newest can leave.

#![allow(unsafe_code)]

use super::*;

struct ListVersion {
    stamp: VersionStamp,
    roots: ListRoots,
    replaced: ReplacedNodes,
    elements: Vec<Vec<u8>>,
}

/// Versions, the newest last, and the bytes of their nodes.
struct Versions {
    versions: Vec<ListVersion>,
    bytes: usize,
}

impl Versions {
    fn newest(&self) -> &ListVersion {
        self.versions.last().expect("there is always a version")
    }

    fn publish(&mut self, trees: ListTrees, stamp: VersionStamp, elements: Vec<Vec<u8>>) {
        // SAFETY: the newest version has no successor yet, and gets this one.
        let (roots, replaced, allocated) = unsafe { trees.publish() };
        self.bytes += allocated;
        if let Some(newest) = self.versions.last_mut() {
            newest.replaced = replaced;
        }
        self.versions.push(ListVersion {
            stamp,
            roots,
            replaced: ReplacedNodes::default(),
            elements,
        });
    }

    /// Takes a version that is not the newest out of the chain, and frees the nodes that no other has.
    fn release(&mut self, index: usize) {
        let mut left = self.versions.remove(index).replaced;
        if let Some(older) = index.checked_sub(1).map(|index| &mut self.versions[index]) {
            older.replaced.append(left.split_off_older(older.stamp));
        }
        // SAFETY: no version has the nodes, and there is no view.
        self.bytes -= unsafe { left.free_some(usize::MAX) }.bytes;
    }

    fn check(&self, random: &mut fastrand::Rng) {
        for version in &self.versions {
            // SAFETY: the nodes of versions in the chain are not freed.
            let view = unsafe { version.roots.view() };
            let model = &version.elements;
            assert_eq!(view.len(), model.len());
            let from = random.usize(..=model.len());
            assert!(view.iter_from(from).eq(&model[from..]));
            assert_eq!(view.nth(from), model.get(from).map(Vec::as_slice));
            for end in [HEAD, TAIL] {
                let tree = view.0[end];
                let leaf = tree.only_leaf();
                assert_eq!(leaf.map_or(0, EntryRun::count), tree.len(), "one leaf");
                assert!(leaf.map_or(0, EntryRun::bytes) <= END_BYTES);
            }
        }
    }
}

/// Returns an element; few have no room at an end.
fn element(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = match random.u8(..40) {
        0 => 3000,
        1 => END_BYTES - LENGTH_BYTES,
        2 => 0,
        3..8 => random.usize(..200),
        _ => 10,
    };
    vec![random.u8(..); length]
}

fn change(trees: &mut ListTrees, model: &mut Vec<Vec<u8>>, random: &mut fastrand::Rng) {
    let (len, new) = (model.len(), element(random));
    match random.u8(..20) {
        0..7 => {
            trees.insert(0, &new);
            model.insert(0, new);
        }
        7..13 => {
            trees.insert(len, &new);
            model.push(new);
        }
        13..15 => {
            let count = random.usize(..4).min(len);
            trees.remove_range(0..count);
            model.drain(..count);
        }
        15..17 => {
            let count = random.usize(..4).min(len);
            trees.remove_range(len - count..len);
            model.truncate(len - count);
        }
        17 => {
            let longest = if random.u8(..16) == 0 { len } else { 9 };
            let start = random.usize(..=len);
            let end = random.usize(start..=len.min(start + longest));
            trees.remove_range(start..end);
            model.drain(start..end);
        }
        18 if len > 0 => {
            let near = random.usize(..len.min(30));
            let places = [near, len - 1 - near, random.usize(..len)];
            let at = random.choice(places).expect("there are three");
            trees.replace(at, &new);
            model[at] = new;
        }
        _ => {
            let at = random.usize(..=len);
            trees.insert(at, &new);
            model.insert(at, new);
        }
    }
}

#[test]
fn lists_in_trees_are_as_vectors_in_all_versions() {
    for seed in 0..8 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let mut all = Versions {
            versions: Vec::new(),
            bytes: 0,
        };
        let stamp = VersionStamp(1);
        let packed = ListTrees::of_packed(PackedView::new(b""), stamp);
        all.publish(packed, stamp, Vec::new());
        for _ in 0..600 {
            let stamp = VersionStamp(all.newest().stamp.0 + 1);
            let mut model = all.newest().elements.clone();
            // SAFETY: the newest version's nodes are not freed while this is its editor.
            let mut trees = unsafe { all.newest().roots.edit(stamp) };
            let changes = if random.bool() {
                1
            } else {
                random.usize(..100)
            };
            (0..changes).for_each(|_| change(&mut trees, &mut model, random));
            assert!(trees.view().iter_from(0).eq(&model));
            // Some are dropped: the newest version is as it was.
            if random.u8(..4) > 0 {
                all.publish(trees, stamp, model);
            }
            while all.versions.len() > 1 && random.bool() || all.versions.len() > 6 {
                all.release(random.usize(..all.versions.len() - 1));
            }
            all.check(random);
        }
        // A copy shares no nodes: it stays when all versions have gone.
        let newest = all.newest();
        // SAFETY: as above.
        let (view, elements) = (unsafe { newest.roots.view() }, newest.elements.clone());
        let copy = ListTrees::of_copy(view, stamp);
        // SAFETY: the list is deleted.
        all.versions.last_mut().expect("the newest").replaced =
            unsafe { newest.roots.replace_all() };
        while !all.versions.is_empty() {
            all.release(0);
        }
        assert_eq!(all.bytes, 0);
        assert!(copy.view().iter_from(0).eq(&elements));
    }
}

/// Most changes at the ends copy one short leaf.
#[test]
fn changes_at_the_ends_copy_short_leaves() {
    let elements: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let mut block = crate::packed::PackedEditor::new(crate::packed::BlockForm::Single, b"");
    for element in &elements {
        block.push(element.as_bytes(), b"");
    }
    let block = block.into_changed().expect("it has elements");
    let stamp = VersionStamp(1);
    let mut all = Versions {
        versions: Vec::new(),
        bytes: 0,
    };
    all.publish(
        ListTrees::of_packed(PackedView::new(&block), stamp),
        stamp,
        Vec::new(),
    );
    let changes: [fn(&mut ListTrees, usize); 4] = [
        |trees, _| trees.insert(0, b"an element"),
        |trees, len| trees.insert(len, b"an element"),
        |trees, _| trees.remove_range(0..1),
        |trees, len| trees.remove_range(len - 1..len),
    ];
    for change in changes {
        let before = all.bytes;
        const ROUNDS: usize = 1000;
        for _ in 0..ROUNDS {
            let stamp = VersionStamp(all.newest().stamp.0 + 1);
            // SAFETY: the newest version's nodes are not freed while this is its editor.
            let mut trees = unsafe { all.newest().roots.edit(stamp) };
            let len = trees.view().len();
            change(&mut trees, len);
            all.publish(trees, stamp, Vec::new());
        }
        let copied = (all.bytes - before) / ROUNDS;
        assert!(copied < 700, "{copied} bytes");
    }
    let newest = all.versions.last_mut().expect("the newest");
    // SAFETY: the list is deleted.
    newest.replaced = unsafe { newest.roots.replace_all() };
    while !all.versions.is_empty() {
        all.release(0);
    }
    assert_eq!(all.bytes, 0);
}
