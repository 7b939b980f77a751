//! Memory that reads land in.
//!
//! Safety contracts: those of the traits, [`Landing`] and [`Memory`]. An [`OwnBuf`] is a [`Landing`]
//! because its bytes lie in an allocation of their own, which is reached through borrows of the
//! value alone.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::buffers::Buffer;

/// Memory that a read lands in. Whoever submits a read gives it away, and has it back when the read
/// is over.
///
/// # Safety
/// While nobody borrows the value, and until it is dropped, the memory that [`Landing::memory`]
/// tells stays where it is and is valid for writes by any thread of this process and by the kernel,
/// be the value moved or leaked; and there is no reference to it but such to atomic integers. So
/// references to its bytes, if there are any, are borrows of the value.
pub unsafe trait Landing: Send + 'static {
    /// The memory. Begins at a multiple of the alignment that the file's reads need.
    fn memory(&self) -> NonNull<[u8]>;
}

// SAFETY: what is in the box keeps the contract wherever it lies, and is borrowed only through the
// box.
unsafe impl<L: Landing + ?Sized> Landing for Box<L> {
    fn memory(&self) -> NonNull<[u8]> {
        L::memory(self)
    }
}

/// A landing, and what its owner has to remember of the read.
// SAFETY: the first part keeps the contract wherever it lies, and is borrowed only through the pair.
unsafe impl<L: Landing, T: Send + 'static> Landing for (L, T) {
    fn memory(&self) -> NonNull<[u8]> {
        self.0.memory()
    }
}

/// Memory of which landings are parts, so that a way of reading can be told of all of it at once:
/// see [`Reads::register`](super::Reads::register).
///
/// # Safety
/// Until the value is dropped, the memory that [`Memory::range`] tells is always the same, stays
/// where it is and may be written by the kernel wherever it is part of a [`Landing`] that was given
/// away.
pub unsafe trait Memory: Send + Sync {
    /// All of it.
    fn range(&self) -> NonNull<[u8]>;
}

/// A lone piece of memory for a read, which begins at a multiple of 4 KiB. To make one takes as long
/// as a short read; whoever reads often has a [`Pool`](super::Pool).
pub struct OwnBuf {
    buffer: Buffer,
    len: usize,
}

impl OwnBuf {
    /// `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> OwnBuf {
        let whole = len.max(1).next_multiple_of(crate::direct::ALIGNMENT);
        OwnBuf {
            buffer: Buffer::new(whole),
            len,
        }
    }
}

// SAFETY: the buffer's allocation stays where it is until it is dropped, and all references to it
// are borrows of this value.
unsafe impl Landing for OwnBuf {
    fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.buffer.start(), self.len)
    }
}

impl AsRef<[u8]> for OwnBuf {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl AsMut<[u8]> for OwnBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }
}
