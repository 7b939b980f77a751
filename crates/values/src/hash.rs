//! Hashes: an element is a field and its value. The fields of a block are in the order in which they came, those
//! of a tree in the order of their hashes. A hash whose fields have deadlines is a block.
//!
//! Fields may have deadlines, milliseconds since the Unix epoch. If some field has one, the form is
//! [`BlockForm::ExpiringPairs`], and the second blob of each element is its deadline (8 bytes, little-endian; 0: none) and
//! the value.
//!
//! Invariants:
//! 1. A field whose deadline has passed is absent. [`HashEditor::new`] removes such fields; reading passes over them.
//! 2. The form of a hash that was changed is [`BlockForm::Pairs`] if no field has a deadline.

use smallvec::SmallVec;

use crate::call::{ChangedData, StoredData};
use crate::collection::{CollectionView, map_key, without_hash};
use crate::collection_editor::CollectionEditor;
use crate::packed::{BlockForm, Elements, PackedEditor, PackedView};
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
    Tree(TreeView<'v, KeyOrder>),
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
            CollectionView::Map(tree) => HashSource::Tree(tree),
            _ => HashSource::Packed(PackedView::new(b"")),
        }
    }
}

/// A field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashField<'v> {
    pub(crate) name: &'v [u8],
    pub(crate) value: &'v [u8],
    pub(crate) deadline: Option<u64>,
}

impl<'v> HashField<'v> {
    /// Returns a field without a deadline.
    pub(crate) fn lasting(name: &'v [u8], value: &'v [u8]) -> HashField<'v> {
        HashField {
            name,
            value,
            deadline: None,
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
            HashSource::Tree(tree) => Some(tree),
        }
    }

    /// Returns `true` if fields have deadlines, which may have passed.
    pub(crate) fn expires(self) -> bool {
        match self.source {
            HashSource::Packed(block) => block.form() == Some(BlockForm::ExpiringPairs),
            HashSource::Tree(_) => false,
        }
    }

    /// Returns the number of fields.
    pub(crate) fn len(self) -> usize {
        match self.source {
            HashSource::Packed(_) if self.expires() => self.iter().count(),
            HashSource::Packed(block) => block.len(),
            HashSource::Tree(tree) => tree.len(),
        }
    }

    /// Returns a field.
    pub(crate) fn get(self, name: &[u8]) -> Option<HashField<'v>> {
        match self.source {
            HashSource::Packed(block) => {
                let (_, element) = block.find(name)?;
                self.field((element.first, element.second), self.expires())
            }
            HashSource::Tree(tree) => {
                let key = map_key(name);
                let found = tree.cursor_from(&key).next();
                let (own, value) = found.filter(|(own, _)| *own == &key[..])?;
                self.field((without_hash(own), value), false)
            }
        }
    }

    /// Returns the fields in their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = HashField<'v>> + Clone {
        let expires = self.expires();
        let elements = match self.source {
            HashSource::Packed(block) => HashElements::Packed(block.iter()),
            HashSource::Tree(tree) => HashElements::Tree(tree.iter()),
        };
        elements.filter_map(move |element| self.field(element, expires))
    }

    /// Returns the field of an element, unless its deadline has passed.
    fn field(self, (name, second): (&'v [u8], &'v [u8]), expires: bool) -> Option<HashField<'v>> {
        let (deadline, value) = match expires {
            true => {
                let (deadline, value) = second.split_first_chunk::<8>()?;
                (u64::from_le_bytes(*deadline), value)
            }
            false => (0, second),
        };
        let has_passed = deadline != 0 && deadline <= self.time_ms;
        (!has_passed).then_some(HashField {
            name,
            value,
            deadline: (deadline != 0).then_some(deadline),
        })
    }
}

