//! An io_uring with a buffer of its own: writes from the buffer's slots, and syncs behind them.
//!
//! Each entry carries, in its `user_data`:
//!
//! | value | entry |
//! |---|---|
//! | 0…[`SLOTS`]−1 | the write from this slot |
//! | [`SYNC`] + *n* | the *n*th sync of this ring |
//!
//! Safety contract:
//! 1. The kernel reads a slot from the submission of its write until the write's completion is
//!    taken. All this time `busy` is set, and [`WriteRing::slot`] refuses to lend the slot.
//! 2. While a slot is busy its memory stays allocated: a ring that is dropped with busy slots (its
//!    kernel end failed) leaks the buffer.
//! 3. A file stays open while entries that name it are submitted: pushing and submitting are one
//!    call, which borrows the file. The kernel itself holds on to the files of submitted entries;
//!    after an error, entries that were not submitted never are.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Flags;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};

use crate::buffers::AlignedBuffer;

/// The number of writes of one ring that can be under way at once.
pub(crate) const SLOTS: usize = 2;
/// Bytes of a slot.
pub(crate) const SLOT: usize = 512 * 1024;
/// Distinguishes a sync from a write.
const SYNC: u64 = 1 << 32;
/// Entries of the queue: a write for each slot and a sync.
const ENTRIES: u32 = 8;
/// The number of times that the kernel may report that it has no memory for a request before that
/// counts as an error.
const MAX_RETRIES: u32 = 1000;

/// See the [module](self).
pub(crate) struct WriteRing {
    ring: IoUring,
    /// Present until the ring is dropped.
    buffer: Option<AlignedBuffer>,
    /// `true` if the kernel has the buffer mapped, so that it need not map it for each write.
    registered: bool,
    busy: [bool; SLOTS],
    syncs: u64,
    /// The number of entries whose completion was not taken.
    under_way: usize,
    failed: bool,
}

/// A part of a slot, and its offset in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotWrite {
    pub(crate) slot: usize,
    pub(crate) from: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
}

/// An operation that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishedOperation {
    /// The write from this slot.
    Write(usize),
    /// The sync of this number.
    Sync(u64),
}

impl WriteRing {
    /// Returns a ring with nothing under way.
    pub(crate) fn new() -> io::Result<WriteRing> {
        // Completions need not interrupt a thread that waits for them; older kernels do not support
        // that.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(ENTRIES)
            .or_else(|_| IoUring::new(ENTRIES))?;
        let buffer = AlignedBuffer::new(SLOTS * SLOT);
        let whole = libc::iovec {
            iov_base: buffer.as_ptr().cast_mut().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: the buffer's memory is valid, and stays so while entries use it (rule 2). The
        // kernel only reads it. A process that may not lock so much memory works without.
        let registered = unsafe { ring.submitter().register_buffers(&[whole]) }.is_ok();
        Ok(WriteRing {
            ring,
            buffer: Some(buffer),
            registered,
            busy: [false; SLOTS],
            syncs: 0,
            under_way: 0,
            failed: false,
        })
    }

    /// Returns `true` if the ring can be used: nothing is under way, and the kernel end is sound.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way == 0 && !self.failed
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns a slot from which no write is under way.
    pub(crate) fn idle_slot(&self) -> Option<usize> {
        self.busy.iter().position(|busy| !busy)
    }

    /// Returns the memory of a slot.
    ///
    /// # Panics
    /// Panics if a write from it is under way.
    pub(crate) fn slot(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.busy[slot], "the kernel reads slot {slot}");
        let buffer = self.buffer.as_mut().expect("there until the drop");
        &mut buffer[slot * SLOT..(slot + 1) * SLOT]
    }

