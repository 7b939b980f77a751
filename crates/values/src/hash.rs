//! Hashes: an element is a field and its value. The fields of a block are in the order in which they came, those
//! of a tree in the order of their hashes.
//!
//! Fields may have deadlines, milliseconds since the Unix epoch. If some field of a block has one, its form is
//! [`BlockForm::ExpiringPairs`]. Large hashes have a tree of deadlines as well ([`crate::collection`]), in their order.
//! Module [`crate::hash_field`] says where a field has its deadline.
//!
//! Invariants:
//! 1. A field whose deadline has passed is absent. Reading passes over such fields. [`HashEditor::new`] removes those of
//!    a block; of those of a tree an editor removes the ones that it writes, and [`HashEditor::remove_passed`] some.
//! 2. The form of a block that was changed is [`BlockForm::Pairs`] if no field has a deadline.

use base::transaction::Kind;
use fastrand::Rng;

use crate::call::{ChangedData, StoredBlock, StoredData};
use crate::collection::{CollectionView, map_key, without_hash};
use crate::collection_editor::CollectionEditor;
pub(crate) use crate::hash_field::HashField;
use crate::hash_field::{deadline_key, deadline_of_key};
use crate::packed::{BlockForm, Elements, PackedEditor, PackedView};
use crate::random::few_positions;
use crate::tree::{KeyOrder, TreeCursor, TreeView};

/// A hash that is read at a time.
#[derive(Clone, Copy)]
pub(crate) struct HashView<'v> {
    source: HashSource<'v>,
    time_ms: u64,
}

#[derive(Clone, Copy)]
enum HashSource<'v> {
    Packed(PackedView<'v>),
    /// The fields, and their deadlines.
    Trees(TreeView<'v, KeyOrder>, TreeView<'v, KeyOrder>),
}

impl<'v> HashSource<'v> {
    fn new(data: StoredData<'v>) -> HashSource<'v> {
        match data {
            StoredData::Bytes(bytes) => HashSource::Packed(PackedView::new(bytes)),
            StoredData::Tree(view) => HashSource::of(view),
            StoredData::Editor(editor) => HashSource::of(editor.view()),
        }
    }

    fn of(view: CollectionView<'v>) -> HashSource<'v> {
        match view {
            CollectionView::Hash(fields, deadlines) => HashSource::Trees(fields, deadlines),
            _ => HashSource::Packed(PackedView::new(b"")),
        }
    }

    /// Returns `true` if fields have deadlines, which may have passed.
    fn expires(self) -> bool {
        match self {
            HashSource::Packed(block) => block.form() == Some(BlockForm::ExpiringPairs),
            HashSource::Trees(_, deadlines) => !deadlines.is_empty(),
        }
    }

    /// Returns the number of fields, with those whose deadlines have passed.
    fn len(self) -> usize {
        match self {
            HashSource::Packed(block) => block.len(),
            HashSource::Trees(fields, _) => fields.len(),
        }
    }

    /// Returns a field, also if its deadline has passed.
    fn get(self, name: &[u8]) -> Option<HashField<'v>> {
        match self {
            HashSource::Packed(block) => {
                let (_, element) = block.find(name)?;
                HashField::of_block(element.first, element.second, self.expires())
            }
            HashSource::Trees(fields, _) => {
                let key = map_key(name);
                let found = fields.cursor_from(&key).next();
                let (own, bytes) = found.filter(|(own, _)| *own == &key[..])?;
                HashField::of_tree(without_hash(own), bytes)
            }
        }
    }

    /// Returns the fields in their order, with those whose deadlines have passed.
    fn iter(self) -> StoredFields<'v> {
        match self {
            HashSource::Packed(block) => StoredFields::Packed(block.iter(), self.expires()),
            HashSource::Trees(fields, _) => StoredFields::Tree(fields.iter()),
        }
    }
}

