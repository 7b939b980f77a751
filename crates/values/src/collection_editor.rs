//! The changes of a large collection.

#![allow(unsafe_code)]

mod change_log;
#[cfg(test)]
mod tests;
mod unsorted_entries;

use std::borrow::Cow;
use std::ops::Range;

use base::transaction::Kind;

use crate::collection::{CollectionRoots, CollectionView, ReplacedTrees, SCORE, map_key};
use crate::hash_field::{HashField, deadline_key};
use crate::leb128::{read_bytes, read_number};
use crate::list_trees::ListTrees;
use crate::packed::{BlockForm, PackedView};
use crate::stream::{StreamChange, StreamRoots, StreamTrees};
use crate::tree::{KeyOrder, NodeLimits, ReplacedNodes, TreeEditor, VersionStamp};
pub use change_log::logged_deadlines;
use change_log::{INSERT, PUT, PUT_EXPIRING, REMOVE, REMOVE_RANGE, REPLACE};
use unsorted_entries::UnsortedEntries;

/// Makes the next version of a collection. Dropping it frees what it has made.
#[derive(Debug)]
pub struct CollectionEditor {
    kind: Kind,
    trees: EditedTrees,
    log: Vec<u8>,
    is_changed: bool,
}

#[derive(Debug)]
enum EditedTrees {
    /// Fields, and their deadlines.
    Hash(TreeEditor<KeyOrder>, TreeEditor<KeyOrder>),
    Set(TreeEditor<KeyOrder>),
    List(ListTrees),
    Sorted(TreeEditor<KeyOrder>, TreeEditor<KeyOrder>),
    Stream(StreamTrees),
}

/// A collection that was published.
#[derive(Debug)]
#[must_use]
pub struct PublishedCollection {
    /// Its roots.
    pub roots: CollectionRoots,
    /// The nodes that the version before has and this one has not.
    pub replaced: ReplacedTrees,
    /// The bytes that were allocated for its nodes.
    pub allocated: usize,
}

impl CollectionEditor {
    /// Returns an editor of the version after the one with these roots.
    ///
    /// # Safety
    /// As for [`TreeRoot::edit`](crate::tree::TreeRoot::edit).
    pub unsafe fn new(roots: CollectionRoots, kind: Kind, stamp: VersionStamp) -> Self {
        let limits = NodeLimits::default();
        // SAFETY: by the caller.
        let trees = unsafe {
            match roots {
                CollectionRoots::Hash(fields, deadlines) => {
                    let [fields, deadlines] =
                        [fields, deadlines].map(|tree| tree.edit(stamp, limits));
                    EditedTrees::Hash(fields, deadlines)
                }
                CollectionRoots::Set(tree) => EditedTrees::Set(tree.edit(stamp, limits)),
                CollectionRoots::List(trees) => EditedTrees::List(trees.edit(stamp)),
                CollectionRoots::Sorted(scores, members) => {
                    let [scores, members] = [scores, members].map(|tree| tree.edit(stamp, limits));
                    EditedTrees::Sorted(scores, members)
                }
                CollectionRoots::Stream(roots) => {
                    let trees = roots.trees.map(|tree| tree.edit(stamp, limits));
                    EditedTrees::Stream(StreamTrees::new(trees, roots.numbers))
                }
            }
        };
        CollectionEditor {
            kind,
            trees,
            log: Vec::new(),
            is_changed: false,
        }
    }

    /// Makes a collection with the elements of another one, whose nodes it does not share, with the stamp of its first
    /// version.
    #[must_use]
    pub fn of_copy(kind: Kind, view: CollectionView<'_>, stamp: VersionStamp) -> CollectionEditor {
        let copy = |tree| TreeEditor::of_copy(tree, stamp);
        let trees = match view {
            CollectionView::Hash(fields, deadlines) => {
                EditedTrees::Hash(copy(fields), copy(deadlines))
            }
            CollectionView::Set(tree) => EditedTrees::Set(copy(tree)),
            CollectionView::List(trees) => EditedTrees::List(ListTrees::of_copy(trees, stamp)),
            CollectionView::Sorted(scores, members) => {
                EditedTrees::Sorted(copy(scores), copy(members))
            }
            CollectionView::Stream(stream) => {
                EditedTrees::Stream(StreamTrees::of_copy(stream, stamp))
            }
        };
        CollectionEditor {
            kind,
            trees,
            log: Vec::new(),
            is_changed: false,
        }
    }

