//! The changes of a stream, and their bytes in the log. Each has a tag, and then:
//!
//! | tag | change | then |
//! |---|---|---|
//! | 7 | add an entry | its id, its fields: name and value in turns, each a blob, all of them behind their length |
//! | 8 | delete an entry | its id |
//! | 9 | remove the oldest entries, as a trim does | their number |
//! | 10 | set the numbers | the last id that was given, the greatest id that was deleted, the number of entries that were ever added |
//! | 11 | put a group | name, the id of the last entry that it has delivered, the number of entries up to there |
//! | 12 | remove a group | name |
//! | 13 | put a consumer | group, name, the time when it was seen last, the time when it got entries last |
//! | 14 | remove a consumer, and its pending entries | group, name |
//! | 15 | put a pending entry | group, id, consumer, the time of its last delivery, the number of its deliveries |
//! | 16 | remove a pending entry | group, id |
//!
//! Numbers and times are LEB128, and so is the length before names and fields. An id is two numbers. The number of
//! entries up to a group's last id, and the time when a consumer got entries last, are one more; 0: it is unknown, or
//! never was. Times are in milliseconds since the Unix epoch.

use super::id::EntryId;
use super::numbers::GroupPosition;
use crate::leb128::{push_bytes, push_number, read_bytes, read_number};

const ADD: u8 = 7;
const DELETE: u8 = 8;
const REMOVE_OLDEST: u8 = 9;
const SET_NUMBERS: u8 = 10;
const PUT_GROUP: u8 = 11;
const REMOVE_GROUP: u8 = 12;
const PUT_CONSUMER: u8 = 13;
const REMOVE_CONSUMER: u8 = 14;
const PUT_PENDING: u8 = 15;
const REMOVE_PENDING: u8 = 16;

