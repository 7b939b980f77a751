//! A cache of pages, on the side that reads them. It is bounded in bytes. A scan of pages that are read
//! once does not drive out pages that are read again and again, as new pages have to prove themselves
//! first (S3-FIFO and CLOCK, by the library `quick_cache`).
//!
//! It mostly keeps [`Page`]s; other things that are read from an address can be kept in the same way
//! ([`CacheValue`]).
//!
//! A page's address names the same bytes for ever, because ids of segments are never used again: nothing
//! in the cache is ever out of date. Pages of a version that was replaced are not requested any more, and
//! are driven out by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache as Pages;

use crate::page::Page;
use crate::table::PageAddress;

/// Bytes that a page needs besides its own.
const AROUND: u64 = 200;
/// Bytes of a page, where the cache has to guess.
const USUAL: u64 = 64 << 10;

/// See the [module](self).
pub struct Cache<P: CacheValue = Page> {
    pages: Pages<PageAddress, Arc<P>, Weight>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A value that a cache can keep.
pub trait CacheValue {
    /// Returns the number of its bytes, which count against the cache's.
    fn size(&self) -> usize;
}

impl CacheValue for Page {
    fn size(&self) -> usize {
        self.bytes().len()
    }
}

impl CacheValue for Box<[u8]> {
    fn size(&self) -> usize {
        self.len()
    }
}

/// Hits and misses of a cache, and its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheFigures {
    /// Requested pages that were in the cache.
    pub hits: u64,
    /// Requested pages that were not.
    pub misses: u64,
    /// Bytes of pages in the cache now.
    pub bytes: u64,
    /// Pages in the cache now.
    pub pages: u64,
}

impl CacheFigures {
    /// Returns the part of requested pages that was in the cache, between 0 and 1; `None` if none was
    /// requested.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let asked = self.hits + self.misses;
        (asked > 0).then(|| self.hits as f64 / asked as f64)
    }
}

#[derive(Clone, Copy)]
struct Weight;

impl<P: CacheValue> Weighter<PageAddress, Arc<P>> for Weight {
    fn weight(&self, _: &PageAddress, page: &Arc<P>) -> u64 {
        page.size() as u64 + AROUND
    }
}

impl<P: CacheValue> std::fmt::Debug for Cache<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cache").field(&self.figures()).finish()
    }
}

impl Cache {
    /// Keeps a page, in memory of the cache's own, and returns the page that it keeps.
    pub fn keep(&self, page: &Page) -> Arc<Page> {
        let kept = Arc::new(page.detached());
        self.insert(page.address(), Arc::clone(&kept));
        kept
    }
}

impl<P: CacheValue> Cache<P> {
    /// Returns a cache that takes so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Cache<P> {
        Cache::with_pages_of(USUAL, bytes)
    }

    /// Returns a cache that takes so many bytes, in pages of about this many each.
    #[must_use]
    pub fn with_pages_of(usual: u64, bytes: u64) -> Cache<P> {
        let count = usize::try_from(bytes / usual.max(1)).unwrap_or(usize::MAX);
        let count = count.max(16);
        Cache {
            pages: Pages::with_weighter(count, bytes, Weight),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Returns a page, if the cache has it.
    #[must_use]
    pub fn get(&self, address: PageAddress) -> Option<Arc<P>> {
        let found = self.pages.get(&address);
        let figure = match found {
            Some(_) => &self.hits,
            None => &self.misses,
        };
        figure.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Returns `true` if the cache has a page. This does not count as a use of the page.
    #[must_use]
    pub fn has(&self, address: PageAddress) -> bool {
        self.pages.contains_key(&address)
    }

    /// Keeps a value that was read from an address. It must have memory of its own, as it may be kept for
    /// long.
    pub fn insert(&self, address: PageAddress, page: Arc<P>) {
        self.pages.insert(address, page);
    }

    /// Returns the hits and misses so far, and the size.
    #[must_use]
    pub fn figures(&self) -> CacheFigures {
        let pages = self.pages.len() as u64;
        CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.pages.weight() - (pages * AROUND).min(self.pages.weight()),
            pages,
        }
    }
}
