//! Memory in which reads land.
//!
//! Safety contracts: those of the traits, [`ReadBuffer`] and [`RegistrableMemory`]. An
//! [`AllocatedBuffer`] is a [`ReadBuffer`] because its bytes lie in an allocation of their own,
//! which is accessible only through borrows of the value.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::buffers::AlignedBuffer;

/// Memory in which a read lands. The caller that submits a read gives it away, and gets it back
/// when the read is over.
///
/// # Safety
/// While the value is not borrowed, and until it is dropped, the memory that [`ReadBuffer::memory`]
/// returns stays where it is and is valid for writes by any thread of this process and by the
/// kernel, even if the value is moved or leaked; and there are no references to it but those to
/// atomic integers. So references to its bytes, if there are any, are borrows of the value.
pub unsafe trait ReadBuffer: Send + 'static {
    /// Returns the memory. It begins at a multiple of the alignment that the file's reads need.
    fn memory(&self) -> NonNull<[u8]>;
}

// SAFETY: the value in the box keeps the contract wherever it lies, and is borrowed only through
// the box.
unsafe impl<L: ReadBuffer + ?Sized> ReadBuffer for Box<L> {
    fn memory(&self) -> NonNull<[u8]> {
        L::memory(self)
    }
}

/// A read buffer, and what its owner has to remember of the read.
// SAFETY: the first part keeps the contract wherever it lies, and is borrowed only through the pair.
unsafe impl<L: ReadBuffer, T: Send + 'static> ReadBuffer for (L, T) {
    fn memory(&self) -> NonNull<[u8]> {
        self.0.memory()
    }
}

/// Memory of which read buffers are parts, so that all of it can be registered at once: see
/// [`ReadQueue::register`](super::ReadQueue::register).
///
/// # Safety
/// Until the value is dropped, the memory that [`RegistrableMemory::range`] returns is always the
/// same, stays where it is and may be written by the kernel wherever it is part of a [`ReadBuffer`]
/// that was given away.
pub unsafe trait RegistrableMemory: Send + Sync {
    /// Returns all of it.
    fn range(&self) -> NonNull<[u8]>;
}

/// A single piece of memory for a read, which begins at a multiple of 4 KiB. Making one takes as
/// long as a short read; code that reads often uses a [`BufferPool`](super::BufferPool).
pub struct AllocatedBuffer {
    buffer: AlignedBuffer,
    len: usize,
}

impl AllocatedBuffer {
    /// Returns `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> AllocatedBuffer {
        let whole = len.max(1).next_multiple_of(crate::buffers::ALIGNMENT);
        AllocatedBuffer {
            buffer: AlignedBuffer::new(whole),
            len,
        }
    }
}

// SAFETY: the buffer's allocation stays where it is until it is dropped, and all references to it
// are borrows of this value.
unsafe impl ReadBuffer for AllocatedBuffer {
    fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.buffer.start(), self.len)
    }
}

impl AsRef<[u8]> for AllocatedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl AsMut<[u8]> for AllocatedBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }
}
