//! A file's bytes as memory that is written.
//!
//! Safety contract: a [`FileMapping`] owns one shared mapping of a file from its beginning, which is
//! unmapped when the value is dropped. The mapping may reach beyond the file's end. Bytes are
//! written through raw pointers, by one thread at a time because that borrows the value mutably,
//! and never read; no reference to them exists. So it is no data race when the kernel changes them
//! for other handles of the file. A write to a byte that the file does not have ends the process by
//! SIGBUS; it touches no other memory.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, IoSlice};
use std::ptr::{NonNull, null_mut};

use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mremap, munmap};

use super::cache_line::LineWriteBack;
use super::persistent_copy::copy;

/// The least bytes of a mapping. They are addresses, not memory.
const LEAST: usize = 4 << 20;

/// See the [module](self).
pub(super) struct FileMapping {
    start: NonNull<u8>,
    len: usize,
    write_back: LineWriteBack,
}

// SAFETY: the mapping belongs to this value alone, and no thread has a part in it.
unsafe impl Send for FileMapping {}

impl FileMapping {
    /// Maps the first `size` bytes of a file so that a store is durable when it has left the
    /// processor's caches. Returns `None` if the file's system or this processor cannot do that.
    ///
    /// # Errors
    /// Returns an error if the process can have no further mapping.
    pub(super) fn persistent(file: &File, size: u64) -> io::Result<Option<FileMapping>> {
        let Some(write_back) = LineWriteBack::detect() else {
            return Ok(None);
        };
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        match FileMapping::map(file, size, flags, write_back) {
            Ok(mapping) => Ok(Some(mapping)),
            Err(error @ (Errno::NOMEM | Errno::AGAIN)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Maps the first `size` bytes of a file.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub(super) fn new(file: &File, size: u64) -> io::Result<FileMapping> {
        let mapping = FileMapping::map(file, size, MapFlags::SHARED, LineWriteBack::Nothing);
        Ok(mapping?)
    }

    fn map(
        file: &File,
        size: u64,
        flags: MapFlags,
        write_back: LineWriteBack,
    ) -> Result<FileMapping, Errno> {
        let len = mapped_len(size)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start = unsafe { mmap(null_mut(), len, access, flags, file, 0)? };
        Ok(FileMapping {
            start: NonNull::new(start.cast()).expect("nothing is mapped at 0"),
            len,
            write_back,
        })
    }

    /// Makes the mapping cover `size` bytes at least.
    ///
    /// # Errors
    /// Returns the operating system's error; the mapping is as before then.
    pub(super) fn grow(&mut self, size: u64) -> io::Result<()> {
        let len = mapped_len(size)?;
        if len > self.len {
            let start = self.start.as_ptr().cast();
            // SAFETY: this is the whole mapping, and `self` has its only address, which is replaced.
            let start = unsafe { mremap(start, self.len, len, MremapFlags::MAYMOVE)? };
            self.start = NonNull::new(start.cast()).expect("nothing is mapped at 0");
            self.len = len;
        }
        Ok(())
    }

    /// Makes the pages of the bytes from `from` to `to` writable, so that writes do not fault. The
    /// file has these bytes. A kernel before Linux 5.14 does nothing.
    ///
    /// # Errors
    /// Returns an error if writes there would fail.
    pub(super) fn populate(&mut self, from: u64, to: u64) -> io::Result<()> {
        let page = rustix::param::page_size();
        let first = from as usize / page * page;
        let len = (to as usize).checked_sub(first).expect("a range");
        assert!(to as usize <= self.len, "the bytes are mapped");
        if from >= to {
            return Ok(());
        }
        let populated = retry_on_intr(|| {
            // SAFETY: the range begins at a page and lies within the mapping; its content stays.
            unsafe {
                let start = self.start.as_ptr().add(first);
                madvise(start.cast(), len, Advice::LinuxPopulateWrite)
            }
        });
        match populated {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            // The kernel's answer where a store would have met a signal.
            Err(Errno::FAULT) => Err(io::Error::from(Errno::IO)),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies `parts`, one behind the other, to the file's bytes at `offset`, which exist. On
    /// return other processors see the copy; in persistent memory it is durable.
    ///
    /// # Panics
    /// Panics if the mapping does not cover the bytes.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>], offset: u64) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let end = usize::try_from(offset)
            .ok()
            .and_then(|at| at.checked_add(bytes));
        assert!(
            end.is_some_and(|end| end <= self.len),
            "the bytes are mapped"
        );
        // SAFETY: as many bytes behind the offset are mapped and writable, as was just checked, and
        // `self` is borrowed mutably. `parts` are other memory: no reference to the mapping exists.
        unsafe {
            copy(
                self.start.as_ptr().add(offset as usize),
                parts,
                self.write_back,
            )
        }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and `self` has its only address. An error is not
        // possible for such a range.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Returns the length of a mapping for `size` bytes: more than that, so that it rarely grows.
fn mapped_len(size: u64) -> Result<usize, Errno> {
    let len = usize::try_from(size)
        .ok()
        .and_then(usize::checked_next_power_of_two);
    Ok(len.ok_or(Errno::NOMEM)?.max(LEAST))
}