/// The names of fields, each with the rest of its element.
#[derive(Clone)]
enum HashElements<'v> {
    Packed(Elements<'v>),
    Tree(TreeCursor<'v, KeyOrder>),
}

impl<'v> Iterator for HashElements<'v> {
    type Item = (&'v [u8], &'v [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            HashElements::Packed(elements) => {
                let element = elements.next()?;
                Some((element.first, element.second))
            }
            HashElements::Tree(cursor) => {
                let (key, value) = cursor.next()?;
                Some((without_hash(key), value))
            }
        }
    }
}

/// The hash that an editor changes.
enum HashTarget<'v> {
    Packed(PackedEditor<'v>),
    Tree(&'v mut CollectionEditor),
}

/// A hash that is changed.
pub(crate) struct HashEditor<'v> {
    target: HashTarget<'v>,
    expires: bool,
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
                    expires: false,
                    time_ms,
                    has_expired: false,
                    is_new: false,
                };
            }
            StoredData::Tree(_) => unreachable!("a command that writes gets an editor"),
        };
        let view = HashView::new(StoredData::Bytes(bytes), time_ms);
        let expires = view.expires();
        let form = if expires {
            BlockForm::ExpiringPairs
        } else {
            BlockForm::Pairs
        };
        let has_expired = expires && view.len() < PackedView::new(bytes).len();
        HashEditor {
            target: HashTarget::Packed(match has_expired {
                true => packed_of(form, view),
                false => PackedEditor::new(form, bytes),
            }),
            expires,
            time_ms,
            has_expired,
            is_new: bytes.is_empty(),
        }
    }

    /// Returns the hash as it is now.
    pub(crate) fn view(&self) -> HashView<'_> {
        HashView {
            source: match &self.target {
                HashTarget::Packed(block) => HashSource::Packed(block.view()),
                HashTarget::Tree(editor) => HashSource::of(editor.view()),
            },
            time_ms: self.time_ms,
        }
    }

    /// Sets a field, which has this deadline then. Returns `true` if it is new.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8], deadline: Option<u64>) -> bool {
        if deadline.is_some() && !self.expires {
            self.target = HashTarget::Packed(packed_of(BlockForm::ExpiringPairs, self.view()));
            self.expires = true;
        }
        let block = match &mut self.target {
            HashTarget::Tree(editor) => return editor.put(name, value),
            HashTarget::Packed(block) => block,
        };
        let mut second: SmallVec<[u8; 128]> = SmallVec::new();
        let second = match self.expires {
            true => {
                second.extend_from_slice(&deadline.unwrap_or(0).to_le_bytes());
                second.extend_from_slice(value);
                &second[..]
            }
            false => value,
        };
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
        let block = match &mut self.target {
            HashTarget::Tree(editor) => return editor.remove(name),
            HashTarget::Packed(block) => block,
        };
        let found = block.view().find(name);
        let place = found.map(|(_, element)| element.place);
        if let Some(place) = place.clone() {
            block.replace(place, 1, None);
        }
        place.is_some()
    }

    /// Returns `true` if fields were removed because their deadlines had passed.
    pub(crate) fn has_expired(&self) -> bool {
        self.has_expired
    }

    /// Returns what was changed, no bytes if no field is left; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<ChangedData> {
        let view = self.view();
        if view.len() == 0 {
            return (!self.is_new).then(|| ChangedData::Bytes(Vec::new()));
        }
        let keeps_form = !self.expires || view.iter().any(|field| field.deadline.is_some());
        if !keeps_form {
            let block = packed_of(BlockForm::Pairs, view).into_changed();
            return block.map(ChangedData::Bytes);
        }
        match self.target {
            HashTarget::Packed(block) => block.into_changed().map(ChangedData::Bytes),
            HashTarget::Tree(editor) => editor.is_changed().then_some(ChangedData::Edited),
        }
    }
}

/// Returns the fields of a hash as a block of another form.
fn packed_of<'n>(form: BlockForm, hash: HashView<'_>) -> PackedEditor<'n> {
    let mut packed = PackedEditor::new(form, b"");
    let mut second = Vec::new();
    for field in hash.iter() {
        second.clear();
        if form == BlockForm::ExpiringPairs {
            second.extend_from_slice(&field.deadline.unwrap_or(0).to_le_bytes());
        }
        second.extend_from_slice(field.value);
        packed.push(field.name, &second);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    type Model = Vec<(Vec<u8>, Vec<u8>, Option<u64>)>;

    fn fields(bytes: &[u8], time_ms: u64) -> Model {
        let fields = HashView::new(StoredData::Bytes(bytes), time_ms).iter();
        let owned =
            |field: HashField<'_>| (field.name.to_vec(), field.value.to_vec(), field.deadline);
        fields.map(owned).collect()
    }

    /// Changes the hash and the model at random. Returns `true` if it has changed something.
    fn change(hash: &mut HashEditor<'_>, model: &mut Model, random: &mut fastrand::Rng) -> bool {
        let name = vec![b'a' + random.u8(..2); random.usize(1..3)];
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
            let changes =
                (0..random.usize(..3)).filter(|_| change(&mut hash, &mut model, &mut random));
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
                HashView::new(StoredData::Bytes(&bytes), time_ms).expires(),
                has_deadlines
            );
            for (name, value, deadline) in &model {
                let field = HashView::new(StoredData::Bytes(&bytes), time_ms)
                    .get(name)
                    .expect("it is there");
                assert_eq!((field.value, field.deadline), (&value[..], *deadline));
            }
        }
        assert!(deleted > 100, "{deleted}");
    }
}
