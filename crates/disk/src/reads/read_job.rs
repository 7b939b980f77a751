//! A read that a thread does by itself, and its outcome.
//!
//! Safety contract: a [`ReadJob`] is made by the [list of pending reads](super::pending_reads),
//! which keeps its read buffer, and the file open, until the job's outcome is back or the job is
//! gone. Each job is done by one thread, once.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::ptr::NonNull;

/// Most bytes that the kernel reads at once; it stops at a multiple of a page below 2 GiB.
pub(super) const MAX_READ: usize = 1 << 30;
/// The number of times that the kernel may say "try again" before that counts as an error.
pub(super) const MAX_RETRIES: u32 = 1000;

/// A read, as a thread needs it.
#[derive(Debug)]
pub(super) struct ReadJob {
    pub(super) fd: RawFd,
    /// The name of the read in the list.
    pub(super) key: u32,
    pub(super) offset: u64,
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: the memory is a read buffer's, which any thread may write to.
unsafe impl Send for ReadJob {}

/// The outcome of a read: bytes, or an error's number below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReadOutcome {
    pub(super) key: u32,
    pub(super) result: isize,
}

impl ReadJob {
    /// Reads, and blocks meanwhile.
    pub(super) fn run(&self) -> ReadOutcome {
        ReadOutcome {
            key: self.key,
            result: self.read(),
        }
    }

    fn read(&self) -> isize {
        let mut done = 0;
        let mut refused = 0;
        loop {
            let want = (self.len - done).min(MAX_READ);
            // SAFETY: the part lies in the read buffer, which is valid for writes while the job is
            // under way, and to which there is no reference (the module's contract).
            let n = unsafe {
                let to = self.start.add(done).as_ptr();
                pread(self.fd, to, want, self.offset + done as u64)
            };
            match n {
                0 => return done as isize,
                1.. => done += n as usize,
                _ => match -n as i32 {
                    libc::EINTR => {}
                    libc::EAGAIN if refused < MAX_RETRIES => {
                        refused += 1;
                        std::thread::yield_now();
                    }
                    // Direct reads cannot continue from the middle of a sector, where only the
                    // file's end can have stopped them.
                    libc::EINVAL if done > 0 => return done as isize,
                    _ => return n,
                },
            }
            if done == self.len {
                return done as isize;
            }
        }
    }
}

/// Returns how often this thread has slept so far, for reads or otherwise.
pub(super) fn sleeps() -> i64 {
    // SAFETY: a `rusage` of zeros is valid, and the call fills in the one that it gets.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw as i64
    }
}

/// Calls `pread`. Returns bytes, or an error's number below zero.
///
/// This is the system call itself, not the C library's function, which is a cancellation point and
/// makes more calls and returns: where the kernel discards the processor's return predictions on
/// purpose, they take a tenth of a short read from memory.
///
/// # Safety
/// `len` bytes at `to` are valid for writes, and there is no reference to them.
#[cfg(target_arch = "x86_64")]
unsafe fn pread(fd: RawFd, to: *mut u8, len: usize, offset: u64) -> isize {
    let result;
    // SAFETY: the system call takes these arguments in these registers, writes only to the given
    // memory, leaves the stack as it is, and changes the registers that are named.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_pread64 as isize => result,
            in("rdi") fd as isize,
            in("rsi") to,
            in("rdx") len,
            in("r10") offset,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Calls `pread` as above, on other machines.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn pread(fd: RawFd, to: *mut u8, len: usize, offset: u64) -> isize {
    // SAFETY: the caller's.
    let n = unsafe { libc::pread64(fd, to.cast(), len, offset as i64) };
    if n >= 0 {
        return n as isize;
    }
    let error = std::io::Error::last_os_error().raw_os_error();
    -(error.unwrap_or(libc::EIO) as isize)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::reads::{AllocatedBuffer, ReadBuffer};

    fn run(fd: RawFd, offset: u64, into: &AllocatedBuffer) -> isize {
        let job = ReadJob {
            fd,
            key: 3,
            offset,
            start: into.memory().cast(),
            len: into.memory().len(),
        };
        let outcome = job.run();
        assert_eq!(outcome.key, 3);
        outcome.result
    }

    #[test]
    fn reads_what_is_there_and_tells_errors() {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), b"0123456789").unwrap();
        let file = std::fs::File::open(named.path()).unwrap();
        let into = AllocatedBuffer::new(4);
        assert_eq!(run(file.as_raw_fd(), 3, &into), 4);
        assert_eq!(into.as_ref(), b"3456");
        assert_eq!(run(file.as_raw_fd(), 8, &into), 2);
        assert_eq!(&into.as_ref()[..2], b"89");
        assert_eq!(run(file.as_raw_fd(), 10, &into), 0);
        assert_eq!(run(-1, 0, &into), -(libc::EBADF as isize));
        let dir = std::fs::File::open("/").unwrap();
        assert_eq!(run(dir.as_raw_fd(), 0, &into), -(libc::EISDIR as isize));
    }
}
