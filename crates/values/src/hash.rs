//! Hashes: an element is a field and its value. The fields of a block are in the order in which they came,
//! those of a tree in the order of their hashes.

use crate::call::{ChangedData, StoredData};
use crate::collection::{CollectionEditor, CollectionView, map_key, without_hash};
use crate::packed::{Element, Elements, Form, PackedEditor, PackedView};
use crate::tree::{KeyOrder, TreeCursor, TreeView};

/// A hash that is read.
#[derive(Clone, Copy)]
pub(crate) enum HashView<'v> {
    Packed(PackedView<'v>),
    Tree(TreeView<'v, KeyOrder>),
}

impl<'v> HashView<'v> {
    /// Returns the hash of a value; no bytes are a hash without fields.
    pub(crate) fn new(data: StoredData<'v>) -> HashView<'v> {
        match data {
            StoredData::Bytes(bytes) => HashView::Packed(PackedView::new(bytes)),
            StoredData::Tree(view) => HashView::of(view),
            StoredData::Editor(editor) => HashView::of(editor.view()),
        }
    }

    fn of(view: CollectionView<'v>) -> HashView<'v> {
        match view {
            CollectionView::Map(tree) => HashView::Tree(tree),
            _ => HashView::Packed(PackedView::new(b"")),
        }
    }

    /// Returns the number of fields.
    pub(crate) fn len(self) -> usize {
        match self {
            HashView::Packed(block) => block.len(),
            HashView::Tree(tree) => tree.len(),
        }
    }

    /// Returns the value of a field.
    pub(crate) fn get(self, field: &[u8]) -> Option<&'v [u8]> {
        match self {
            HashView::Packed(block) => block.find(field).map(|(_, element)| element.second),
            HashView::Tree(tree) => tree.get(&map_key(field)),
        }
    }

    /// Returns the fields and their values.
    pub(crate) fn iter(self) -> HashFields<'v> {
        match self {
            HashView::Packed(block) => HashFields::Packed(block.iter()),
            HashView::Tree(tree) => HashFields::Tree(tree.iter()),
        }
    }
}

/// The fields of a hash and their values.
pub(crate) enum HashFields<'v> {
    Packed(Elements<'v>),
    Tree(TreeCursor<'v, KeyOrder>),
}

impl<'v> Iterator for HashFields<'v> {
    type Item = (&'v [u8], &'v [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            HashFields::Packed(elements) => {
                let element = elements.next()?;
                Some((element.first, element.second))
            }
            HashFields::Tree(cursor) => {
                let (key, value) = cursor.next()?;
                Some((without_hash(key), value))
            }
        }
    }
}

/// A hash that is changed.
pub(crate) enum HashEditor<'v> {
    Packed(PackedEditor<'v>),
    Tree(&'v mut CollectionEditor),
}

impl<'v> HashEditor<'v> {
    /// Begins to change the hash of a value; no bytes are a hash without fields.
    pub(crate) fn new(data: StoredData<'v>) -> HashEditor<'v> {
        match data {
            StoredData::Bytes(bytes) => HashEditor::Packed(PackedEditor::new(Form::Pairs, bytes)),
            StoredData::Editor(editor) => HashEditor::Tree(editor),
            StoredData::Tree(_) => unreachable!("a command that writes gets an editor"),
        }
    }

    /// Returns the hash as it is now.
    pub(crate) fn view(&self) -> HashView<'_> {
        match self {
            HashEditor::Packed(block) => HashView::Packed(block.view()),
            HashEditor::Tree(editor) => HashView::of(editor.view()),
        }
    }

    /// Sets a field. Returns `true` if it is new.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let block = match self {
            HashEditor::Tree(editor) => return editor.put(field, value),
            HashEditor::Packed(block) => block,
        };
        match block.view().find(field) {
            Some((_, Element { place, .. })) => {
                block.replace(place, 1, Some((field, value)));
                false
            }
            None => {
                block.push(field, value);
                true
            }
        }
    }

    /// Removes a field. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let block = match self {
            HashEditor::Tree(editor) => return editor.remove(field),
            HashEditor::Packed(block) => block,
        };
        let found = block.view().find(field);
        let place = found.map(|(_, element)| element.place);
        if let Some(place) = place.clone() {
            block.replace(place, 1, None);
        }
        place.is_some()
    }

    /// Returns what was changed; `None`: nothing.
    pub(crate) fn into_changed(self) -> Option<ChangedData> {
        match self {
            HashEditor::Packed(block) => block.into_changed().map(ChangedData::Bytes),
            HashEditor::Tree(editor) => editor.is_changed().then_some(ChangedData::Edited),
        }
    }
}
