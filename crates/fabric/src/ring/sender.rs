//! The side that writes records into the peer's ring.

use super::layout::{AROUND, CONTROL, RingError, SET, TAKEN, body_max, record_words};
use crate::memory::Remote;
use crate::sync::{AtomicU64, Ordering};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Sender {
    /// The number of words of the peer's ring.
    capacity: usize,
    /// The number of words ever written.
    written: u64,
    /// The number of words that the peer had taken at the last look.
    taken: u64,
    /// The buffer for a record before it is written.
    record: Vec<u64>,
}

impl Sender {
    pub(super) fn new(capacity: usize) -> Sender {
        Sender {
            capacity,
            written: 0,
            taken: 0,
            record: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        near: &[AtomicU64],
        far: &mut impl Remote,
        bytes: &[u8],
    ) -> Result<usize, RingError> {
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            if self.free() < record_words(rest.len()) {
                self.look(near)?;
            }
            let place = (self.written % self.capacity as u64) as usize;
            let words = self.free().min(self.capacity - place);
            let room = (words * 8)
                .saturating_sub(AROUND)
                .min(body_max(self.capacity));
            if room == 0 {
                break;
            }
            let body = &rest[..rest.len().min(room)];
            encode(body, &mut self.record);
            far.write(CONTROL + place, &self.record)?;
            self.written += self.record.len() as u64;
            sent += body.len();
        }
        Ok(sent)
    }

    /// Returns the number of words that may be written, as far as is known.
    #[inline]
    fn free(&self) -> usize {
        self.capacity - (self.written - self.taken) as usize
    }

    /// Reads how much the peer has taken.
    fn look(&mut self, near: &[AtomicU64]) -> Result<(), RingError> {
        let taken = near[TAKEN].load(Ordering::Acquire);
        if !(self.taken..=self.written).contains(&taken) || !taken.is_multiple_of(2) {
            return Err(RingError::Garbage("a count of what was never written"));
        }
        self.taken = taken;
        Ok(())
    }

    /// Returns `true` if there is room, or a count that is wrong.
    #[inline]
    pub(super) fn has_room(&self, near: &[AtomicU64]) -> bool {
        self.free() > 0 || near[TAKEN].load(Ordering::Acquire) != self.taken
    }
}

/// Makes the record of a body.
#[inline]
fn encode(body: &[u8], record: &mut Vec<u64>) {
    record.clear();
    record.push(body.len() as u64);
    // The first indicator, and the bytes behind it in its word.
    let mut word = [SET, 0, 0, 0, 0, 0, 0, 0];
    let (head, body) = body.split_at(body.len().min(7));
    word[1..=head.len()].copy_from_slice(head);
    let mut end = 1 + head.len();
    if end == 8 {
        record.push(u64::from_le_bytes(word));
        let (whole, rest) = body.as_chunks();
        record.extend(whole.iter().map(|&chunk| u64::from_le_bytes(chunk)));
        word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        end = rest.len();
    }
    word[end] = SET;
    record.push(u64::from_le_bytes(word));
    if !record.len().is_multiple_of(2) {
        record.push(0);
    }
}
