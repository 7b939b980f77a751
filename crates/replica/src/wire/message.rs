//! A message of Raft. The library documents the meaning of its fields; this module defines their
//! places.
//!
//! | field | encoding |
//! |---|---|
//! | version | 1 byte: 1 |
//! | type | 1 byte: the library's number |
//! | flags | 1 byte: 1 rejected, 2 has a snapshot, 4 has a context, 8 has priorities |
//! | to, from, term, log term, index, commit, commit term, request snapshot, reject hint | counts, in this order |
//! | entries | count, then so many entries |
//! | snapshot | if there is one: its index and term (counts), its members; its content has messages of its own |
//! | context | if there is one: bytes |
//! | priorities | if there are some: 8 bytes, signed; and that of older releases, a count |
//!
//! | an entry's field | encoding |
//! |---|---|
//! | type | 1 byte: 0 normal, 1 and 2 changes of the members |
//! | term, index | counts |
//! | data | bytes; of changes of the members the fields below |
//! | context | bytes: the CRC-32C of the data (4 bytes), from the member that proposed the entry; nothing in changes of the members and in entries of earlier releases |
//!
//! | a change's field | encoding |
//! |---|---|
//! | transition | of type 2: 1 byte, the library's number |
//! | id | of type 1: count |
//! | changes | of type 2: count of those that follow; of type 1 there is one |
//! | each | 1 byte: 0 add, 1 remove, 2 add without a vote; the member's id (count) |
//! | context | bytes |
//!
//! | members | encoding |
//! |---|---|
//! | voters, learners, outgoing voters, next learners | for each of the four a count, then so many ids (counts) |
//! | leaves by itself | 1 byte: 0 or 1 |

#![expect(
    clippy::field_reassign_with_default,
    reason = "the library's structures have many fields, and are made so everywhere"
)]

use base::codec::{Malformed, MalformedKind, Reader, put_bytes, put_count, put_i64};
use bytes::Bytes;
use protobuf::{Message as _, ProtobufEnum};
use raft::eraftpb::{
    ConfChange, ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
    Entry, EntryType, Message, MessageType,
};

/// The version of the encoding.
const VERSION: u8 = 1;

const REJECT: u8 = 1;
const SNAPSHOT: u8 = 2;
const CONTEXT: u8 = 4;
const PRIORITIES: u8 = 8;

/// Appends a message.
///
/// # Panics
/// Panics if an entry that changes the members cannot be read: this process made it, or decoded it.
pub(crate) fn put_message(to: &mut Vec<u8>, message: &Message) {
    to.push(VERSION);
    to.push(message.msg_type as u8);
    let priorities = message.priority != 0 || message.deprecated_priority != 0;
    let flags = [
        (message.reject, REJECT),
        (message.has_snapshot(), SNAPSHOT),
        (!message.context.is_empty(), CONTEXT),
        (priorities, PRIORITIES),
    ];
    to.push(
        flags
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, bit)| bit)
            .sum(),
    );
    for number in [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
    ] {
        put_count(to, number);
    }
    put_count(to, message.entries.len() as u64);
    message
        .entries
        .iter()
        .for_each(|entry| put_entry(to, entry));
    if message.has_snapshot() {
        let meta = message.get_snapshot().get_metadata();
        put_count(to, meta.index);
        put_count(to, meta.term);
        put_conf_state(to, meta.get_conf_state());
    }
    if !message.context.is_empty() {
        put_bytes(to, &message.context);
    }
    if priorities {
        put_i64(to, message.priority);
        put_count(to, message.deprecated_priority);
    }
}

/// Reads a message; bytes may follow.
///
/// # Errors
/// Returns an error if the message is malformed.
pub(crate) fn read_message(from: &mut Reader<'_>) -> Result<Message, Malformed> {
    let version = from.u8()?;
    if version != VERSION {
        return Err(from.malformed(MalformedKind::Version(version)));
    }
    let mut message = Message::default();
    message.msg_type = enumerated::<MessageType>(from, "message of Raft")?;
    let flags = from.u8()?;
    if flags > REJECT | SNAPSHOT | CONTEXT | PRIORITIES {
        return Err(from.malformed(MalformedKind::BadFlag));
    }
    message.reject = flags & REJECT != 0;
    message.to = from.number()?;
    message.from = from.number()?;
    message.term = from.number()?;
    message.log_term = from.number()?;
    message.index = from.number()?;
    message.commit = from.number()?;
    message.commit_term = from.number()?;
    message.request_snapshot = from.number()?;
    message.reject_hint = from.number()?;
    message.entries = read_entries(from)?.into();
    if flags & SNAPSHOT != 0 {
        let meta = message.mut_snapshot().mut_metadata();
        meta.index = from.number()?;
        meta.term = from.number()?;
        meta.set_conf_state(read_conf_state(from)?);
    }
    if flags & CONTEXT != 0 {
        message.context = some_bytes(from)?.to_vec().into();
    }
    if flags & PRIORITIES != 0 {
        message.priority = from.i64()?;
        message.deprecated_priority = from.number()?;
        if message.priority == 0 && message.deprecated_priority == 0 {
            return Err(from.malformed(MalformedKind::BadFlag));
        }
    }
    Ok(message)
}

