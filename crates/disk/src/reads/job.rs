//! A read that a thread does by itself, and what has come of it.
//!
//! Safety contract: a [`Job`] is made by the [ledger](super::ledger), which keeps its landing, and
//! the file open, until the job's outcome is back or the job is gone. Each job is done by one
//! thread, once.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::ptr::NonNull;

/// Most bytes that the kernel reads at once; it stops at a multiple of a page below 2 GiB.
pub(super) const AT_ONCE: usize = 1 << 30;
/// How often the kernel may say "try again" before it is believed.
pub(super) const PATIENCE: u32 = 1000;

/// What a thread needs to know of a read.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) fd: RawFd,
    /// Names the read in the ledger.
    pub(super) key: u32,
    pub(super) offset: u64,
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: the memory is a landing's, which any thread may write to.
unsafe impl Send for Job {}

/// What has come of a read: bytes, or an error's number below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    pub(super) key: u32,
    pub(super) result: isize,
}

impl Job {
    /// Reads, and blocks meanwhile.
    pub(super) fn run(&self) -> Outcome {
        Outcome {
            key: self.key,
            result: self.read(),
        }
    }

    fn read(&self) -> isize {
        let mut done = 0;
        let mut refused = 0;
        loop {
            let want = (self.len - done).min(AT_ONCE);
            // SAFETY: the part lies in the landing, which is valid for writes while the job is
            // under way, and which nobody has a reference to (the module's contract).
            let n = unsafe {
                let to = self.start.add(done).as_ptr();
                pread(self.fd, to, want, self.offset + done as u64)
            };
            match n {
                0 => return done as isize,
                1.. => done += n as usize,
                _ => match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) if refused < PATIENCE => {
                        refused += 1;
                        std::thread::yield_now();
                    }
                    // Direct reads cannot go on from the middle of a sector, where only the
                    // file's end can have stopped them.
                    Some(libc::EINVAL) if done > 0 => return done as isize,
                    error => return -(error.unwrap_or(libc::EIO) as isize),
                },
            }
            if done == self.len {
                return done as isize;
            }
        }
    }
}

/// `pread`, which is not a point where a thread can be cancelled: that is what libc's own takes a
/// hundredth of a short read for.
///
/// # Safety
/// As `pread`: `len` bytes at `to` are valid for writes.
#[cfg(target_pointer_width = "64")]
unsafe fn pread(fd: RawFd, to: *mut u8, len: usize, offset: u64) -> isize {
    // SAFETY: the caller's, and the arguments are those of the system call.
    unsafe { libc::syscall(libc::SYS_pread64, fd, to, len, offset) as isize }
}

/// `pread`.
///
/// # Safety
/// As `pread`: `len` bytes at `to` are valid for writes.
#[cfg(not(target_pointer_width = "64"))]
unsafe fn pread(fd: RawFd, to: *mut u8, len: usize, offset: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { libc::pread64(fd, to.cast(), len, offset as i64) }
}
