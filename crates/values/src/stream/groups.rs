//! Consumer groups of a stream. All groups are one after the other, in the order of their names, each a blob:
//!
//! | bytes | field |
//! |---|---|
//! | … | its name: a blob |
//! | 16 | the id of the last entry that it has delivered |
//! | 8 | the number of entries of the stream up to there, little-endian; the greatest number: unknown |
//! | 4 | the number of its consumers |
//! | … | its consumers, in the order of their names |
//! | … | its pending entries, in the order of their ids |
//!
//! A consumer is its name, a blob, the time when it was seen last, and that when it got entries last, each 8
//! bytes; the greatest number: never. A pending entry is its id, the number of its consumer (4 bytes, from 0),
//! the time of its last delivery, and the number of its deliveries, each 8 bytes. Times are in milliseconds since
//! the Unix epoch.

use smallvec::SmallVec;

use super::id::EntryId;
use crate::packed::{blobs, push_blob};

/// The bytes of a pending entry.
const PENDING: usize = 36;
/// Stands for an unknown number and for a time that never was.
const NONE: u64 = u64::MAX;
/// A consumer that did nothing else is noted as seen after so many milliseconds: a value is not written each time
/// that a consumer asks in vain.
const SEEN_MS: u64 = 1000;

/// A consumer group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConsumerGroup<'g> {
    pub(crate) name: &'g [u8],
    /// The id of the last entry that it has delivered.
    pub(crate) last_id: EntryId,
    /// The number of entries up to there, of all that were ever added.
    pub(crate) entries_read: Option<u64>,
    pub(crate) consumers: Vec<GroupConsumer<'g>>,
    pub(crate) pending: Vec<PendingEntry>,
    /// `true` if it differs from the group in the stream.
    pub(crate) changed: bool,
}

/// A consumer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupConsumer<'g> {
    pub(crate) name: &'g [u8],
    /// When it was seen last, in milliseconds since the Unix epoch.
    pub(crate) seen_ms: u64,
    /// When it got entries last.
    pub(crate) active_ms: Option<u64>,
}

/// An entry that was delivered and is not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingEntry {
    pub(crate) id: EntryId,
    /// The position of its consumer.
    pub(crate) consumer: usize,
    /// When it was delivered last, in milliseconds since the Unix epoch.
    pub(crate) delivered_ms: u64,
    pub(crate) deliveries: u64,
}

impl PendingEntry {
    /// Returns the milliseconds since its last delivery.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.delivered_ms)
    }
}

