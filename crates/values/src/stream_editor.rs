//! Changes of a stream by commands: of a packed block, or of trees.

mod group_editor;

use std::borrow::Cow;

use base::transaction::CallError;
use smallvec::SmallVec;

use crate::call::{ChangedData, StoredData};
use crate::collection::CollectionView;
use crate::collection_editor::CollectionEditor;
use crate::leb128::push_number;
use crate::stream::{EntryId, GroupView, PackedStreamEditor, StreamChange, StreamTrim, StreamView};
pub(crate) use group_editor::GroupEditor;

/// Returns the stream of a value; no bytes are a new stream.
pub(crate) fn stream_of(data: StoredData<'_>) -> StreamView<'_> {
    match data {
        StoredData::Bytes(bytes) => StreamView::new(bytes),
        StoredData::Tree(view) => of_trees(view),
        StoredData::Editor(editor) => of_trees(editor.view()),
    }
}

fn of_trees(view: CollectionView<'_>) -> StreamView<'_> {
    match view {
        CollectionView::Stream(trees) => trees.into(),
        _ => StreamView::new(b""),
    }
}

/// A stream that is changed.
pub(crate) enum StreamEditor<'v> {
    Packed(PackedStreamEditor<'v>),
    Trees(&'v mut CollectionEditor),
}

impl<'v> StreamEditor<'v> {
    /// Begins to change the stream of a value; no bytes are a new stream.
    pub(crate) fn new(data: StoredData<'v>) -> StreamEditor<'v> {
        match data {
            StoredData::Bytes(bytes) => StreamEditor::Packed(PackedStreamEditor::new(bytes)),
            StoredData::Editor(editor) => StreamEditor::Trees(editor),
            StoredData::Tree(_) => unreachable!("a command that writes gets an editor"),
        }
    }

    /// Returns the stream as it is now; [`StreamEditor::with_group`] has groups as they are now.
    pub(crate) fn view(&self) -> StreamView<'_> {
        match self {
            StreamEditor::Packed(editor) => StreamView::of_packed(editor),
            StreamEditor::Trees(editor) => of_trees(editor.view()),
        }
    }

    /// Returns the stream and one of its groups as they are now; `None`: there is no such group.
    ///
    /// # Errors
    /// The bytes of the group are damaged.
    pub(crate) fn with_group(
        &mut self,
        name: &[u8],
    ) -> Result<Option<(StreamView<'_>, GroupView<'_>)>, CallError> {
        let editor = match self {
            StreamEditor::Packed(editor) => editor,
            StreamEditor::Trees(editor) => {
                let stream = of_trees(editor.view());
                let group = stream.group(name)?;
                return Ok(group.map(|group| (stream, group)));
            }
        };
        editor.open(name)?;
        let group = editor.opened(name);
        Ok(group.map(|group| {
            let group = GroupView::Packed(Cow::Borrowed(group));
            (StreamView::of_packed(editor), group)
        }))
    }

    /// Makes a change. Returns `true` if it fits the stream; otherwise nothing is changed.
    pub(crate) fn apply(&mut self, change: &StreamChange<'_>) -> bool {
        match self {
            StreamEditor::Packed(editor) => editor.apply(change),
            StreamEditor::Trees(editor) => editor.change_stream(change),
        }
    }

    /// Adds an entry, with an id above the last one, whose fields are name and value in turns.
    pub(crate) fn append(&mut self, id: EntryId, fields: &[&[u8]]) {
        let mut blobs: SmallVec<[u8; 128]> = SmallVec::new();
        for field in fields {
            push_number(&mut blobs, field.len() as u64);
            blobs.extend_from_slice(field);
        }
        self.apply(&StreamChange::Add { id, fields: &blobs });
    }

    /// Removes the oldest entries. Returns their number.
    pub(crate) fn trim(&mut self, trim: &StreamTrim) -> usize {
        let entries = trim.count(self.view());
        self.apply(&StreamChange::RemoveOldest { entries });
        entries
    }

    /// Returns what was changed; `None`: nothing.
    pub(crate) fn into_changed(self) -> Option<ChangedData> {
        match self {
            StreamEditor::Packed(editor) => editor.into_changed().map(ChangedData::Bytes),
            StreamEditor::Trees(editor) => editor.is_changed().then_some(ChangedData::Edited),
        }
    }
}