/// Reads the entries of a message. Their data are parts of one copy: with small entries, an
/// allocation for each would be most of the work.
fn read_entries(from: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
    let all = from.unread();
    let mut copy = Bytes::new();
    from.list(|from| {
        if copy.is_empty() {
            copy = Bytes::copy_from_slice(all);
        }
        read_entry_in(from, |from, data| {
            let end = all.len() - from.unread().len();
            copy.slice(end - data.len()..end)
        })
    })
}

/// Reads bytes that a flag has announced: they must not be empty.
fn some_bytes<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    match from.bytes()? {
        [] => Err(from.malformed(MalformedKind::BadFlag)),
        bytes => Ok(bytes),
    }
}

fn enumerated<E: ProtobufEnum>(from: &mut Reader<'_>, what: &'static str) -> Result<E, Malformed> {
    let number = from.u8()?;
    let unknown = from.malformed(MalformedKind::Kind(number, what));
    E::from_i32(number.into()).ok_or(unknown)
}

/// Appends an entry of the log.
///
/// # Panics
/// Panics in the same cases as [`put_message`].
pub(crate) fn put_entry(to: &mut Vec<u8>, entry: &Entry) {
    to.push(entry.entry_type as u8);
    put_count(to, entry.term);
    put_count(to, entry.index);
    match entry.entry_type {
        EntryType::EntryNormal => put_bytes(to, &entry.data),
        EntryType::EntryConfChange => {
            let change = ConfChange::parse_from_bytes(&entry.data);
            put_change(to, &change.expect("a change of the members"));
        }
        EntryType::EntryConfChangeV2 => {
            let changes = ConfChangeV2::parse_from_bytes(&entry.data);
            put_changes(to, &changes.expect("a change of the members"));
        }
    }
    put_bytes(to, &entry.context);
}

/// Reads an entry of the log; bytes may follow.
///
/// # Errors
/// Returns an error if the entry is malformed.
pub(crate) fn read_entry(from: &mut Reader<'_>) -> Result<Entry, Malformed> {
    read_entry_in(from, |_, data| Bytes::copy_from_slice(data))
}

/// Does the same as [`read_entry`]; `own` keeps the data, which have just been read.
fn read_entry_in(
    from: &mut Reader<'_>,
    own: impl FnOnce(&Reader<'_>, &[u8]) -> Bytes,
) -> Result<Entry, Malformed> {
    let mut entry = Entry::default();
    entry.entry_type = enumerated(from, "entry")?;
    entry.term = from.number()?;
    entry.index = from.number()?;
    entry.data = match entry.entry_type {
        EntryType::EntryNormal => {
            let data = from.bytes()?;
            own(from, data)
        }
        EntryType::EntryConfChange => encoded(&read_change(from)?),
        EntryType::EntryConfChangeV2 => encoded(&read_changes(from)?),
    };
    entry.context = from.bytes()?.to_vec().into();
    Ok(entry)
}

fn encoded(change: &impl protobuf::Message) -> Bytes {
    change.write_to_bytes().expect("it is small").into()
}

fn put_change(to: &mut Vec<u8>, change: &ConfChange) {
    put_count(to, change.id);
    to.push(change.change_type as u8);
    put_count(to, change.node_id);
    put_bytes(to, &change.context);
}

fn read_change(from: &mut Reader<'_>) -> Result<ConfChange, Malformed> {
    let mut change = ConfChange::default();
    change.id = from.number()?;
    change.change_type = enumerated(from, "change of the members")?;
    change.node_id = from.number()?;
    change.context = from.bytes()?.to_vec().into();
    Ok(change)
}

fn put_changes(to: &mut Vec<u8>, changes: &ConfChangeV2) {
    to.push(changes.transition as u8);
    put_count(to, changes.changes.len() as u64);
    for change in changes.changes.iter() {
        to.push(change.change_type as u8);
        put_count(to, change.node_id);
    }
    put_bytes(to, &changes.context);
}

fn read_changes(from: &mut Reader<'_>) -> Result<ConfChangeV2, Malformed> {
    let mut changes = ConfChangeV2::default();
    changes.transition = enumerated::<ConfChangeTransition>(from, "transition")?;
    let one = |from: &mut Reader<'_>| {
        let mut change = ConfChangeSingle::default();
        change.change_type = enumerated::<ConfChangeType>(from, "change of the members")?;
        change.node_id = from.number()?;
        Ok(change)
    };
    changes.changes = from.list(one)?.into();
    changes.context = from.bytes()?.to_vec().into();
    Ok(changes)
}

