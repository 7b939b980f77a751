//! The progress of a read by io_uring: its request to the kernel, and its handling of the answer.
//!
//! Safety contract: that of the [ring](super::ring), which keeps the read buffer while the part is
//! under way.

#![allow(unsafe_code)]

use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::types::{Fd, Fixed};

use super::read_job::{MAX_READ, MAX_RETRIES, ReadJob};

/// A read and its progress.
pub(super) struct ReadProgress {
    pub(super) job: ReadJob,
    pub(super) done: usize,
    pub(super) refused: u32,
    /// The place of the file in the kernel's table.
    pub(super) file: Option<u32>,
    /// The place of the buffer.
    pub(super) buffer: Option<u16>,
}

impl ReadProgress {
    /// Returns the request for the rest of the read.
    pub(super) fn entry(&self) -> Entry {
        // SAFETY: within the read buffer, which has as many bytes.
        let to = unsafe { self.job.start.add(self.done) }.as_ptr();
        let len = (self.job.len - self.done).min(MAX_READ) as u32;
        let offset = self.job.offset + self.done as u64;
        match (self.file, self.buffer) {
            (Some(file), Some(buffer)) => opcode::ReadFixed::new(Fixed(file), to, len, buffer)
                .offset(offset)
                .build(),
            (None, Some(buffer)) => opcode::ReadFixed::new(Fd(self.job.fd), to, len, buffer)
                .offset(offset)
                .build(),
            (Some(file), None) => opcode::Read::new(Fixed(file), to, len)
                .offset(offset)
                .build(),
            (None, None) => opcode::Read::new(Fd(self.job.fd), to, len)
                .offset(offset)
                .build(),
        }
    }

    /// Takes the kernel's result. Returns the outcome of the read if it is over; else it goes on.
    pub(super) fn advance(&mut self, result: i32) -> Option<isize> {
        match -result {
            0 => return Some(self.done as isize),
            libc::EINTR | libc::EAGAIN if self.refused < MAX_RETRIES => {
                self.refused += 1;
                return None;
            }
            // The kernel processed it when the memory was no longer registered.
            libc::EFAULT if self.buffer.is_some() => {
                self.buffer = None;
                return None;
            }
            // Direct reads cannot continue from the middle of a sector, where only the file's end
            // can have stopped them.
            libc::EINVAL if self.done > 0 => return Some(self.done as isize),
            1.. => return Some(result as isize),
            _ => self.done += result as usize,
        }
        (self.done == self.job.len).then_some(self.done as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::{AllocatedBuffer, ReadBuffer};

    fn part(into: &AllocatedBuffer) -> ReadProgress {
        ReadProgress {
            job: ReadJob {
                fd: -1,
                key: 0,
                offset: 0,
                start: into.memory().cast(),
                len: 8192,
            },
            done: 0,
            refused: 0,
            file: None,
            buffer: Some(1),
        }
    }

    #[test]
    fn short_reads_go_on_up_to_the_end() {
        let into = AllocatedBuffer::new(8192);
        let mut whole = part(&into);
        assert_eq!(whole.advance(4096), None);
        assert_eq!(whole.advance(4096), Some(8192));
        let mut end = part(&into);
        assert_eq!(end.advance(4096), None);
        assert_eq!(end.advance(0), Some(4096));
        let mut middle = part(&into);
        assert_eq!(middle.advance(100), None);
        assert_eq!(
            middle.advance(-libc::EINVAL),
            Some(100),
            "the end is in a sector"
        );
        assert_eq!(part(&into).advance(-libc::EINVAL), Some(-22));
    }

    #[test]
    fn interruptions_are_borne_for_a_while() {
        let into = AllocatedBuffer::new(8192);
        let mut read = part(&into);
        for _ in 0..MAX_RETRIES {
            assert_eq!(read.advance(-libc::EAGAIN), None);
        }
        assert_eq!(read.advance(-libc::EAGAIN), Some(-(libc::EAGAIN as isize)));
    }

    #[test]
    fn memory_that_is_not_registered_any_more_is_read_into_all_the_same() {
        let into = AllocatedBuffer::new(8192);
        let mut read = part(&into);
        assert_eq!(read.advance(-libc::EFAULT), None);
        assert_eq!(read.buffer, None);
        assert_eq!(read.advance(-libc::EFAULT), Some(-(libc::EFAULT as isize)));
    }
}
