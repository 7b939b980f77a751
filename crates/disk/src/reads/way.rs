//! Which ways of reading there are.

use std::io;

use super::here::OwnerAlone;
use super::lone::DynamicTeam;
use super::ring::Ring;
use super::team::StaticTeam;
use super::threads::ByThreads;
use super::{Landing, Reads};

/// A way of reading (paper 4, section 4.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A new thread for each read.
    Dynamic,
    /// A number of threads that are made beforehand. Whoever waits for reads that take no time
    /// to speak of does some of them itself.
    Static {
        /// How many; at least one.
        threads: usize,
    },
    /// io_uring, with files and memory that the kernel knows beforehand.
    Ring,
    /// The owner itself, when it starts reads: it blocks. For files that lie in memory.
    Here,
}

impl Way {
    /// Reads in this way, of which at most `depth` are under way at once.
    ///
    /// # Errors
    /// If the operating system refuses what the way needs. The error says what to do.
    ///
    /// # Panics
    /// If the depth is zero or above 32768, or there is no thread.
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