/// A change of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamChange<'c> {
    /// Adds an entry, with an id above the last one. Its fields are name and value in turns, each a blob.
    Add { id: EntryId, fields: &'c [u8] },
    /// Deletes an entry.
    Delete { id: EntryId },
    /// Removes so many of the oldest entries, as trims do.
    RemoveOldest { entries: usize },
    /// Sets the last id, the greatest deleted id, and the number of entries that were ever added.
    SetNumbers {
        last_id: EntryId,
        deleted_id: EntryId,
        added: u64,
    },
    /// Sets or adds a consumer group.
    PutGroup {
        name: &'c [u8],
        position: GroupPosition,
    },
    /// Removes a consumer group.
    RemoveGroup { name: &'c [u8] },
    /// Sets or adds a consumer of a group.
    PutConsumer {
        group: &'c [u8],
        name: &'c [u8],
        seen_ms: u64,
        active_ms: Option<u64>,
    },
    /// Removes a consumer, with its pending entries.
    RemoveConsumer { group: &'c [u8], name: &'c [u8] },
    /// Sets or adds a pending entry of a consumer.
    PutPending {
        group: &'c [u8],
        id: EntryId,
        consumer: &'c [u8],
        delivered_ms: u64,
        deliveries: u64,
    },
    /// Removes a pending entry.
    RemovePending { group: &'c [u8], id: EntryId },
}

impl<'c> StreamChange<'c> {
    /// Appends its bytes.
    pub(crate) fn log(&self, to: &mut Vec<u8>) {
        match *self {
            StreamChange::Add { id, fields } => {
                to.push(ADD);
                push_id(to, id);
                push_bytes(to, fields);
            }
            StreamChange::Delete { id } => {
                to.push(DELETE);
                push_id(to, id);
            }
            StreamChange::RemoveOldest { entries } => {
                to.push(REMOVE_OLDEST);
                push_number(to, entries as u64);
            }
            StreamChange::SetNumbers {
                last_id,
                deleted_id,
                added,
            } => {
                to.push(SET_NUMBERS);
                push_id(to, last_id);
                push_id(to, deleted_id);
                push_number(to, added);
            }
            StreamChange::PutGroup { name, position } => {
                to.push(PUT_GROUP);
                push_bytes(to, name);
                push_id(to, position.last_id);
                push_optional(to, position.entries_read);
            }
            StreamChange::RemoveGroup { name } => {
                to.push(REMOVE_GROUP);
                push_bytes(to, name);
            }
            StreamChange::PutConsumer {
                group,
                name,
                seen_ms,
                active_ms,
            } => {
                to.push(PUT_CONSUMER);
                push_bytes(to, group);
                push_bytes(to, name);
                push_number(to, seen_ms);
                push_optional(to, active_ms);
            }
            StreamChange::RemoveConsumer { group, name } => {
                to.push(REMOVE_CONSUMER);
                push_bytes(to, group);
                push_bytes(to, name);
            }
            StreamChange::PutPending {
                group,
                id,
                consumer,
                delivered_ms,
                deliveries,
            } => {
                to.push(PUT_PENDING);
                push_bytes(to, group);
                push_id(to, id);
                push_bytes(to, consumer);
                push_number(to, delivered_ms);
                push_number(to, deliveries);
            }
            StreamChange::RemovePending { group, id } => {
                to.push(REMOVE_PENDING);
                push_bytes(to, group);
                push_id(to, id);
            }
        }
    }

    /// Takes a change from the begin of a log; `None`: it is malformed.
    pub(crate) fn read(log: &mut &'c [u8]) -> Option<StreamChange<'c>> {
        let (&tag, rest) = log.split_first()?;
        *log = rest;
        Some(match tag {
            ADD => StreamChange::Add {
                id: read_id(log)?,
                fields: read_bytes(log)?,
            },
            DELETE => StreamChange::Delete { id: read_id(log)? },
            REMOVE_OLDEST => StreamChange::RemoveOldest {
                entries: usize::try_from(read_number(log)?).ok()?,
            },
            SET_NUMBERS => StreamChange::SetNumbers {
                last_id: read_id(log)?,
                deleted_id: read_id(log)?,
                added: read_number(log)?,
            },
            PUT_GROUP => StreamChange::PutGroup {
                name: read_bytes(log)?,
                position: GroupPosition {
                    last_id: read_id(log)?,
                    entries_read: read_optional(log)?,
                },
            },
            REMOVE_GROUP => StreamChange::RemoveGroup {
                name: read_bytes(log)?,
            },
            PUT_CONSUMER => StreamChange::PutConsumer {
                group: read_bytes(log)?,
                name: read_bytes(log)?,
                seen_ms: read_number(log)?,
                active_ms: read_optional(log)?,
            },
            REMOVE_CONSUMER => StreamChange::RemoveConsumer {
                group: read_bytes(log)?,
                name: read_bytes(log)?,
            },
            PUT_PENDING => StreamChange::PutPending {
                group: read_bytes(log)?,
                id: read_id(log)?,
                consumer: read_bytes(log)?,
                delivered_ms: read_number(log)?,
                deliveries: read_number(log)?,
            },
            REMOVE_PENDING => StreamChange::RemovePending {
                group: read_bytes(log)?,
                id: read_id(log)?,
            },
            _ => return None,
        })
    }
}

fn push_id(to: &mut Vec<u8>, id: EntryId) {
    push_number(to, id.ms);
    push_number(to, id.number);
}

fn read_id(from: &mut &[u8]) -> Option<EntryId> {
    Some(EntryId {
        ms: read_number(from)?,
        number: read_number(from)?,
    })
}

/// Appends a number that is not the greatest one, or that it is unknown.
fn push_optional(to: &mut Vec<u8>, number: Option<u64>) {
    push_number(to, number.map_or(0, |number| number.wrapping_add(1)));
}

/// Takes a number; the inner `None`: it is unknown.
fn read_optional(from: &mut &[u8]) -> Option<Option<u64>> {
    Some(read_number(from)?.checked_sub(1))
}
