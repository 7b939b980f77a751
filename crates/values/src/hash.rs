//! Hashes: an element is a field and its value, in the order in which the fields came.

use crate::packed::{Element, Elements, Form, PackedEditor, PackedView};

/// A hash that is read.
#[derive(Clone, Copy)]
pub(crate) struct HashView<'v>(PackedView<'v>);

impl<'v> HashView<'v> {
    /// Returns the hash of a value; no bytes are a hash without fields.
    pub(crate) fn new(bytes: &'v [u8]) -> HashView<'v> {
        HashView(PackedView::new(bytes))
    }

    /// Returns the number of fields.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Returns the value of a field.
    pub(crate) fn get(self, field: &[u8]) -> Option<&'v [u8]> {
        self.0.find(field).map(|(_, element)| element.second)
    }

    /// Returns the fields and their values: the first and second blobs.
    pub(crate) fn iter(self) -> Elements<'v> {
        self.0.iter()
    }
}

/// A hash that is changed.
pub(crate) struct HashEditor<'v>(PackedEditor<'v>);

impl<'v> HashEditor<'v> {
    /// Begins to change the hash of a value; no bytes are a hash without fields.
    pub(crate) fn new(bytes: &'v [u8]) -> HashEditor<'v> {
        HashEditor(PackedEditor::new(Form::Pairs, bytes))
    }

    /// Returns the hash as it is now.
    pub(crate) fn view(&self) -> HashView<'_> {
        HashView(self.0.view())
    }

    /// Sets a field. Returns `true` if it is new.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match self.0.view().find(field) {
            Some((_, Element { place, .. })) => {
                self.0.replace(place, 1, Some((field, value)));
                false
            }
            None => {
                self.0.push(field, value);
                true
            }
        }
    }

    /// Removes a field. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let found = self.0.view().find(field);
        let place = found.map(|(_, element)| element.place);
        if let Some(place) = place.clone() {
            self.0.replace(place, 1, None);
        }
        place.is_some()
    }

    /// Returns the bytes of the changed value; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<Vec<u8>> {
        self.0.into_changed()
    }
}