impl<'v> HashView<'v> {
    /// Returns the hash of a value at a time in milliseconds since the Unix epoch; no bytes are a hash without fields.
    pub(crate) fn new(data: StoredData<'v>, time_ms: u64) -> HashView<'v> {
        HashView {
            source: HashSource::new(data),
            time_ms,
        }
    }

    /// Returns the tree of the fields, if there is one.
    pub(crate) fn tree(self) -> Option<TreeView<'v, KeyOrder>> {
        match self.source {
            HashSource::Packed(_) => None,
            HashSource::Trees(fields, _) => Some(fields),
        }
    }

    /// Returns the field of an entry of the tree of fields, unless its deadline has passed.
    pub(crate) fn of_tree(self, name: &'v [u8], bytes: &'v [u8]) -> Option<HashField<'v>> {
        self.present(HashField::of_tree(name, bytes))
    }

    /// Returns the number of fields.
    pub(crate) fn len(self) -> usize {
        match self.source {
            HashSource::Packed(_) if self.source.expires() => self.iter().count(),
            HashSource::Trees(fields, deadlines) if !deadlines.is_empty() => {
                let later = deadline_key(self.time_ms.saturating_add(1), b"");
                fields.len() - deadlines.rank(&later).unwrap_or_else(|passed| passed)
            }
            source => source.len(),
        }
    }

    /// Returns a field.
    pub(crate) fn get(self, name: &[u8]) -> Option<HashField<'v>> {
        self.present(self.source.get(name))
    }

    /// Returns the fields in their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = HashField<'v>> + Clone {
        let fields = self.source.iter();
        fields.filter(move |field| !field.has_passed(self.time_ms))
    }

    fn present(self, field: Option<HashField<'v>>) -> Option<HashField<'v>> {
        field.filter(|field| !field.has_passed(self.time_ms))
    }

    /// Draws so many fields, distinct ones unless the count is negative; `None` if all fields should be looked at.
    pub(crate) fn draw(self, count: i64, rng: &mut Rng) -> Option<Vec<HashField<'v>>> {
        let HashSource::Trees(fields, _) = self.source else {
            return None;
        };
        let at = |position| {
            let (key, bytes) = fields.nth(position)?;
            self.of_tree(without_hash(key), bytes)
        };
        few_positions(rng, count, (fields.len(), self.len()), at)
    }

    /// Returns the least deadline of a field after the time.
    pub(crate) fn next_deadline(self) -> Option<u64> {
        match self.source {
            HashSource::Packed(_) if !self.source.expires() => None,
            HashSource::Packed(_) => self.iter().filter_map(|field| field.deadline).min(),
            HashSource::Trees(_, deadlines) => {
                let later = deadline_key(self.time_ms.checked_add(1)?, b"");
                let (key, _) = deadlines.cursor_from(&later).next()?;
                deadline_of_key(key).map(|(deadline, _)| deadline)
            }
        }
    }

    /// Returns the greatest deadline of a field that has passed.
    fn last_passed(self) -> Option<u64> {
        match self.source {
            HashSource::Packed(_) => {
                let deadlines = self.source.iter().filter_map(|field| field.deadline);
                deadlines.filter(|at| *at <= self.time_ms).max()
            }
            HashSource::Trees(_, deadlines) => {
                let later = deadline_key(self.time_ms.saturating_add(1), b"");
                let passed = deadlines.rank(&later).unwrap_or_else(|passed| passed);
                let (key, _) = deadlines.nth(passed.checked_sub(1)?)?;
                deadline_of_key(key).map(|(deadline, _)| deadline)
            }
        }
    }
}

/// The fields of a hash, with those whose deadlines have passed.
#[derive(Clone)]
enum StoredFields<'v> {
    /// Of a block; `true`: its fields have deadlines.
    Packed(Elements<'v>, bool),
    Tree(TreeCursor<'v, KeyOrder>),
}

impl<'v> Iterator for StoredFields<'v> {
    type Item = HashField<'v>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            StoredFields::Packed(elements, expires) => {
                let element = elements.next()?;
                HashField::of_block(element.first, element.second, *expires)
            }
            StoredFields::Tree(cursor) => {
                let (key, bytes) = cursor.next()?;
                HashField::of_tree(without_hash(key), bytes)
            }
        }
    }
}