    /// Makes a collection of a packed block, with the stamp of its first version.
    #[must_use]
    pub fn of_packed(kind: Kind, block: &[u8], stamp: VersionStamp) -> CollectionEditor {
        let view = PackedView::new(block);
        let trees = match kind {
            Kind::List => EditedTrees::List(ListTrees::of_packed(view, stamp)),
            Kind::SortedSet => {
                let (mut scores, mut members) = Default::default();
                for element in view.iter() {
                    UnsortedEntries::add(&mut scores, element.first, b"");
                    if let Some((score, member)) = element.first.split_at_checked(SCORE) {
                        UnsortedEntries::add(&mut members, &map_key(member), score);
                    }
                }
                EditedTrees::Sorted(scores.into_tree(stamp), members.into_tree(stamp))
            }
            Kind::Hash => {
                let expires = view.form() == Some(BlockForm::ExpiringPairs);
                let (mut fields, mut deadlines) = Default::default();
                for element in view.iter() {
                    let field = HashField::of_block(element.first, element.second, expires);
                    let Some(field) = field else { continue };
                    UnsortedEntries::add(&mut fields, &map_key(field.name), &field.in_tree());
                    if let Some(deadline) = field.deadline {
                        let key = deadline_key(deadline, field.name);
                        UnsortedEntries::add(&mut deadlines, &key, b"");
                    }
                }
                EditedTrees::Hash(fields.into_tree(stamp), deadlines.into_tree(stamp))
            }
            Kind::Stream => EditedTrees::Stream(StreamTrees::of_packed(block, stamp)),
            _ => {
                let mut members = UnsortedEntries::default();
                for element in view.iter() {
                    members.add(&map_key(element.first), b"");
                }
                EditedTrees::Set(members.into_tree(stamp))
            }
        };
        CollectionEditor {
            kind,
            trees,
            log: Vec::new(),
            is_changed: false,
        }
    }

