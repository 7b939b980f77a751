//! Memory of the process's own, in huge pages where the kernel has them.
//!
//! Safety contract: an [`HugePageMemory`] owns one anonymous private mapping, all of whose bytes are
//! initialised (the kernel gives zeros), and which is unmapped when it is dropped. It makes no
//! reference to it; code that makes one ensures that no writer writes there meanwhile.

#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use super::read_buffer::RegistrableMemory;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Bytes of an ordinary page.
const PAGE: usize = 4096;

/// See the [module](self).
pub(super) struct HugePageMemory {
    /// The whole mapping.
    mapped: NonNull<u8>,
    mapped_len: usize,
    /// The part in use, which begins at a multiple of a huge page.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, which gives access to it only by address.
unsafe impl Send for HugePageMemory {}
// SAFETY: as above.
unsafe impl Sync for HugePageMemory {}

impl HugePageMemory {
    /// Returns `len` zeros, which are backed by memory already: later accesses do not fault.
    ///
    /// # Errors
    /// Returns an error if there is not so much memory.
    pub(super) fn new(len: usize) -> io::Result<HugePageMemory> {
        let too_long = || io::Error::new(io::ErrorKind::OutOfMemory, "too many bytes for a pool");
        let used = len
            .max(1)
            .checked_next_multiple_of(HUGE)
            .ok_or_else(too_long)?;
        let mapped_len = used.checked_add(HUGE).ok_or_else(too_long)?;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = NonNull::new(mapped.cast::<u8>()).expect("nothing is mapped at 0");
        let skip = mapped.as_ptr().align_offset(HUGE);
        // SAFETY: a huge page more was mapped than is used.
        let start = unsafe { mapped.add(skip) };
        let arena = HugePageMemory {
            mapped,
            mapped_len,
            start,
            len,
        };
        arena.advise(used);
        arena.touch();
        Ok(arena)
    }

    /// Asks for huge pages, and that child processes are forked without the memory: otherwise the
    /// kernel would copy pages into which a read is about to land. Both are only hints.
    fn advise(&self, used: usize) {
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: the range lies in the mapping, and neither advice changes its bytes.
            unsafe { libc::madvise(self.start.as_ptr().cast(), used, advice) };
        }
    }

    /// Writes to each page.
    fn touch(&self) {
        for at in (0..self.len).step_by(PAGE) {
            // SAFETY: the byte lies in the mapping, and no other code knows of it yet.
            unsafe { self.start.add(at).write_volatile(0) };
        }
    }

    /// Returns a part of the memory.
    ///
    /// # Panics
    /// Panics if the part lies outside.
    pub(super) fn part(&self, at: usize, len: usize) -> NonNull<[u8]> {
        assert!(at <= self.len && len <= self.len - at, "outside the arena");
        // SAFETY: within the mapping, as was asserted.
        NonNull::slice_from_raw_parts(unsafe { self.start.add(at) }, len)
    }
}

// SAFETY: the mapping stays where it is until the arena is dropped.
unsafe impl RegistrableMemory for HugePageMemory {
    fn range(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, self.len)
    }
}

impl Drop for HugePageMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no part of it is in use any more.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_begin_at_huge_pages_with_zeros() {
        for len in [1, PAGE, HUGE, HUGE + PAGE] {
            let arena = HugePageMemory::new(len).unwrap();
            let range = arena.range();
            assert_eq!(range.len(), len);
            assert_eq!(range.as_ptr().cast::<u8>() as usize % HUGE, 0);
            // SAFETY: no code writes to the arena.
            let bytes = unsafe { range.as_ref() };
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn what_no_machine_has_is_an_error() {
        assert!(HugePageMemory::new(usize::MAX - HUGE).is_err());
        assert!(HugePageMemory::new(1 << 60).is_err());
    }

    #[test]
    #[should_panic(expected = "outside the arena")]
    fn parts_lie_within() {
        let arena = HugePageMemory::new(PAGE).unwrap();
        arena.part(PAGE - 1, 2);
    }
}
