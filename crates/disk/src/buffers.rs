//! Memory for direct I/O: aligned, with an address that does not change.
//!
//! Safety contract: an [`AlignedBuffer`] owns one allocation of exactly `layout`, made by
//! `alloc_zeroed` and freed by `dealloc` when it is dropped. All of its bytes are initialised from
//! the start. It gives access only by slices, so that the borrow checker separates readers and
//! writers.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Direct I/O begins and ends at multiples of this. No common device or file system asks for more.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes that begin at a multiple of [`ALIGNMENT`]. The thread that makes a buffer touches it
/// first, so that its pages lie near that thread's processor.
pub(crate) struct AlignedBuffer {
    bytes: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation belongs to this value alone, and is reached only through its borrows.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; a shared borrow gives no more than a shared slice.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Returns `len` zeros.
    ///
    /// # Panics
    /// Panics if `len` is zero or no multiple of the alignment.
    pub(crate) fn new(len: usize) -> AlignedBuffer {
        assert!(
            len > 0 && len.is_multiple_of(ALIGNMENT),
            "a buffer of {len} bytes"
        );
        let layout = Layout::from_size_align(len, ALIGNMENT).expect("a sensible length");
        // SAFETY: the layout's size is not zero.
        let bytes = unsafe { alloc_zeroed(layout) };
        let Some(bytes) = NonNull::new(bytes) else {
            handle_alloc_error(layout)
        };
        AlignedBuffer { bytes, layout }
    }

    /// Returns the start of the buffer, for code that writes to it while it is not borrowed.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation holds as many initialised bytes, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed for this slice alone.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and is not borrowed any more.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_separate() {
        let mut buffers: Vec<AlignedBuffer> =
            (1..5).map(|n| AlignedBuffer::new(n * ALIGNMENT)).collect();
        for (i, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.len() == (i + 1) * ALIGNMENT && buffer.iter().all(|&b| b == 0));
            buffer.fill(i as u8 + 1);
        }
        for (i, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|&byte| byte == i as u8 + 1));
        }
    }
}
