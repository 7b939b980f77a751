//! How a region is divided into slots.

use std::time::Duration;

use super::header;

/// How a region is divided.
#[derive(Clone, Debug)]
pub struct Options {
    /// Random, not 0, and another one at each start: what tells this owner's slots from those of
    /// whoever had the memory before.
    pub incarnation: u64,
    /// Parts with a lock and memory of their own; 16 at most, and fewer in a small region.
    pub parts: usize,
    /// Bytes of a page: so large is the largest slot, and so large are the pieces of memory that pass
    /// from slots of one size to those of another.
    pub page_bytes: usize,
    /// Gates: two keys of one gate disturb each other. 16 bytes each, of the owner's memory.
    pub gates: usize,
    /// Memory that was freed is not reused for so long. Reads that take longer are not believed.
    pub grace: Duration,
    /// Until when the region may be believed at first, in nanoseconds of the owner's clock;
    /// [`Slots::FOR_EVER`](super::Slots::FOR_EVER) where nobody else can become the owner of the keys meanwhile.
    pub lease: u64,
}

impl Options {
    /// The usual ones.
    #[must_use]
    pub fn new(incarnation: u64) -> Options {
        Options {
            incarnation,
            parts: header::PARTS,
            page_bytes: 64 * 1024,
            gates: 64 * 1024,
            grace: Duration::from_millis(200),
            lease: header::FOR_EVER,
        }
    }
}

/// A region in which no slots can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a region for slots has {least} to {most} bytes, with these options, and not {bytes}")]
pub struct Unsuited {
    pub(super) bytes: usize,
    pub(super) least: usize,
    pub(super) most: usize,
}
