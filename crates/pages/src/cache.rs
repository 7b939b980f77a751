//! A cache of pages, on the side that reads them. Bounded in bytes; a scan of what is read once does
//! not drive out what is read again and again, as new pages have to prove themselves first
//! (S3-FIFO and CLOCK, by the library `quick_cache`).
//!
//! What is kept is a [`Page`] mostly; other things that were read by such an address can be kept in
//! the same way ([`Kept`]).
//!
//! A page's address names the same bytes for ever, because ids of segments are never used again:
//! nothing that is cached is ever out of date. Pages of a version that was replaced are not asked for any
//! more, and are driven out by those that are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache as Pages;

use crate::page::Page;
use crate::table::Address;

/// Bytes that are needed for a page besides its own.
const AROUND: u64 = 200;
/// Bytes of a page, where the cache has to guess.
const USUAL: u64 = 64 << 10;

/// See the [module](self).
pub struct Cache<P: Kept = Page> {
    pages: Pages<Address, Arc<P>, Weight>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a cache can keep.
pub trait Kept {
    /// Its bytes, which count against the cache's.
    fn size(&self) -> usize;
}

impl Kept for Page {
    fn size(&self) -> usize {
        self.bytes().len()
    }
}

impl Kept for Box<[u8]> {
    fn size(&self) -> usize {
        self.len()
    }
}

/// How often pages were found in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheFigures {
    /// Pages that were there.
    pub hits: u64,
    /// Pages that were not.
    pub misses: u64,
    /// Bytes of pages that are there now.
    pub bytes: u64,
    /// Pages that are there now.
    pub pages: u64,
}

impl CacheFigures {
    /// Returns what part of the pages was there, between 0 and 1; `None` if none was asked for.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let asked = self.hits + self.misses;
        (asked > 0).then(|| self.hits as f64 / asked as f64)
    }
}

#[derive(Clone, Copy)]
struct Weight;

impl<P: Kept> Weighter<Address, Arc<P>> for Weight {
    fn weight(&self, _: &Address, page: &Arc<P>) -> u64 {
        page.size() as u64 + AROUND
    }
}

impl<P: Kept> std::fmt::Debug for Cache<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cache").field(&self.figures()).finish()
    }
}

impl Cache {
    /// Keeps a page, in memory of the cache's own, and returns what it keeps.
    pub fn keep(&self, page: &Page) -> Arc<Page> {
        let kept = Arc::new(page.detached());
        self.insert(page.address(), Arc::clone(&kept));
        kept
    }
}

impl<P: Kept> Cache<P> {
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

    /// Returns a page, if it is there.
    #[must_use]
    pub fn get(&self, address: Address) -> Option<Arc<P>> {
        let found = self.pages.get(&address);
        let figure = match found {
            Some(_) => &self.hits,
            None => &self.misses,
        };
        figure.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Returns `true` if a page is there; that counts as no use of it.
    #[must_use]
    pub fn has(&self, address: Address) -> bool {
        self.pages.contains_key(&address)
    }

    /// Keeps what was read from an address. It is to have its memory for itself, as it may be kept
    /// for long.
    pub fn insert(&self, address: Address, page: Arc<P>) {
        self.pages.insert(address, page);
    }

    /// How it has done.
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
