//! Consumer groups of a stream in a packed block. All groups are one after the other, in the order of their names,
//! each a blob:
//!
//! | bytes | field of a consumer group |
//! |---|---|
//! | … | its name, a blob |
//! | 16 | the id of the last entry that it has delivered |
//! | 8 | the number of entries up to there; 2^64 - 1: unknown |
//! | 4 | the number of its consumers |
//! | … | of each consumer, in the order of their names: its name, a blob; the time when it was seen last, 8; the time when it got entries last, 8 (2^64 - 1: never) |
//! | 36 each | of each pending entry, in the order of their ids: the id, 16; the position of its consumer, 4; the time of its last delivery, 8; the number of its deliveries, 8 |
//!
//! Numbers are little-endian, times in milliseconds since the Unix epoch.

use super::group::{GroupConsumer, GroupName, PendingEntry};
use super::id::EntryId;
use super::numbers::GroupPosition;
use crate::leb128::push_bytes;
use crate::packed::blobs;

/// The bytes of a pending entry.
const PENDING: usize = 36;
/// Stands for an unknown number and for a time that never was.
const NONE: u64 = u64::MAX;

/// A consumer group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PackedGroup {
    pub(crate) name: GroupName,
    pub(crate) position: GroupPosition,
    /// In the order of their names.
    pub(crate) consumers: Vec<GroupConsumer>,
    /// In the order of their ids. The key of a consumer is its position.
    pub(crate) pending: Vec<PendingEntry>,
}

impl PackedGroup {
    /// Returns a group without consumers.
    pub(crate) fn new(name: &[u8], position: GroupPosition) -> PackedGroup {
        PackedGroup {
            name: GroupName::from_slice(name),
            position,
            consumers: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// Returns the name in the bytes of a group.
    pub(super) fn name_of(bytes: &[u8]) -> Option<&[u8]> {
        blobs(bytes).next().map(|name| name.first)
    }

    /// Returns the group with these bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<PackedGroup> {
        let mut rest = bytes;
        let name = take_name(&mut rest)?;
        let last_id = EntryId::from_bytes(take(&mut rest)?);
        let entries_read = take_number(&mut rest)?;
        let count = u32::from_le_bytes(take(&mut rest)?);
        let consumer = |_| {
            Some(GroupConsumer {
                name: take_name(&mut rest)?,
                seen_ms: take_number(&mut rest)?.unwrap_or_default(),
                active_ms: take_number(&mut rest)?,
            })
        };
        let consumers = (0..count).map(consumer).collect::<Option<_>>()?;
        let (pending, []) = rest.as_chunks::<PENDING>() else {
            return None;
        };
        let pending = pending.iter().map(|bytes| {
            let mut rest = &bytes[..];
            Some(PendingEntry {
                id: EntryId::from_bytes(take(&mut rest)?),
                consumer: u32::from_le_bytes(take(&mut rest)?) as usize,
                delivered_ms: u64::from_le_bytes(take(&mut rest)?),
                deliveries: u64::from_le_bytes(take(&mut rest)?),
            })
        });
        Some(PackedGroup {
            name,
            position: GroupPosition {
                last_id,
                entries_read,
            },
            consumers,
            pending: pending.collect::<Option<_>>()?,
        })
    }

    /// Returns the bytes of the group.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(64 + self.pending.len() * PENDING);
        push_bytes(&mut to, &self.name);
        to.extend_from_slice(&self.position.last_id.to_bytes());
        let entries_read = self.position.entries_read.unwrap_or(NONE);
        to.extend_from_slice(&entries_read.to_le_bytes());
        to.extend_from_slice(&(self.consumers.len() as u32).to_le_bytes());
        for consumer in &self.consumers {
            push_bytes(&mut to, &consumer.name);
            to.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            to.extend_from_slice(&consumer.active_ms.unwrap_or(NONE).to_le_bytes());
        }
        for entry in &self.pending {
            to.extend_from_slice(&entry.id.to_bytes());
            to.extend_from_slice(&(entry.consumer as u32).to_le_bytes());
            to.extend_from_slice(&entry.delivered_ms.to_le_bytes());
            to.extend_from_slice(&entry.deliveries.to_le_bytes());
        }
        to
    }

    /// Returns `true` if its parts are in their order, and fit together.
    pub(super) fn check(&self) -> bool {
        let mut pending = self.pending.iter();
        pending.all(|entry| entry.consumer < self.consumers.len())
            && self.pending.is_sorted_by(|one, next| one.id < next.id)
            && self
                .consumers
                .is_sorted_by(|one, next| one.name < next.name)
    }

    /// Returns the position of a consumer, or the one where it would be.
    pub(super) fn consumer(&self, name: &[u8]) -> Result<usize, usize> {
        self.consumers
            .binary_search_by(|own| own.name[..].cmp(name))
    }

    /// Sets or adds a consumer.
    pub(super) fn put_consumer(&mut self, consumer: GroupConsumer) {
        match self.consumer(&consumer.name) {
            Ok(at) => self.consumers[at] = consumer,
            Err(at) => {
                self.consumers.insert(at, consumer);
                let behind = self.pending.iter_mut().filter(|entry| entry.consumer >= at);
                behind.for_each(|entry| entry.consumer += 1);
            }
        }
    }

    /// Removes a consumer with its pending entries. Returns `true` if it was there.
    pub(super) fn remove_consumer(&mut self, name: &[u8]) -> bool {
        let Ok(at) = self.consumer(name) else {
            return false;
        };
        self.pending.retain(|entry| entry.consumer != at);
        let behind = self.pending.iter_mut().filter(|entry| entry.consumer > at);
        behind.for_each(|entry| entry.consumer -= 1);
        self.consumers.remove(at);
        true
    }

    /// Returns the position of the first pending entry with this id or a greater one.
    pub(super) fn pending_from(&self, id: EntryId) -> usize {
        self.pending.partition_point(|entry| entry.id < id)
    }

    /// Sets or adds a pending entry.
    pub(super) fn put_pending(&mut self, entry: PendingEntry) {
        let at = self.pending_from(entry.id);
        match self.pending.get_mut(at) {
            Some(own) if own.id == entry.id => *own = entry,
            _ => self.pending.insert(at, entry),
        }
    }

    /// Removes a pending entry. Returns `true` if there was one with this id.
    pub(super) fn remove_pending(&mut self, id: EntryId) -> bool {
        let at = self.pending_from(id);
        let is_there = self.pending.get(at).is_some_and(|entry| entry.id == id);
        if is_there {
            self.pending.remove(at);
        }
        is_there
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*bytes)
}

fn take_name(from: &mut &[u8]) -> Option<GroupName> {
    let blob = blobs(from).next()?;
    *from = &from[blob.place.end..];
    Some(GroupName::from_slice(blob.first))
}

/// Takes a number or a time; the inner `None`: it is unknown, or never was.
fn take_number(from: &mut &[u8]) -> Option<Option<u64>> {
    let number = u64::from_le_bytes(take(from)?);
    Some((number != NONE).then_some(number))
}
