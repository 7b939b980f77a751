//! The ways of reading.

use std::io;
use std::path::PathBuf;

use super::here::OwnerAlone;
use super::lone::DynamicTeam;
use super::ring::Ring;
use super::team::StaticTeam;
use super::threads::ByThreads;
use super::{Landing, OwnBuf, Reads};

/// A way of reading (paper 4, section 4.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A new thread for each read.
    Dynamic,
    /// A number of threads that are made beforehand. An owner that waits for reads of negligible
    /// time does some of them itself.
    Static {
        /// The number of threads; at least one.
        threads: usize,
    },
    /// io_uring, with files and memory that the kernel knows beforehand.
    Ring,
    /// The owner itself, when it starts reads: it blocks. For files that lie in memory.
    Here,
}

/// Threads that read where the kernel refuses rings.
const THREADS: usize = 16;
/// The types that `statfs` reports for file systems in memory: tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

impl Way {
    /// Returns the way that suits files in these directories, which exist: [`Way::Here`] if all of
    /// them lie in memory, else [`Way::Ring`]; where the kernel refuses rings, 16 threads.
    #[must_use]
    pub fn suited(dirs: &[PathBuf]) -> Way {
        let in_memory = |dir: &PathBuf| {
            let about = rustix::fs::statfs(dir);
            about.is_ok_and(|about| IN_MEMORY.contains(&(about.f_type as u32)))
        };
        if !dirs.is_empty() && dirs.iter().all(in_memory) {
            return Way::Here;
        }
        match Way::Ring.reads::<OwnBuf>(1) {
            Ok(_) => Way::Ring,
            Err(_) => Way::Static { threads: THREADS },
        }
    }

    /// Returns reads in this way, of which at most `depth` are under way at once.
    ///
    /// # Errors
    /// Returns an error if the operating system refuses the resources of the way. The error says
    /// what to do.
    ///
    /// # Panics
    /// Panics if the depth is zero or above 32768, or if there is no thread.
    pub fn reads<L: Landing>(self, depth: usize) -> io::Result<Box<dyn Reads<L>>> {
        match self {
            Way::Dynamic => {
                let team = |over| Ok(DynamicTeam::new(over));
                Ok(Box::new(ByThreads::new(depth, team)?))
            }
            Way::Static { threads } => {
                let team = |over| StaticTeam::new(threads, over);
                Ok(Box::new(ByThreads::new(depth, team)?))
            }
            Way::Here => Ok(Box::new(ByThreads::new(depth, |_| Ok(OwnerAlone))?)),
            Way::Ring => Ok(Box::new(Ring::new(depth)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_follows_from_the_file_system() {
        assert_eq!(Way::suited(&["/dev/shm".into()]), Way::Here);
        let other = [PathBuf::from("/dev/shm"), "/proc".into()];
        assert_ne!(Way::suited(&other), Way::Here);
        assert_ne!(Way::suited(&["/no such directory".into()]), Way::Here);
    }
}
