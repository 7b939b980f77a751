//! The memory into which pages are read for a reader.
//!
//! Safety contract: the memory of a [`ReadTarget`] is either a part of a reader's window, which stays
//! mapped as long as its [`MappedPart`] and to which this process makes no reference, or a pool's
//! buffer, whose own contract holds.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use disk::reads::PooledBuffer;
use fabric::window::{MappedPart, RemoteWindow};

/// All of a reader's window.
pub(super) struct WholeWindow(MappedPart);

impl WholeWindow {
    /// Returns a whole window; `None` if it is not mapped here.
    pub(super) fn of(window: &RemoteWindow) -> Option<WholeWindow> {
        window.place(0, window.len()).map(WholeWindow)
    }
}

// SAFETY: the memory does not belong to a thread.
unsafe impl Send for WholeWindow {}
// SAFETY: the only use of the memory here is to return its address.
unsafe impl Sync for WholeWindow {}

// SAFETY: a place is always the same memory, stays mapped as long as it exists, and this process
// has no reference to it; so the kernel may write it.
unsafe impl disk::reads::RegistrableMemory for WholeWindow {
    fn range(&self) -> NonNull<[u8]> {
        self.0.memory()
    }
}

/// Copies a page to the place that its reader has chosen.
///
/// # Panics
/// Panics if the place is not as long as the page.
pub(super) fn put(place: &MappedPart, page: &[u8]) {
    let memory = place.memory();
    assert_eq!(memory.len(), page.len(), "a place for one page");
    // SAFETY: the place stays mapped as long as it exists, is as long as the page, and this process
    // has no reference to it, so that the page does not lie in it.
    unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), memory.cast().as_ptr(), page.len()) };
}

/// Memory for a page, and the data needed when the page is there.
pub(super) struct ReadTarget {
    pub(super) into: ReadMemory,
    /// Its reader: the place among the readers, and the number of the visit.
    pub(super) reader: usize,
    pub(super) generation: u64,
    pub(super) tag: u32,
    /// For a window that is not mapped here: the window, and the byte at which the page begins.
    pub(super) window: u16,
    pub(super) to: usize,
    /// Bytes of the page.
    pub(super) len: usize,
}

/// Memory for a page.
pub(super) enum ReadMemory {
    /// A part of the reader's window.
    Place(MappedPart),
    /// Memory of this side.
    Buffer(PooledBuffer),
}

// SAFETY: the memory does not belong to a thread.
unsafe impl Send for ReadTarget {}

// SAFETY: a place stays mapped, and this process has no reference to it; a buffer keeps the
// contract itself. Neither moves its memory when the value is moved.
unsafe impl disk::reads::ReadBuffer for ReadTarget {
    fn memory(&self) -> NonNull<[u8]> {
        match &self.into {
            ReadMemory::Place(place) => place.memory(),
            ReadMemory::Buffer(buffer) => disk::reads::ReadBuffer::memory(buffer),
        }
    }
}
