//! Sources of pages: a directory of this machine, a storage node, or a cache before either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::page::{Page, PageError};
use crate::table::{PageAddress, Table};

/// Verified pages, in order.
pub type PageStream = Box<dyn Iterator<Item = Result<Arc<Page>, PageError>> + Send>;

/// A source of pages.
pub trait Source: Send + Sync {
    /// Reads pages of a table, before the caller takes them, and yields them in the order in which
    /// they were requested. After an error the stream ends.
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream;
}

/// Counts the pages that were taken from sources.
#[derive(Debug, Default)]
pub struct Tally {
    read: AtomicU64,
    cached: AtomicU64,
}

impl Tally {
    /// Returns the number of pages that were read from disks, or came from a node.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Returns the number of pages that were in a cache.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Counts pages that were read.
    pub fn add_read(&self, pages: u64) {
        self.read.fetch_add(pages, Ordering::Relaxed);
    }

    /// Counts pages that were in a cache.
    pub fn add_cached(&self, pages: u64) {
        self.cached.fetch_add(pages, Ordering::Relaxed);
    }
}
