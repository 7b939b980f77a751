//! The first words of a region, which hold for all of its slots. A reader reads them after the slots.
//!
//! | word | content |
//! |---|---|
//! | 0 | `kumikiS1`: a region of slots, and the version of its layout |
//! | 1 | the owner's incarnation: random, and drawn anew at each start |
//! | 2 | 0, or 1 once the region is revoked |
//! | 3 | the lease: until when, by the owner's clock in nanoseconds, the region is valid; all ones: for ever |
//! | 4 | the engine's time in milliseconds, by which expiry is judged |
//! | 5 | the grace period in nanoseconds: memory that was freed is not reused for so long |
//! | 6, 7 | 0 |
//! | 8 to 23 | for each part: how often memory in it was divided anew, into slots of another size |
//!
//! Words 2, 4 and 8 to 23 only grow. The lease may shrink ([`Slots::set_lease`](super::Slots::set_lease)).

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Words of a header.
pub(super) const WORDS: usize = 8 + PARTS;
/// The greatest number of parts.
pub(super) const PARTS: usize = 16;
/// A lease without an end.
pub(super) const FOR_EVER: u64 = u64::MAX;

const MAGIC: u64 = u64::from_le_bytes(*b"kumikiS1");
const INCARNATION: usize = 1;
const REVOKED: usize = 2;
const LEASE: usize = 3;
const TIME: usize = 4;
const GRACE: usize = 5;
const LAYOUTS: usize = 8;

/// A header, as a reader has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header<'w> {
    pub(super) incarnation: u64,
    pub(super) is_revoked: bool,
    pub(super) lease: u64,
    pub(super) time_ms: u64,
    pub(super) grace_ns: u64,
    layouts: &'w [u64],
}

impl Header<'_> {
    /// Decodes a header. Returns `None` if the words are not the header of a region of slots, or are of
    /// another version.
    pub(super) fn read(words: &[u64]) -> Option<Header<'_>> {
        (words.len() == WORDS && words[0] == MAGIC).then(|| Header {
            incarnation: words[INCARNATION],
            is_revoked: words[REVOKED] != 0,
            lease: words[LEASE],
            time_ms: words[TIME],
            grace_ns: words[GRACE],
            layouts: &words[LAYOUTS..],
        })
    }

    /// Returns `true` if an address was given under the present layout of its part.
    pub(super) fn is_of(&self, part: u32, layout: u32) -> bool {
        self.layouts.get(part as usize) == Some(&u64::from(layout))
    }
}

/// Writes a header. Readers reject the region until that is done.
pub(super) fn begin(words: &[AtomicU64], incarnation: u64, lease: u64, grace_ns: u64) {
    words[REVOKED].store(1, Ordering::SeqCst);
    for word in &words[GRACE..] {
        word.store(0, Ordering::Relaxed);
    }
    words[INCARNATION].store(incarnation, Ordering::Relaxed);
    words[LEASE].store(lease, Ordering::Relaxed);
    words[TIME].store(0, Ordering::Relaxed);
    words[GRACE].store(grace_ns, Ordering::Relaxed);
    words[0].store(MAGIC, Ordering::Relaxed);
    words[REVOKED].store(0, Ordering::Release);
}

pub(super) fn revoke(words: &[AtomicU64]) {
    words[REVOKED].store(1, Ordering::SeqCst);
}

pub(super) fn is_revoked(words: &[AtomicU64]) -> bool {
    words[REVOKED].load(Ordering::Acquire) != 0
}

pub(super) fn extend_lease(words: &[AtomicU64], until: u64) {
    words[LEASE].fetch_max(until, Ordering::SeqCst);
}

pub(super) fn set_lease(words: &[AtomicU64], until: u64) {
    words[LEASE].store(until, Ordering::SeqCst);
}

pub(super) fn refresh_time(words: &[AtomicU64], ms: u64) {
    words[TIME].fetch_max(ms, Ordering::SeqCst);
}

pub(super) fn time_ms(words: &[AtomicU64]) -> u64 {
    words[TIME].load(Ordering::Acquire)
}

/// Changes the layout of a part whose memory is about to be divided anew: a reader that reads any word
/// that is stored from now on, and then the header, finds the layout changed.
pub(super) fn change_layout(words: &[AtomicU64], part: usize, layout: u32) {
    words[LAYOUTS + part].store(layout.into(), Ordering::Relaxed);
    fence(Ordering::Release);
}
