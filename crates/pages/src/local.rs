//! Pages of this machine's own disks, read before the caller takes them.
//!
//! | part | concept |
//! |---|---|
//! | `reader` | a way of reading, and memory for what it reads |
//! | `stream` | pages on their way |
//!
//! A page stays where the read has put it, without being copied, until its last user drops it. All readers
//! share that memory. When kept pages have taken half of it, pages are copied out as they come.
//!
//! Invariant: a stream that waits has a read under way. When all memory is taken it reads into memory of
//! its reader's own, from which pages are always copied out; so a caller that keeps pages, however many,
//! blocks no stream.

mod reader;
mod stream;

use std::sync::Arc;

use disk::reads::{PageCache, ReadMethod};

use crate::cache::Cache;
use crate::source::{PageStream, Source};
use crate::table::{Address, Table};
use crate::tables::Tables;
use reader::Readers;
use stream::Stream;

/// How pages are read.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The way of reading; `None` chooses one that [suits](ReadMethod::suited) the tables' directories.
    pub way: Option<ReadMethod>,
    /// Reads past the system's page cache, or through it.
    pub page_cache: PageCache,
    /// The most reads of a stream that are under way at once; at least one.
    pub depth: usize,
    /// Bytes of pages that a stream reads before they are taken.
    pub ahead_bytes: usize,
    /// Bytes of memory that all streams read into, for each size of pages.
    pub pool_bytes: usize,
    /// The cache in which pages are looked up first, and kept.
    pub cache: Option<Arc<Cache>>,
}

impl Default for LocalOptions {
    /// Returns options with the suited way, past the page cache, 256 reads, as many as a storage node has,
    /// 4 MiB ahead, 64 MiB of memory, and no cache.
    fn default() -> LocalOptions {
        LocalOptions {
            way: None,
            page_cache: PageCache::Past,
            depth: 256,
            ahead_bytes: 4 << 20,
            pool_bytes: 64 << 20,
            cache: None,
        }
    }
}

/// Reads pages of tables on this machine. Clones share readers and memory.
#[derive(Clone)]
pub struct Local {
    readers: Arc<Readers>,
}

impl Local {
    /// Reads these tables, whose files the operating system has.
    ///
    /// # Panics
    /// Panics if the depth is zero or above 32768, or a way of threads has none.
    #[must_use]
    pub fn new(tables: Tables, options: LocalOptions) -> Local {
        let readers = Arc::new(Readers::new(tables, options));
        Local { readers }
    }

    /// Returns how pages are read.
    #[must_use]
    pub fn options(&self) -> &LocalOptions {
        self.readers.options()
    }
}

impl Source for Local {
    fn read(&self, table: &Arc<Table>, pages: Vec<Address>) -> PageStream {
        Box::new(Stream::new(&self.readers, table, pages))
    }
}
