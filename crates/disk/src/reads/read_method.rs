//! The choice of a read method.

use std::io;
use std::path::PathBuf;

use super::inline::InlineReads;
use super::thread_per_read::ThreadPerRead;
use super::thread_pool::ReadThreadPool;
use super::threaded_reads::ThreadedReads;
use super::uring_reads::UringReads;
use super::{AllocatedBuffer, ReadBuffer, ReadQueue};

/// How a [`ReadQueue`] does its reads (paper 4, section 4.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadMethod {
    /// A new thread for each read.
    ThreadPerRead,
    /// A number of threads that are made beforehand. An owner that waits for reads of negligible
    /// time does some of them itself.
    ThreadPool {
        /// The number of threads; at least one.
        threads: usize,
    },
    /// io_uring, with files and memory that the kernel knows beforehand.
    IoUring,
    /// The owner itself, when it starts reads: it blocks. For files that lie in memory.
    Inline,
}

/// Threads that read where the kernel refuses rings.
const THREADS: usize = 16;
/// The types that `statfs` reports for file systems in memory: tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

impl ReadMethod {
    /// Returns the method that suits files in these directories, which exist:
    /// [`ReadMethod::Inline`] if all of them lie in memory, else [`ReadMethod::IoUring`]; where the
    /// kernel refuses rings, 16 threads.
    #[must_use]
    pub fn suited(dirs: &[PathBuf]) -> ReadMethod {
        let in_memory = |dir: &PathBuf| {
            let about = rustix::fs::statfs(dir);
            about.is_ok_and(|about| IN_MEMORY.contains(&(about.f_type as u32)))
        };
        if !dirs.is_empty() && dirs.iter().all(in_memory) {
            return ReadMethod::Inline;
        }
        match ReadMethod::IoUring.reads::<AllocatedBuffer>(1) {
            Ok(_) => ReadMethod::IoUring,
            Err(_) => ReadMethod::ThreadPool { threads: THREADS },
        }
    }

    /// Returns reads in this way, of which at most `depth` are under way at once.
    ///
    /// # Errors
    /// Returns an error if the operating system refuses the resources of the method. The error says
    /// what to do.
    ///
    /// # Panics
    /// Panics if the depth is zero or above 32768, or if there is no thread.
    pub fn reads<L: ReadBuffer>(self, depth: usize) -> io::Result<Box<dyn ReadQueue<L>>> {
        match self {
            ReadMethod::ThreadPerRead => {
                let threads = |queue| Ok(ThreadPerRead::new(queue));
                Ok(Box::new(ThreadedReads::new(depth, threads)?))
            }
            ReadMethod::ThreadPool { threads } => {
                let threads = |queue| ReadThreadPool::new(threads, queue);
                Ok(Box::new(ThreadedReads::new(depth, threads)?))
            }
            ReadMethod::Inline => Ok(Box::new(ThreadedReads::new(depth, |_| Ok(InlineReads))?)),
            ReadMethod::IoUring => Ok(Box::new(UringReads::new(depth)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_follows_from_the_file_system() {
        assert_eq!(ReadMethod::suited(&["/dev/shm".into()]), ReadMethod::Inline);
        let other = [PathBuf::from("/dev/shm"), "/proc".into()];
        assert_ne!(ReadMethod::suited(&other), ReadMethod::Inline);
        assert_ne!(
            ReadMethod::suited(&["/no such directory".into()]),
            ReadMethod::Inline
        );
    }
}
