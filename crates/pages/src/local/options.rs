//! The options of reading pages of this machine.

use std::sync::Arc;

use disk::reads::{PageCache, ReadMethod};

use crate::cache::Cache;

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