/// The hash that an editor changes.
enum HashTarget<'v> {
    /// A block; `true`: its fields have deadlines.
    Packed(PackedEditor<'v>, bool),
    Tree(&'v mut CollectionEditor),
}

/// A hash that is changed.
pub(crate) struct HashEditor<'v> {
    target: HashTarget<'v>,
    time_ms: u64,
    /// `true` if fields were removed because their deadlines had passed.
    has_expired: bool,
    /// `true` if the key was absent.
    is_new: bool,
}

impl<'v> HashEditor<'v> {
    /// Begins to change the hash of a value at a time in milliseconds since the Unix epoch; no bytes are a hash without
    /// fields.
    pub(crate) fn new(data: StoredData<'v>, time_ms: u64) -> HashEditor<'v> {
        let bytes = match data {
            StoredData::Bytes(bytes) => bytes,
            StoredData::Editor(editor) => {
                return HashEditor {
                    target: HashTarget::Tree(editor),
                    time_ms,
                    has_expired: false,
                    is_new: false,
                };
            }
            StoredData::Tree(_) => unreachable!("a command that writes gets an editor"),
        };
        let view = HashView::new(StoredData::Bytes(bytes), time_ms);
        let (form, expires) = match view.source.expires() {
            true => (BlockForm::ExpiringPairs, true),
            false => (BlockForm::Pairs, false),
        };
        let has_expired = expires && view.len() < view.source.len();
        let block = match has_expired {
            true => packed_of(form, view),
            false => PackedEditor::new(form, bytes),
        };
        HashEditor {
            target: HashTarget::Packed(block, expires),
            time_ms,
            has_expired,
            is_new: bytes.is_empty(),
        }
    }

    /// Returns the hash as it is now.
    pub(crate) fn view(&self) -> HashView<'_> {
        HashView {
            source: match &self.target {
                HashTarget::Packed(block, _) => HashSource::Packed(block.view()),
                HashTarget::Tree(editor) => HashSource::of(editor.view()),
            },
            time_ms: self.time_ms,
        }
    }

