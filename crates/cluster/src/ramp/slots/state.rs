//! The words of one slot, as its owner stores them.
//!
//! The first word is the *state*: twice a sequence number, and one more while the slot is valid. No two
//! publications of a region have the same number. The other words are described in [`super::image`].
//!
//! A reader that finds a valid state and the right checksum may conclude: at the moment at which it read
//! the state, this publication was in the slot and no writer had cleared it. The checksum covers the
//! state, so that the other words are that publication's, whenever they were read. The conclusion does
//! not depend on the order in which words are stored or read.

use super::sync::{AtomicU64, Ordering};

const VALID: u64 = 1;

/// Returns the state of a valid slot with this publication.
pub(super) const fn valid(sequence: u64) -> u64 {
    sequence << 1 | VALID
}

/// Returns `true` if a state is that of a valid slot.
pub(super) const fn is_valid(state: u64) -> bool {
    state & VALID != 0
}

/// Makes the slot invalid: readers reject it from now on. To be called under the lock of its part.
pub(super) fn clear(slot: &[AtomicU64]) {
    let state = slot[0].load(Ordering::Relaxed);
    slot[0].store(state & !VALID, Ordering::SeqCst);
}

/// Puts an image into the slot; its first word makes it valid. To be called under the lock of its part.
pub(super) fn publish(slot: &[AtomicU64], image: &[u64]) {
    for (word, value) in slot.iter().zip(image).skip(1) {
        word.store(*value, Ordering::Relaxed);
    }
    slot[0].store(image[0], Ordering::Release);
}
