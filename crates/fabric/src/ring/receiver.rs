//! The side that reads records from its own ring.

use super::layout::{BODY, RingError, SET, body_max, byte_of, record_words, ring};
use crate::sync::{AtomicU64, Ordering};

/// Room is given back when this fraction of the ring was read: a write to the peer for each record
/// would not pay.
const PARTS: u64 = 4;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The number of words of the ring.
    capacity: usize,
    /// The number of words ever read and cleared, which determines the place of the next record.
    taken: u64,
    /// The part of these that the peer knows.
    given: u64,
    /// The current record: bytes of its body, and how many of them were read.
    current: Option<(usize, usize)>,
}

impl Receiver {
    pub(super) fn new(capacity: usize) -> Receiver {
        Receiver {
            capacity,
            taken: 0,
            given: 0,
            current: None,
        }
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        near: &[AtomicU64],
        into: &mut [u8],
    ) -> Result<usize, RingError> {
        let ring = ring(near);
        let mut filled = 0;
        while filled < into.len() {
            let (size, read) = match self.current {
                Some(current) => current,
                None => match self.look(ring)? {
                    Some(size) => (size, 0),
                    None => break,
                },
            };
            let count = (size - read).min(into.len() - filled);
            let record = &ring[self.place()..];
            copy(record, BODY + read, &mut into[filled..filled + count]);
            filled += count;
            self.current = Some((size, read + count));
            if read + count == size {
                self.clear(ring, size);
            }
        }
        Ok(filled)
    }

    /// Returns the place of the next record.
    #[inline]
    fn place(&self) -> usize {
        (self.taken % self.capacity as u64) as usize
    }

    /// Returns `true` if there is something to read, or an error.
    #[inline]
    pub(super) fn has_input(&self, near: &[AtomicU64]) -> bool {
        self.current.is_some() || self.look(ring(near)) != Ok(None)
    }

    /// Returns the size of the next record, if all of it has come.
    #[inline]
    fn look(&self, ring: &[AtomicU64]) -> Result<Option<usize>, RingError> {
        let record = &ring[self.place()..];
        match byte_of(record[1].load(Ordering::Acquire), 8) {
            0 => return Ok(None),
            SET => {}
            _ => return Err(RingError::Garbage("a first indicator of no meaning")),
        }
        let size = record[0].load(Ordering::Relaxed);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let fits = (1..=body_max(self.capacity)).contains(&size);
        if !fits || record_words(size) > record.len() {
            return Err(RingError::Garbage("a size that is none"));
        }
        let end = BODY + size;
        match byte_of(record[end / 8].load(Ordering::Acquire), end) {
            0 => Ok(None),
            SET => Ok(Some(size)),
            _ => Err(RingError::Garbage("a second indicator of no meaning")),
        }
    }

    /// Clears the record that was read.
    #[inline]
    fn clear(&mut self, ring: &[AtomicU64], size: usize) {
        let (place, words) = (self.place(), record_words(size));
        for word in &ring[place..place + words] {
            // Giving it back makes this visible.
            word.store(0, Ordering::Relaxed);
        }
        self.taken += words as u64;
        self.current = None;
    }

    /// Returns the count of words taken, if the peer must be informed now.
    #[inline]
    pub(super) fn give_back(&mut self) -> Option<u64> {
        let worth = (self.taken - self.given) * PARTS >= self.capacity as u64;
        worth.then(|| {
            self.given = self.taken;
            self.taken
        })
    }
}

/// Copies bytes from this offset on.
#[inline]
fn copy(words: &[AtomicU64], mut from: usize, mut into: &mut [u8]) {
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_le_bytes();
    if !from.is_multiple_of(8) {
        let part = into.len().min(8 - from % 8);
        let (head, rest) = into.split_at_mut(part);
        head.copy_from_slice(&load(&words[from / 8])[from % 8..][..part]);
        into = rest;
        from += part;
    }
    let (whole, rest) = into.as_chunks_mut();
    let mut words = words[from / 8..].iter();
    for (to, word) in whole.iter_mut().zip(&mut words) {
        *to = load(word);
    }
    if let Some(word) = words.next()
        && !rest.is_empty()
    {
        rest.copy_from_slice(&load(word)[..rest.len()]);
    }
}