    /// Submits a write, and if asked a sync of the file's data that begins when the write has
    /// written everything, and is cancelled when it has not. Then waits until `done` completions
    /// can be taken. Returns the sync's number.
    ///
    /// # Panics
    /// Panics if a write from this slot is under way, or if the part lies outside of it.
    pub(crate) fn submit(
        &mut self,
        file: BorrowedFd<'_>,
        write: SlotWrite,
        sync: bool,
        done: usize,
    ) -> io::Result<u64> {
        let part = &self.slot(write.slot)[write.from..write.from + write.len];
        let (bytes, len) = (part.as_ptr(), part.len() as u32);
        let fd = Fd(file.as_raw_fd());
        let entry = if self.registered {
            opcode::WriteFixed::new(fd, bytes, len, 0)
                .offset(write.offset)
                .build()
        } else {
            opcode::Write::new(fd, bytes, len)
                .offset(write.offset)
                .build()
        };
        self.syncs += u64::from(sync);
        let link = if sync { Flags::IO_LINK } else { Flags::empty() };
        let flush = opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build();
        let entries = [
            entry.flags(link).user_data(write.slot as u64),
            flush.user_data(SYNC + self.syncs),
        ];
        let entries = &entries[..1 + usize::from(sync)];
        // SAFETY: the bytes stay where they are and as they are until the completion is taken, for
        // the slot is busy from here on (rules 1 and 2); the file is open until they are submitted
        // (rule 3).
        unsafe { self.ring.submission().push_multiple(entries) }
            .expect("the queue has an entry for each slot and a sync");
        self.busy[write.slot] = true;
        self.under_way += entries.len();
        self.enter(done)?;
        Ok(self.syncs)
    }

    /// Takes the next completion, waiting for it.
    ///
    /// # Panics
    /// Panics if nothing is under way.
    pub(crate) fn next(&mut self) -> io::Result<(FinishedOperation, io::Result<usize>)> {
        assert!(self.under_way > 0, "nothing to wait for");
        let done = loop {
            if let Some(done) = self.ring.completion().next() {
                break done;
            }
            self.enter(1)?;
        };
        self.under_way -= 1;
        let what = if done.user_data() < SYNC {
            let slot = done.user_data() as usize;
            self.busy[slot] = false;
            FinishedOperation::Write(slot)
        } else {
            FinishedOperation::Sync(done.user_data() - SYNC)
        };
        let result = match usize::try_from(done.result()) {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(io::Error::from_raw_os_error(-done.result())),
        };
        Ok((what, result))
    }

    /// Submits the queued entries, and waits for `done` completions. After an error the ring cannot
    /// be used any more.
    fn enter(&mut self, done: usize) -> io::Result<()> {
        let mut refused = 0;
        loop {
            let result = self.ring.submit_and_wait(done);
            let all_submitted = self.ring.submission().is_empty();
            match result.map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) | Err((Some(libc::EINTR), _)) if all_submitted => return Ok(()),
                Ok(_) | Err((Some(libc::EINTR), _)) => {}
                Err((Some(libc::EAGAIN | libc::EBUSY), _)) if refused < MAX_RETRIES => {
                    refused += 1;
                    std::thread::yield_now();
                }
                Err((_, error)) => {
                    self.failed = true;
                    return Err(error);
                }
            }
        }
    }
}

impl Drop for WriteRing {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // Rule 2.
            std::mem::forget(self.buffer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_failed_write_cancels_its_sync() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reader = std::fs::File::open(file.path()).unwrap();
        let mut ring = WriteRing::new().unwrap();
        let write = SlotWrite {
            slot: 1,
            from: 0,
            len: 4096,
            offset: 0,
        };
        let number = ring.submit(reader.as_fd(), write, true, 2).unwrap();
        let results = [ring.next().unwrap(), ring.next().unwrap()];
        for (what, result) in results {
            let code = result.unwrap_err().raw_os_error().unwrap();
            match what {
                FinishedOperation::Write(slot) => assert_eq!((slot, code), (1, libc::EBADF)),
                FinishedOperation::Sync(n) => assert_eq!((n, code), (number, libc::ECANCELED)),
            }
        }
        assert!(ring.is_idle());
    }

    #[test]
    fn a_process_that_may_not_lock_memory_writes_all_the_same() {
        let file = tempfile::tempfile().unwrap();
        let mut ring = WriteRing::new().unwrap();
        ring.registered = false;
        ring.slot(1)[..10].copy_from_slice(b"0123456789");
        let write = SlotWrite {
            slot: 1,
            from: 2,
            len: 5,
            offset: 3,
        };
        ring.submit(file.as_fd(), write, true, 2).unwrap();
        for _ in 0..2 {
            ring.next().unwrap().1.unwrap();
        }
        let mut bytes = [9; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\0\x0023456");
    }

    #[test]
    #[should_panic(expected = "the kernel reads slot 0")]
    fn a_busy_slot_is_not_lent() {
        let file = tempfile::tempfile().unwrap();
        let mut ring = WriteRing::new().unwrap();
        let write = SlotWrite {
            slot: 0,
            from: 0,
            len: SLOT,
            offset: 0,
        };
        ring.submit(file.as_fd(), write, false, 0).unwrap();
        ring.slot(0);
    }
}
