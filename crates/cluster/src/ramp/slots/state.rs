//! The words of one slot, as its owner stores them.
//!
//! The first word is the *state*: a sequence number, twice, and one more while the slot is valid. No
//! two publications of a region have the same number. The other words are what [`super::image`] says.
//!
//! What a reader that finds a valid state and the right checksum may conclude: at the moment at which
//! it read the state, this publication was in the slot and no writer had cleared it. The checksum
//! covers the state, so that the other words are that publication's, whenever they were read.
//! Nothing is said, and nothing needed, about the order in which words are stored or read.

use super::sync::{AtomicU64, Ordering};

const VALID: u64 = 1;

/// The state of a valid slot with this publication.
pub(super) const fn valid(sequence: u64) -> u64 {
    sequence << 1 | VALID
}

/// Whether a state is that of a valid slot.
pub(super) const fn is_valid(state: u64) -> bool {
    state & VALID != 0
}

/// From now on nobody believes the slot. Under the lock of its part.
pub(super) fn clear(slot: &[AtomicU64]) {
    let state = slot[0].load(Ordering::Relaxed);
    slot[0].store(state & !VALID, Ordering::SeqCst);
}

/// Puts an image into the slot; its first word makes it valid. Under the lock of its part.
pub(super) fn publish(slot: &[AtomicU64], image: &[u64]) {
    for (word, value) in slot.iter().zip(image).skip(1) {
        word.store(*value, Ordering::Relaxed);
    }
    slot[0].store(image[0], Ordering::Release);
}