    /// Sets a field, which has this deadline then. Returns `true` if it is new.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8], deadline: Option<u64>) -> bool {
        let field = HashField {
            name,
            value,
            deadline,
        };
        let time_ms = self.time_ms;
        let (block, expires) = match &mut self.target {
            HashTarget::Tree(editor) => {
                let source = HashSource::of(editor.view());
                let old = source.expires().then(|| source.get(name)).flatten();
                let has_passed = old.is_some_and(|old| old.has_passed(time_ms));
                self.has_expired |= has_passed;
                return editor.put_field(field) || has_passed;
            }
            HashTarget::Packed(block, expires) => (block, expires),
        };
        if deadline.is_some() && !*expires {
            let source = HashSource::Packed(block.view());
            let own = packed_of(BlockForm::ExpiringPairs, HashView { source, time_ms });
            (*block, *expires) = (own, true);
        }
        let expiring = expires.then(|| field.in_block(true));
        let second = expiring.as_deref().unwrap_or(value);
        let found = block.view().find(name);
        match found.map(|(_, element)| element.place) {
            Some(place) => {
                block.replace(place, 1, Some((name, second)));
                false
            }
            None => {
                block.push(name, second);
                true
            }
        }
    }

    /// Gives a field, which is there, a deadline or none.
    pub(crate) fn set_deadline(&mut self, name: &[u8], deadline: Option<u64>) {
        let value = self.view().get(name).map(|field| field.value.to_vec());
        if let Some(value) = value {
            self.set(name, &value, deadline);
        }
    }

    /// Removes a field. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let time_ms = self.time_ms;
        let block = match &mut self.target {
            HashTarget::Tree(editor) => {
                let source = HashSource::of(editor.view());
                if source.expires() && (HashView { source, time_ms }).get(name).is_none() {
                    return false;
                }
                return editor.remove(name);
            }
            HashTarget::Packed(block, _) => block,
        };
        let found = block.view().find(name);
        let place = found.map(|(_, element)| element.place);
        if let Some(place) = place.clone() {
            block.replace(place, 1, None);
        }
        place.is_some()
    }

    /// Removes fields whose deadlines have passed, those with the least ones first and so many at most; of a block, and
    /// of a hash that has no others, all were removed before. Returns `true` if some are left.
    pub(crate) fn remove_passed(&mut self, most: usize) -> bool {
        let (time_ms, is_empty) = (self.time_ms, self.view().len() == 0);
        let HashTarget::Tree(editor) = &mut self.target else {
            return false;
        };
        let CollectionView::Hash(_, deadlines) = editor.view() else {
            return false;
        };
        if is_empty {
            return false;
        }
        let passed = deadlines.iter().map_while(|(key, _)| deadline_of_key(key));
        let passed = passed.take_while(|(deadline, _)| *deadline <= time_ms);
        let mut names: Vec<Vec<u8>> = passed
            .take(most.saturating_add(1))
            .map(|(_, name)| name.to_vec())
            .collect();
        let is_more = names.len() > most;
        names.truncate(most);
        self.has_expired |= !names.is_empty();
        for name in &names {
            editor.remove(name);
        }
        is_more
    }

    /// Returns `true` if fields were removed because their deadlines had passed.
    pub(crate) fn has_expired(&self) -> bool {
        let view = self.view();
        // The fields that are left of a tree go with the key.
        self.has_expired || view.len() == 0 && view.source.len() > 0
    }

    /// Returns what was changed, no bytes if no field is left; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<ChangedData> {
        let view = self.view();
        if view.len() == 0 {
            return (!self.is_new).then(|| ChangedData::Bytes(Vec::new()));
        }
        match self.target {
            HashTarget::Packed(_, true) if view.iter().all(|field| field.deadline.is_none()) => {
                let block = packed_of(BlockForm::Pairs, view).into_changed();
                block.map(ChangedData::Bytes)
            }
            HashTarget::Packed(block, _) => block.into_changed().map(ChangedData::Bytes),
            HashTarget::Tree(editor) => editor.is_changed().then_some(ChangedData::Edited),
        }
    }
}

/// Returns the least deadline of a field of a hash after a time, both in milliseconds since the Unix epoch.
#[must_use]
pub fn next_field_deadline(hash: StoredData<'_>, after_ms: u64) -> Option<u64> {
    HashView::new(hash, after_ms).next_deadline()
}

/// Returns the greatest deadline of a field of a hash that has passed at a time, both in milliseconds since the Unix
/// epoch.
#[must_use]
pub fn last_passed_field_deadline(hash: StoredData<'_>, time_ms: u64) -> Option<u64> {
    HashView::new(hash, time_ms).last_passed()
}

/// Returns the deadlines of the fields of a value, as it is stored, in milliseconds since the Unix epoch.
pub fn field_deadlines(value: StoredBlock<'_>) -> impl Iterator<Item = u64> {
    let block = PackedView::new(value.bytes);
    let expires = value.kind == Kind::Hash && block.form() == Some(BlockForm::ExpiringPairs);
    let fields = expires.then(|| StoredFields::Packed(block.iter(), true));
    let fields = fields.into_iter().flatten();
    fields.filter_map(|field| field.deadline)
}