impl<'g> ConsumerGroup<'g> {
    /// Returns a group without consumers.
    pub(crate) fn new(name: &'g [u8], last_id: EntryId) -> ConsumerGroup<'g> {
        ConsumerGroup {
            name,
            last_id,
            entries_read: None,
            consumers: Vec::new(),
            pending: Vec::new(),
            changed: false,
        }
    }

    /// Returns the name in the bytes of a group.
    pub(super) fn name_of(bytes: &[u8]) -> Option<&[u8]> {
        blobs(bytes).next().map(|name| name.first)
    }

    /// Returns the group with these bytes.
    pub(super) fn decode(bytes: &'g [u8]) -> Option<ConsumerGroup<'g>> {
        let mut rest = bytes;
        let name = take_blob(&mut rest)?;
        let last_id = EntryId::from_bytes(take(&mut rest)?);
        let entries_read = take_number(&mut rest)?;
        let count = u32::from_le_bytes(take(&mut rest)?);
        let consumer = |_| {
            Some(GroupConsumer {
                name: take_blob(&mut rest)?,
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
        Some(ConsumerGroup {
            name,
            last_id,
            entries_read,
            consumers,
            pending: pending.collect::<Option<_>>()?,
            changed: false,
        })
    }

    /// Returns the bytes of the group.
    pub(super) fn encode(&self) -> SmallVec<[u8; 128]> {
        let mut to = SmallVec::new();
        push_blob(&mut to, self.name);
        to.extend_from_slice(&self.last_id.to_bytes());
        to.extend_from_slice(&self.entries_read.unwrap_or(NONE).to_le_bytes());
        to.extend_from_slice(&(self.consumers.len() as u32).to_le_bytes());
        for consumer in &self.consumers {
            push_blob(&mut to, consumer.name);
            to.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            to.extend_from_slice(&consumer.active_ms.unwrap_or(NONE).to_le_bytes());
        }
        to.reserve(self.pending.len() * PENDING);
        for entry in &self.pending {
            to.extend_from_slice(&entry.id.to_bytes());
            to.extend_from_slice(&(entry.consumer as u32).to_le_bytes());
            to.extend_from_slice(&entry.delivered_ms.to_le_bytes());
            to.extend_from_slice(&entry.deliveries.to_le_bytes());
        }
        to
    }

    /// Returns the position of a consumer.
    pub(crate) fn consumer(&self, name: &[u8]) -> Option<usize> {
        self.find(name).ok()
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.consumers.binary_search_by(|own| own.name.cmp(name))
    }

    /// Returns the position of a consumer, and `true` if it is new.
    pub(crate) fn consumer_or_new(&mut self, name: &'g [u8], now_ms: u64) -> (usize, bool) {
        let at = match self.find(name) {
            Ok(at) => return (at, false),
            Err(at) => at,
        };
        let consumer = GroupConsumer {
            name,
            seen_ms: now_ms,
            active_ms: None,
        };
        self.consumers.insert(at, consumer);
        let behind = self.pending.iter_mut().filter(|entry| entry.consumer >= at);
        behind.for_each(|entry| entry.consumer += 1);
        self.changed = true;
        (at, true)
    }

    /// Notes that a consumer is seen now.
    pub(crate) fn see(&mut self, consumer: usize, now_ms: u64) {
        let consumer = &mut self.consumers[consumer];
        self.changed |= now_ms.saturating_sub(consumer.seen_ms) >= SEEN_MS;
        consumer.seen_ms = now_ms;
    }

    /// Notes that a consumer gets entries now.
    pub(crate) fn note_active(&mut self, consumer: usize, now_ms: u64) {
        self.consumers[consumer].active_ms = Some(now_ms);
        self.changed = true;
    }

    /// Removes a consumer with its pending entries. Returns the number of these; `None`: there is no such
    /// consumer.
    pub(crate) fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let at = self.consumer(name)?;
        let before = self.pending.len();
        self.pending.retain(|entry| entry.consumer != at);
        let behind = self.pending.iter_mut().filter(|entry| entry.consumer > at);
        behind.for_each(|entry| entry.consumer -= 1);
        self.consumers.remove(at);
        self.changed = true;
        Some(before - self.pending.len())
    }

    /// Returns the position of the first pending entry with this id or a greater one.
    pub(crate) fn pending_from(&self, id: EntryId) -> usize {
        self.pending.partition_point(|entry| entry.id < id)
    }

    /// Returns the position of a pending entry.
    pub(crate) fn find_pending(&self, id: EntryId) -> Option<usize> {
        let at = self.pending_from(id);
        self.pending
            .get(at)
            .filter(|entry| entry.id == id)
            .map(|_| at)
    }

    /// Notes that an entry is delivered to a consumer for the first time.
    pub(crate) fn deliver(&mut self, id: EntryId, consumer: usize, now_ms: u64) {
        let entry = PendingEntry {
            id,
            consumer,
            delivered_ms: now_ms,
            deliveries: 1,
        };
        let at = self.pending_from(id);
        match self.pending.get_mut(at) {
            Some(own) if own.id == id => *own = entry,
            _ => self.pending.insert(at, entry),
        }
        self.changed = true;
    }

    /// Removes a pending entry. Returns `true` if there was one with this id.
    pub(crate) fn remove_pending(&mut self, id: EntryId) -> bool {
        let found = self.find_pending(id);
        if let Some(at) = found {
            self.pending.remove(at);
            self.changed = true;
        }
        found.is_some()
    }

    /// Returns the numbers of pending entries of each consumer.
    pub(crate) fn pending_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.consumers.len()];
        for entry in &self.pending {
            if let Some(count) = counts.get_mut(entry.consumer) {
                *count += 1;
            }
        }
        counts
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*bytes)
}

fn take_blob<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let blob = blobs(from).next()?;
    *from = &from[blob.place.end..];
    Some(blob.first)
}

/// Takes a number or a time; the inner `None`: it is unknown, or never was.
fn take_number(from: &mut &[u8]) -> Option<Option<u64>> {
    let number = u64::from_le_bytes(take(from)?);
    Some((number != NONE).then_some(number))
}
