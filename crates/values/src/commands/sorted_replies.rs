//! What commands on sorted sets share: their values and their replies.

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::transaction::{Kind, OpError, Reply};

use crate::call::{CallOutcome, StoredValue, data_of};
use crate::sorted_set::{ScoredMember, SortedSetEditor, SortedSetView};

/// Returns the sorted set that is read.
pub(super) fn view_of(value: Option<StoredValue<'_>>) -> Result<SortedSetView<'_>, OpError> {
    Ok(SortedSetView::new(data_of(value, Kind::SortedSet)?))
}

/// Returns the outcome of a command that has changed a sorted set.
pub(super) fn changed<'v>(
    reply: Reply<'v>,
    event: KeyEvent,
    set: SortedSetEditor<'_>,
) -> CallOutcome<'v> {
    let is_empty = set.view().len() == 0;
    CallOutcome::changed(
        reply,
        event,
        (Kind::SortedSet, set.into_changed(), is_empty),
    )
}

/// Returns a reply of one item.
pub(super) fn reply_of<'v>(item: NestedItem<'_>) -> Reply<'v> {
    let mut reply = NestedReply::default();
    reply.push(item);
    Reply::Nested(reply)
}

/// Returns a reply of these numbers of members, with or without their scores, which follow.
pub(super) fn members_reply(len: usize, with_scores: bool) -> NestedReply {
    let mut reply = NestedReply::default();
    reply.push(match with_scores {
        true => NestedItem::Pairs(len),
        false => NestedItem::Array(len),
    });
    reply
}

/// Appends a member to a reply, and its score if that is asked for.
pub(super) fn push_member(reply: &mut NestedReply, own: ScoredMember<'_>, with_score: bool) {
    reply.bytes(own.member);
    if with_score {
        reply.push(NestedItem::Double(own.score));
    }
}
