//! How a region is divided into slots.

use std::time::Duration;

use super::header;

/// How a region is divided.
#[derive(Clone, Debug)]
pub struct Options {
    /// Random, not 0, and another one at each start: it distinguishes this owner's slots from those of
    /// an earlier owner of the memory.
    pub incarnation: u64,
    /// Number of parts, each with its own lock and memory; 16 at most, and fewer in a small region.
    pub parts: usize,
    /// Bytes of a page: the size of the largest slot, and of the pieces of memory that pass from slots
    /// of one size to those of another.
    pub page_bytes: usize,
    /// Number of gates: two keys of one gate disturb each other. Each takes 16 bytes of the owner's
    /// memory.
    pub gates: usize,
    /// Time before freed memory is reused. Readers reject reads that take longer.
    pub grace: Duration,
    /// Until when the region is valid at first, in nanoseconds of the owner's clock;
    /// [`Slots::FOR_EVER`](super::Slots::FOR_EVER) if no other node can become the owner of the keys
    /// meanwhile.
    pub lease: u64,
}

impl Options {
    /// Returns the usual options.
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

/// The error for a region that cannot have slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a region for slots has {least} to {most} bytes, with these options, and not {bytes}")]
pub struct Unsuited {
    pub(super) bytes: usize,
    pub(super) least: usize,
    pub(super) most: usize,
}
