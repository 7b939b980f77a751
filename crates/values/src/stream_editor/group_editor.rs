//! Changes of a consumer group by a command of one of its consumers.

use base::transaction::CallError;

use super::StreamEditor;
use crate::stream::{EntryId, GroupPosition, GroupView, StreamChange, StreamView};

/// A consumer that did nothing else is noted as seen after so many milliseconds: a value is not written each time
/// that a consumer asks in vain.
const SEEN_MS: u64 = 1000;

/// A group, and the consumer that has sent the command.
pub(crate) struct GroupEditor<'v, 'c> {
    stream: StreamEditor<'v>,
    group: &'c [u8],
    consumer: &'c [u8],
    now_ms: u64,
    /// When the consumer was seen last before, and when it got entries last.
    seen_ms: u64,
    active_ms: Option<u64>,
    is_new: bool,
    has_changed: bool,
    is_active: bool,
}

impl<'v, 'c> GroupEditor<'v, 'c> {
    /// Begins to change a group, to which the consumer is added if it is not there.
    ///
    /// # Errors
    /// There is no such group, or its bytes are damaged; nothing has changed.
    pub(crate) fn new(
        mut stream: StreamEditor<'v>,
        (group, consumer): (&'c [u8], &'c [u8]),
        now_ms: u64,
    ) -> Result<GroupEditor<'v, 'c>, CallError> {
        let found = stream.with_group(group)?;
        let (_, view) = found.ok_or(CallError::NoKeyOrGroup)?;
        let own = view.consumer(consumer).map(|(_, own)| own);
        let is_new = own.is_none();
        let (seen_ms, active_ms) = own.map_or((now_ms, None), |own| (own.seen_ms, own.active_ms));
        let mut editor = GroupEditor {
            stream,
            group,
            consumer,
            now_ms,
            seen_ms,
            active_ms,
            is_new,
            has_changed: false,
            is_active: false,
        };
        if is_new {
            editor.put_consumer();
        }
        Ok(editor)
    }

    /// Returns the stream and the group as they are now.
    ///
    /// # Errors
    /// The bytes of the group are damaged.
    pub(crate) fn views(&mut self) -> Result<(StreamView<'_>, GroupView<'_>), CallError> {
        let views = self.stream.with_group(self.group)?;
        views.ok_or(CallError::NoKeyOrGroup)
    }

    /// Sets how far the group has read.
    pub(crate) fn set_position(&mut self, position: GroupPosition) {
        let name = self.group;
        self.has_changed |= self
            .stream
            .apply(&StreamChange::PutGroup { name, position });
    }

    /// Gives an entry to the consumer, which has been delivered at this time, and so many times.
    pub(crate) fn deliver(&mut self, id: EntryId, (delivered_ms, deliveries): (u64, u64)) {
        self.has_changed |= self.stream.apply(&StreamChange::PutPending {
            group: self.group,
            id,
            consumer: self.consumer,
            delivered_ms,
            deliveries,
        });
    }

    /// Removes a pending entry, if it is there.
    pub(crate) fn remove_pending(&mut self, id: EntryId) {
        let group = self.group;
        self.has_changed |= self
            .stream
            .apply(&StreamChange::RemovePending { group, id });
    }

    /// Notes that the consumer gets entries now.
    pub(crate) fn note_active(&mut self) {
        self.is_active = true;
    }

    /// Notes that the consumer is seen now: with other changes, or if it was not seen for some time. Returns the
    /// stream, and `true` if the consumer is new.
    pub(crate) fn finish(mut self) -> (StreamEditor<'v>, bool) {
        let is_stale = self.now_ms.saturating_sub(self.seen_ms) >= SEEN_MS;
        let is_other = self.seen_ms != self.now_ms || self.is_active;
        if is_other && (self.has_changed || self.is_active || is_stale) {
            self.seen_ms = self.now_ms;
            if self.is_active {
                self.active_ms = Some(self.now_ms);
            }
            self.put_consumer();
        }
        (self.stream, self.is_new)
    }

    fn put_consumer(&mut self) {
        self.stream.apply(&StreamChange::PutConsumer {
            group: self.group,
            name: self.consumer,
            seen_ms: self.seen_ms,
            active_ms: self.active_ms,
        });
    }
}