    /// Returns the collection as it is now.
    #[must_use]
    pub fn view(&self) -> CollectionView<'_> {
        match &self.trees {
            EditedTrees::Hash(fields, deadlines) => {
                CollectionView::Hash(fields.view(), deadlines.view())
            }
            EditedTrees::Set(tree) => CollectionView::Set(tree.view()),
            EditedTrees::List(trees) => CollectionView::List(trees.view()),
            EditedTrees::Sorted(scores, members) => {
                CollectionView::Sorted(scores.view(), members.view())
            }
            EditedTrees::Stream(stream) => CollectionView::Stream(stream.view()),
        }
    }

    /// Returns its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns `true` if changes were made.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Takes the log of the changes that were made.
    #[must_use]
    pub fn take_log(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.log)
    }

    /// Returns the bytes that are allocated for nodes.
    #[must_use]
    pub fn allocated(&self) -> usize {
        match &self.trees {
            EditedTrees::Set(tree) => tree.allocated(),
            EditedTrees::List(trees) => trees.allocated(),
            EditedTrees::Hash(first, second) | EditedTrees::Sorted(first, second) => {
                first.allocated() + second.allocated()
            }
            EditedTrees::Stream(stream) => stream.allocated(),
        }
    }

    /// Returns about the bytes of the nodes that the collection does not have of the version that is edited.
    #[must_use]
    pub fn replaced_bytes(&self) -> usize {
        match &self.trees {
            EditedTrees::Set(tree) => tree.replaced_bytes(),
            EditedTrees::List(trees) => trees.replaced_bytes(),
            EditedTrees::Hash(first, second) | EditedTrees::Sorted(first, second) => {
                first.replaced_bytes() + second.replaced_bytes()
            }
            EditedTrees::Stream(stream) => stream.replaced_bytes(),
        }
    }

    /// Sets a field of a hash, with its deadline or none. Returns `true` if it is new.
    ///
    /// # Panics
    /// Panics if this is no hash.
    pub(crate) fn put_field(&mut self, field: HashField<'_>) -> bool {
        match field.deadline {
            None => self.note(PUT, &[], &[field.name, field.value]),
            Some(deadline) => {
                let deadline = &deadline.to_le_bytes()[..];
                self.note(PUT_EXPIRING, &[], &[deadline, field.name, field.value]);
            }
        }
        let EditedTrees::Hash(fields, deadlines) = &mut self.trees else {
            panic!("only hashes have fields");
        };
        let key = map_key(field.name);
        let old = deadline_in((&*fields, &*deadlines), &key);
        if old != field.deadline {
            if let Some(old) = old {
                deadlines.remove(&deadline_key(old, field.name));
            }
            if let Some(new) = field.deadline {
                deadlines.put(&deadline_key(new, field.name), b"");
            }
        }
        fields.put(&key, &field.in_tree())
    }

    /// Adds a member of a set, or gives a member of a sorted set a sortable score. Returns `true` if it is new.
    ///
    /// # Panics
    /// Panics if this is no set, or the score has not 8 bytes.
    pub fn put(&mut self, element: &[u8], value: &[u8]) -> bool {
        self.note(PUT, &[], &[element, value]);
        match &mut self.trees {
            EditedTrees::Set(tree) => tree.put(&map_key(element), value),
            EditedTrees::Sorted(scores, members) => {
                assert_eq!(value.len(), SCORE, "a score has 8 bytes");
                let key = map_key(element);
                let old = members
                    .view()
                    .get(&key)
                    .map(|score| [score, element].concat());
                if let Some(old) = &old {
                    scores.remove(old);
                }
                scores.put(&[value, element].concat(), b"");
                members.put(&key, value)
            }
            _ => panic!("only sets have members"),
        }
    }

    /// Removes a field or a member. Returns `true` if it was there.
    ///
    /// # Panics
    /// Panics if this is a list or a stream.
    pub fn remove(&mut self, element: &[u8]) -> bool {
        let key = map_key(element);
        let removed = match &mut self.trees {
            EditedTrees::Hash(fields, deadlines) => {
                if let Some(deadline) = deadline_in((&*fields, &*deadlines), &key) {
                    deadlines.remove(&deadline_key(deadline, element));
                }
                fields.remove(&key)
            }
            EditedTrees::Set(tree) => tree.remove(&key),
            EditedTrees::Sorted(scores, members) => {
                let old = members
                    .view()
                    .get(&key)
                    .map(|score| [score, element].concat());
                old.is_some_and(|old| scores.remove(&old) && members.remove(&key))
            }
            EditedTrees::List(_) | EditedTrees::Stream(_) => {
                panic!("only hashes and sets have fields or members")
            }
        };
        if removed {
            self.note(REMOVE, &[], &[element]);
        }
        removed
    }

    /// Inserts an element of a list in front of a position.
    ///
    /// # Panics
    /// Panics if this is no list, or the position is behind its end.
    pub fn insert(&mut self, position: usize, element: &[u8]) {
        self.list().insert(position, element);
        self.note(INSERT, &[position], &[element]);
    }

    /// Replaces an element of a list.
    ///
    /// # Panics
    /// Panics if this is no list, or has no such element.
    pub fn replace(&mut self, position: usize, element: &[u8]) {
        self.list().replace(position, element);
        self.note(REPLACE, &[position], &[element]);
    }

    /// Removes the elements of a list or a sorted set at some positions.
    ///
    /// # Panics
    /// Panics if the range ends behind the last element, or the elements have no positions.
    pub fn remove_range(&mut self, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        match &mut self.trees {
            EditedTrees::Hash(..) | EditedTrees::Set(_) | EditedTrees::Stream(_) => {
                panic!("only the elements of lists and sorted sets have positions")
            }
            EditedTrees::List(trees) => trees.remove_range(positions.clone()),
            EditedTrees::Sorted(scores, members) => {
                let view = scores.view();
                let removed = view.cursor_at(positions.start).take(positions.len());
                for (key, _) in removed {
                    members.remove(&map_key(&key[SCORE..]));
                }
                scores.remove_range(positions.clone());
            }
        }
        self.note(REMOVE_RANGE, &[positions.start, positions.end], &[]);
    }

    /// Makes a change of a stream. Returns `true` if it fits the stream; otherwise nothing is changed.
    ///
    /// # Panics
    /// Panics if this is no stream.
    pub(crate) fn change_stream(&mut self, change: &StreamChange<'_>) -> bool {
        let EditedTrees::Stream(stream) = &mut self.trees else {
            panic!("only streams have entries and groups");
        };
        let fits = stream.apply(change);
        if fits {
            self.is_changed = true;
            change.log(&mut self.log);
        }
        fits
    }

    /// Notes a change, for the log.
    fn note(&mut self, tag: u8, numbers: &[usize], parts: &[&[u8]]) {
        self.is_changed = true;
        change_log::push(&mut self.log, tag, numbers, parts);
    }

    fn list(&mut self) -> &mut ListTrees {
        match &mut self.trees {
            EditedTrees::List(trees) => trees,
            _ => panic!("only lists have positions that are written"),
        }
    }

    /// Makes the changes of a log. Returns `false` if it is malformed, or does not fit the collection.
    #[must_use]
    pub fn apply(&mut self, mut log: &[u8]) -> bool {
        while !log.is_empty() {
            if self.apply_one(&mut log).is_none() {
                return false;
            }
        }
        true
    }

    fn apply_one(&mut self, log: &mut &[u8]) -> Option<()> {
        if self.kind == Kind::Stream {
            let change = StreamChange::read(log)?;
            return self.change_stream(&change).then_some(());
        }
        let read_position = |log: &mut &[u8]| usize::try_from(read_number(log)?).ok();
        let (&tag, rest) = log.split_first()?;
        *log = rest;
        let (is_list, length) = (self.kind == Kind::List, self.view().len());
        match tag {
            PUT | PUT_EXPIRING if self.kind == Kind::Hash => {
                let deadline = match tag {
                    PUT => None,
                    _ => Some(u64::from_le_bytes(read_bytes(log)?.try_into().ok()?)),
                };
                self.put_field(HashField {
                    name: read_bytes(log)?,
                    value: read_bytes(log)?,
                    deadline,
                });
            }
            PUT if !is_list => {
                let (element, value) = (read_bytes(log)?, read_bytes(log)?);
                if self.kind == Kind::SortedSet && value.len() != SCORE {
                    return None;
                }
                self.put(element, value);
            }
            REMOVE if !is_list => drop(self.remove(read_bytes(log)?)),
            INSERT if is_list => {
                let position = read_position(log).filter(|&position| position <= length)?;
                self.insert(position, read_bytes(log)?);
            }
            REPLACE if is_list => {
                let position = read_position(log).filter(|&position| position < length)?;
                self.replace(position, read_bytes(log)?);
            }
            REMOVE_RANGE if matches!(self.kind, Kind::List | Kind::SortedSet) => {
                let (from, to) = (read_position(log)?, read_position(log)?);
                if from > to || to > length {
                    return None;
                }
                self.remove_range(from..to);
            }
            _ => return None,
        }
        Some(())
    }

    /// Makes the collection a version. It does not change from now on.
    ///
    /// # Safety
    /// As for [`TreeEditor::publish`].
    pub unsafe fn publish(self) -> PublishedCollection {
        // SAFETY: by the caller.
        unsafe {
            match self.trees {
                EditedTrees::Hash(fields, deadlines) => {
                    let (fields, deadlines) = (fields.publish(), deadlines.publish());
                    PublishedCollection {
                        roots: CollectionRoots::Hash(fields.root, deadlines.root),
                        replaced: ReplacedTrees([fields.replaced, deadlines.replaced]),
                        allocated: fields.allocated + deadlines.allocated,
                    }
                }
                EditedTrees::Set(tree) => {
                    let tree = tree.publish();
                    PublishedCollection {
                        roots: CollectionRoots::Set(tree.root),
                        replaced: ReplacedTrees([tree.replaced, ReplacedNodes::default()]),
                        allocated: tree.allocated,
                    }
                }
                EditedTrees::List(trees) => {
                    let (roots, replaced, allocated) = trees.publish();
                    PublishedCollection {
                        roots: CollectionRoots::List(roots),
                        replaced: ReplacedTrees([replaced, ReplacedNodes::default()]),
                        allocated,
                    }
                }
                EditedTrees::Sorted(scores, members) => {
                    let (scores, members) = (scores.publish(), members.publish());
                    PublishedCollection {
                        roots: CollectionRoots::Sorted(scores.root, members.root),
                        replaced: ReplacedTrees([scores.replaced, members.replaced]),
                        allocated: scores.allocated + members.allocated,
                    }
                }
                EditedTrees::Stream(stream) => {
                    let (trees, numbers) = stream.into_parts();
                    let [nodes, groups] = trees.map(|tree| tree.publish());
                    let trees = [nodes.root, groups.root];
                    PublishedCollection {
                        roots: CollectionRoots::Stream(StreamRoots { trees, numbers }),
                        replaced: ReplacedTrees([nodes.replaced, groups.replaced]),
                        allocated: nodes.allocated + groups.allocated,
                    }
                }
            }
        }
    }
}

/// Returns the deadline of the field of a hash that has this key.
fn deadline_in(
    (fields, deadlines): (&TreeEditor<KeyOrder>, &TreeEditor<KeyOrder>),
    key: &[u8],
) -> Option<u64> {
    if deadlines.view().is_empty() {
        return None;
    }
    HashField::of_tree(b"", fields.view().get(key)?)?.deadline
}

/// Returns the bytes of a value in a form that does not depend on how it came to be: the elements of hashes and
/// sets are in the order that trees give them.
#[must_use]
pub fn canonical(kind: Kind, bytes: &[u8]) -> Cow<'_, [u8]> {
    if !matches!(kind, Kind::Hash | Kind::Set) {
        return Cow::Borrowed(bytes);
    }
    let editor = CollectionEditor::of_packed(kind, bytes, VersionStamp(1));
    Cow::Owned(editor.view().to_packed(kind))
}