/// Returns the fields of a hash as a block of another form.
fn packed_of<'n>(form: BlockForm, hash: HashView<'_>) -> PackedEditor<'n> {
    let mut packed = PackedEditor::new(form, b"");
    for field in hash.iter() {
        packed.push(
            field.name,
            &field.in_block(form == BlockForm::ExpiringPairs),
        );
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::VersionStamp;

    type Model = Vec<(Vec<u8>, Vec<u8>, Option<u64>)>;

    fn owned(field: HashField<'_>) -> (Vec<u8>, Vec<u8>, Option<u64>) {
        (field.name.to_vec(), field.value.to_vec(), field.deadline)
    }

    fn fields(bytes: &[u8], time_ms: u64) -> Model {
        let fields = HashView::new(StoredData::Bytes(bytes), time_ms).iter();
        fields.map(owned).collect()
    }

    /// Changes the hash and the model at random. Returns `true` if it has changed something.
    /// Names have so many letters at most.
    fn change(
        hash: &mut HashEditor<'_>,
        (model, letters): (&mut Model, usize),
        random: &mut fastrand::Rng,
    ) -> bool {
        let letters = 0..random.usize(1..=letters);
        let name: Vec<u8> = letters.map(|_| b'a' + random.u8(..2)).collect();
        let at = model.iter().position(|field| field.0 == name);
        let deadline = random.bool().then(|| hash.time_ms + random.u64(1..9));
        match (random.u8(..4), at) {
            (0, _) => {
                assert_eq!(hash.remove(&name), at.is_some());
                at.map(|at| model.remove(at)).is_some()
            }
            (1, Some(at)) => {
                hash.set_deadline(&name, deadline);
                model[at].2 = deadline;
                true
            }
            (1, None) => false,
            _ => {
                let deadline = deadline.filter(|_| random.bool());
                let value = vec![random.u8(..); random.usize(..200)];
                assert_eq!(hash.set(&name, &value, deadline), at.is_none());
                match at {
                    Some(at) => model[at] = (name, value, deadline),
                    None => model.push((name, value, deadline)),
                }
                true
            }
        }
    }

    #[test]
    fn a_hash_is_what_was_done_to_it() {
        const LETTERS: usize = 2;
        let mut random = fastrand::Rng::with_seed(2);
        let (mut model, mut bytes, mut deleted) = (Model::new(), Vec::new(), 0);
        for time_ms in 0..20_000 {
            let before = model.len();
            let is_due =
                |field: &(_, _, Option<u64>)| field.2.is_none_or(|deadline| deadline > time_ms);
            model.retain(is_due);
            let has_expired = model.len() < before;
            assert_eq!(fields(&bytes, time_ms), model);
            let mut hash = HashEditor::new(StoredData::Bytes(&bytes), time_ms);
            let changes = (0..random.usize(..3))
                .filter(|_| change(&mut hash, (&mut model, LETTERS), &mut random));
            let has_changed = changes.count() > 0;
            assert_eq!(HashView::len(hash.view()), model.len());
            assert_eq!(hash.has_expired(), has_expired);
            let is_new = hash.is_new;
            match hash.into_changed().and_then(ChangedData::into_bytes) {
                None => assert!(!has_expired && !has_changed || is_new && model.is_empty()),
                Some(new) => {
                    assert!(has_expired || has_changed);
                    deleted += u32::from(new.is_empty());
                    bytes = new;
                }
            }
            assert_eq!(fields(&bytes, time_ms), model);
            let has_deadlines = model.iter().any(|field| field.2.is_some());
            assert_eq!(
                HashView::new(StoredData::Bytes(&bytes), time_ms)
                    .source
                    .expires(),
                has_deadlines
            );
            for (name, value, deadline) in &model {
                let field = HashView::new(StoredData::Bytes(&bytes), time_ms)
                    .get(name)
                    .expect("it is there");
                assert_eq!((field.value, field.deadline), (&value[..], *deadline));
            }
        }
        assert!(deleted > 50, "{deleted}");
    }

    /// The same of trees, whose log repeats the changes, and of which the block is made anew now and then.
    #[test]
    fn a_large_hash_is_what_was_done_to_it() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut model, stamp) = (Model::new(), VersionStamp(1));
        let of_packed = |block: &[u8]| CollectionEditor::of_packed(Kind::Hash, block, stamp);
        let (mut trees, mut follower) = (of_packed(b""), of_packed(b""));
        let (mut removed, mut drawn, mut deleted, mut letters) = (0, 0, 0, 2);
        for time_ms in 0..10_000 {
            if time_ms % 500 == 0 {
                (trees, follower) = (of_packed(b""), of_packed(b""));
                model.clear();
                letters = if letters == 2 { 7 } else { 2 };
            }
            let is_due =
                |field: &(_, _, Option<u64>)| field.2.is_none_or(|deadline| deadline > time_ms);
            model.retain(is_due);
            let mut hash = HashEditor::new(StoredData::Editor(&mut trees), time_ms);
            (0..random.usize(..4)).for_each(|_| {
                change(&mut hash, (&mut model, letters), &mut random);
            });
            let before = HashSource::len(hash.view().source);
            if random.u8(..4) == 0 && !model.is_empty() {
                let most = random.usize(1..4);
                let is_more = hash.remove_passed(most);
                let left = HashSource::len(hash.view().source);
                assert_eq!(is_more, left > model.len());
                assert!(left == model.len() || before - left == most);
                removed += before - left;
            }
            let view = hash.view();
            let mut own: Model = view.iter().map(owned).collect();
            own.sort_unstable();
            model.sort_unstable();
            assert_eq!(own, model);
            assert_eq!(HashView::len(view), model.len());
            let deadlines = model.iter().filter_map(|field| field.2);
            assert_eq!(view.next_deadline(), deadlines.min());
            let stored = view.source.iter().filter_map(|field| field.deadline);
            let passed = stored.filter(|at| *at <= time_ms);
            assert_eq!(view.last_passed(), passed.max());
            for (name, value, deadline) in model.iter().take(9) {
                let field = view.get(name).expect("it is there");
                assert_eq!((field.value, field.deadline), (&value[..], *deadline));
            }
            if let Some(fields) = view.draw(random.i64(-3..3), &mut random) {
                assert!(
                    fields
                        .iter()
                        .all(|field| view.get(field.name) == Some(*field))
                );
                drawn += fields.len();
            }
            if model.is_empty() && HashSource::len(view.source) > 0 {
                let changed = hash.into_changed().and_then(ChangedData::into_bytes);
                assert_eq!(changed.as_deref(), Some(&b""[..]));
                (trees, follower) = (of_packed(b""), of_packed(b""));
                deleted += 1;
                continue;
            }
            assert!(follower.apply(&trees.take_log()));
            let block = trees.view().to_packed(Kind::Hash);
            assert_eq!(follower.view().to_packed(Kind::Hash), block);
            let stored = StoredBlock {
                kind: Kind::Hash,
                bytes: &block,
            };
            let expiring = field_deadlines(stored).count();
            let CollectionView::Hash(_, deadlines) = trees.view() else {
                panic!("it is a hash");
            };
            assert_eq!(expiring, deadlines.len());
            if random.u8(..20) == 0 {
                let mut ordered = model.clone();
                let mut own = fields(&block, time_ms);
                own.sort_unstable();
                ordered.sort_unstable();
                assert_eq!(own, ordered);
                trees = of_packed(&block);
            }
        }
        let all = (removed, drawn, deleted);
        assert!(removed > 100 && drawn > 100 && deleted > 4, "{all:?}");
    }

    #[test]
    fn the_log_has_the_deadlines() {
        let mut trees = CollectionEditor::of_packed(Kind::Hash, b"", VersionStamp(1));
        let mut hash = HashEditor::new(StoredData::Editor(&mut trees), 5);
        for (name, deadline) in [
            ("a", Some(9)),
            ("b", None),
            ("c", Some(7)),
            ("a", Some(1 << 41)),
        ] {
            hash.set(name.as_bytes(), b"value", deadline);
        }
        hash.remove(b"b");
        let log = trees.take_log();
        let deadlines: Vec<u64> = crate::logged_deadlines(&log).collect();
        assert_eq!(deadlines, [9, 7, 1 << 41]);
        for length in 0..log.len() {
            assert!(crate::logged_deadlines(&log[..length]).count() <= 3);
        }
    }
}