/// Appends the members.
pub(crate) fn put_conf_state(to: &mut Vec<u8>, members: &ConfState) {
    for list in [
        &members.voters,
        &members.learners,
        &members.voters_outgoing,
        &members.learners_next,
    ] {
        put_count(to, list.len() as u64);
        list.iter().for_each(|&id| put_count(to, id));
    }
    to.push(members.auto_leave.into());
}

/// Reads the members; bytes may follow.
///
/// # Errors
/// Returns an error if the bytes are malformed.
pub(crate) fn read_conf_state(from: &mut Reader<'_>) -> Result<ConfState, Malformed> {
    Ok(ConfState {
        voters: from.list(Reader::number)?,
        learners: from.list(Reader::number)?,
        voters_outgoing: from.list(Reader::number)?,
        learners_next: from.list(Reader::number)?,
        auto_leave: from.bool()?,
        ..ConfState::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(entry_type: EntryType, data: Vec<u8>) -> Entry {
        let mut entry = Entry::default();
        entry.entry_type = entry_type;
        entry.term = 3;
        entry.index = 300;
        entry.data = data.into();
        entry.context = b"context".to_vec().into();
        entry
    }

    fn members() -> ConfState {
        let mut members = ConfState::from((vec![1, 65_538, u64::MAX], vec![4]));
        members.voters_outgoing = vec![1, 2];
        members.learners_next = vec![2];
        members.auto_leave = true;
        members
    }

    /// Returns a message in which every field has a different value.
    fn full() -> Message {
        let mut one = ConfChange::default();
        one.id = 7;
        one.change_type = ConfChangeType::RemoveNode;
        one.node_id = 9;
        let mut many = ConfChangeV2::default();
        many.transition = ConfChangeTransition::Explicit;
        let mut single = ConfChangeSingle::default();
        single.change_type = ConfChangeType::AddLearnerNode;
        single.node_id = 65_537;
        many.changes = vec![single, ConfChangeSingle::default()].into();
        many.context = b"address".to_vec().into();
        let mut message = Message::default();
        message.msg_type = MessageType::MsgAppend;
        message.to = 1;
        message.from = 2;
        message.term = 3;
        message.log_term = 4;
        message.index = 5;
        message.commit = 6;
        message.commit_term = 7;
        message.request_snapshot = 8;
        message.reject_hint = u64::MAX;
        message.reject = true;
        message.priority = -9;
        message.deprecated_priority = 10;
        message.context = b"read".to_vec().into();
        message.entries = vec![
            entry(EntryType::EntryNormal, b"data".to_vec()),
            entry(EntryType::EntryConfChange, one.write_to_bytes().unwrap()),
            entry(EntryType::EntryConfChangeV2, many.write_to_bytes().unwrap()),
            // Raft leaves a joint configuration by an empty change.
            entry(EntryType::EntryConfChangeV2, Vec::new()),
        ]
        .into();
        let meta = message.mut_snapshot().mut_metadata();
        meta.index = 11;
        meta.term = 12;
        meta.set_conf_state(members());
        message
    }

    fn encoded(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_message(&mut bytes, message);
        bytes
    }

    #[test]
    fn messages_come_back() {
        let mut heartbeat = Message::default();
        heartbeat.msg_type = MessageType::MsgHeartbeat;
        for message in [full(), heartbeat, Message::default()] {
            let bytes = encoded(&message);
            let mut from = Reader::new(&bytes);
            assert_eq!(read_message(&mut from), Ok(message));
            assert_eq!(from.end(), Ok(()));
        }
    }

    #[test]
    fn every_type_has_its_number() {
        for &msg_type in MessageType::values() {
            let mut message = Message::default();
            message.msg_type = msg_type;
            let bytes = encoded(&message);
            let back = read_message(&mut Reader::new(&bytes)).unwrap();
            assert_eq!(back.msg_type, msg_type);
        }
    }

    #[test]
    fn what_is_cut_or_of_another_version_is_refused() {
        let mut bytes = encoded(&full());
        for len in 0..bytes.len() {
            assert!(
                read_message(&mut Reader::new(&bytes[..len])).is_err(),
                "{len}"
            );
        }
        bytes[0] = 2;
        let error = read_message(&mut Reader::new(&bytes)).unwrap_err();
        assert_eq!(error.kind, MalformedKind::Version(2));
    }

    /// The library's own encoding is never sent over the network, not even in an entry that changes
    /// the members.
    #[test]
    fn changes_of_the_members_are_written_in_this_encoding() {
        let full = full();
        let bytes = encoded(&full);
        let theirs = &full.entries[2].data[..];
        assert!(!bytes.windows(theirs.len()).any(|window| window == theirs));
    }
}
