//! Where pages come from: a directory of this machine, a storage node, a cache before either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::page::{Page, PageError};
use crate::table::{Address, Table};

/// Pages as they come, verified.
pub type PageStream = Box<dyn Iterator<Item = Result<Arc<Page>, PageError>> + Send>;

/// Where pages come from.
pub trait Source: Send + Sync {
    /// Reads pages of a table, ahead of who takes them, and yields them in the order in which they
    /// were asked for. After an error the stream ends.
    fn read(&self, table: &Arc<Table>, pages: Vec<Address>) -> PageStream;
}

/// Counts the pages that somebody has taken from sources.
#[derive(Debug, Default)]
pub struct Tally {
    read: AtomicU64,
    cached: AtomicU64,
}

impl Tally {
    /// Pages that were read from disks, or came from a node.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Pages that a cache had.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Takes note of pages that were read.
    pub fn add_read(&self, pages: u64) {
        self.read.fetch_add(pages, Ordering::Relaxed);
    }

    /// Takes note of pages that a cache had.
    pub fn add_cached(&self, pages: u64) {
        self.cached.fetch_add(pages, Ordering::Relaxed);
    }
}
