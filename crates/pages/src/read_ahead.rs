//! Reading ahead of the caller that takes pages, in the order in which they were requested.
//!
//! | pages | are |
//! |---|---|
//! | `..taken` | taken |
//! | `taken..requested` | asked for; some of them have come |
//! | `requested..` | not asked for yet |
//!
//! The reader asks for the next page when there is room, brings the pages that have come, in any order,
//! and takes the first one if it is there. A page that is in the cache is not requested.
//!
//! Reads of requested pages begin when the reader turns to its source, which it does when it has to
//! wait. A caller that works long on pages that have come all at once would leave the source idle: so
//! the reader also [looks](ReadAhead::is_due), without waiting, each time that some pages were taken.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cache::Cache;
use crate::page::{Page, PageError};
use crate::source::Tally;
use crate::table::{PageAddress, Table};

/// The most pages that are taken before the source is looked at; an eighth of the pages that are read
/// ahead where that is less.
const LOOK: usize = 32;

/// See the [module](self).
pub(crate) struct ReadAhead {
    pages: Vec<PageAddress>,
    table: Arc<Table>,
    taken: usize,
    requested: usize,
    /// The most pages that are requested and not taken.
    limit: usize,
    /// Pages that were taken since the source was last looked at.
    since_look: usize,
    arrived: VecDeque<Option<ReadPage>>,
    cache: Option<Arc<Cache>>,
    tally: Option<Arc<Tally>>,
}

/// A page that has come, or failed to come.
struct ReadPage {
    page: Result<Arc<Page>, PageError>,
    /// `true` for a page from the cache.
    cached: bool,
}

impl ReadAhead {
    /// Reads these pages of a table. At most `limit`, but at least one, are requested and not taken.
    pub(crate) fn new(
        table: &Arc<Table>,
        pages: Vec<PageAddress>,
        limit: usize,
        cache: Option<Arc<Cache>>,
    ) -> ReadAhead {
        ReadAhead {
            pages,
            table: Arc::clone(table),
            taken: 0,
            requested: 0,
            limit: limit.max(1),
            since_look: 0,
            arrived: VecDeque::new(),
            cache,
            tally: None,
        }
    }

    /// Counts pages in `tally` as they are taken.
    pub(crate) fn tallied(self, tally: Option<Arc<Tally>>) -> ReadAhead {
        ReadAhead { tally, ..self }
    }

    /// Returns the next page to be requested, and its place, if there is room for one.
    pub(crate) fn next_request(&mut self) -> Option<(usize, PageAddress)> {
        while self.requested < self.pages.len() && self.requested - self.taken < self.limit {
            let (place, address) = (self.requested, self.pages[self.requested]);
            self.requested += 1;
            let cached = self.cache.as_ref().and_then(|cache| cache.get(address));
            let is_cached = cached.is_some();
            self.arrived.push_back(cached.map(|page| ReadPage {
                page: Ok(page),
                cached: true,
            }));
            if !is_cached {
                return Some((place, address));
            }
        }
        None
    }

    /// Accepts a page that has come and verifies it, or the error of a page that will not come.
    pub(crate) fn deliver(&mut self, place: usize, bytes: Result<bytes::Bytes, PageError>) {
        let Some(at) = place.checked_sub(self.taken) else {
            return;
        };
        let address = self.pages[place];
        let page = bytes.and_then(|bytes| Page::of(&self.table, bytes, address));
        let page = page.map(|page| match &self.cache {
            Some(cache) => cache.keep(&page),
            None => Arc::new(page),
        });
        if let Some(slot) = self.arrived.get_mut(at) {
            *slot = Some(ReadPage {
                page,
                cached: false,
            });
        }
    }

    /// Takes the first page that was not taken, if it has come.
    pub(crate) fn take(&mut self) -> Option<Result<Arc<Page>, PageError>> {
        self.arrived.front()?.as_ref()?;
        let ReadPage { page, cached } = self.arrived.pop_front()??;
        self.taken += 1;
        self.since_look += 1;
        match &self.tally {
            Some(tally) if cached => tally.add_cached(1),
            Some(tally) => tally.add_read(1),
            None => {}
        }
        if page.is_err() {
            self.end();
        }
        Some(page)
    }

    /// Returns `true` if the reader should look at its source before it takes another page: begin the
    /// reads that were requested, and fetch the pages that have come. If so, the look counts as done.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.since_look >= (self.limit / 8).clamp(1, LOOK);
        if due {
            self.since_look = 0;
        }
        due
    }

    /// Returns `true` if all pages were taken, or one failed.
    pub(crate) fn is_over(&self) -> bool {
        self.taken == self.pages.len()
    }

    /// Gives up: requests nothing any more.
    pub(crate) fn end(&mut self) {
        self.taken = self.pages.len();
        self.requested = self.taken;
        self.arrived.clear();
    }

    /// Returns the page at a place.
    pub(crate) fn at(&self, place: usize) -> PageAddress {
        self.pages[place]
    }

    /// Returns the page that is to be taken next.
    pub(crate) fn first(&self) -> Option<PageAddress> {
        self.pages.get(self.taken).copied()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, RecordBatch};

    use super::*;
    use crate::memory::Memory;
    use crate::segment::Shape;
    use crate::table::{PageNo, PageSize};

    #[test]
    fn a_look_is_due_when_an_eighth_of_what_is_read_ahead_was_taken() {
        let mut rng = fastrand::Rng::with_seed(3);
        let values = Int64Array::from_iter_values((0..100_000).map(|_| rng.i64(..)));
        let batch = RecordBatch::try_from_iter([("n", Arc::new(values) as _)]).unwrap();
        let size = PageSize::new(4096).unwrap();
        let shape = Shape::new(batch.schema(), size, vec![vec![0]], None).unwrap();
        let memory = Memory::new();
        let table = memory.table("numbers", &shape, [&[batch][..]]).unwrap();
        let segment = table.segments[0].id;
        let page = |page| PageAddress {
            segment,
            page: PageNo(page),
        };
        let pages: Vec<PageAddress> = (0..table.segments[0].pages).map(page).collect();
        assert!(pages.len() > 100);
        for (limit, at_most) in [(1024, 32), (64, 8), (8, 1), (1, 1)] {
            let mut ahead = ReadAhead::new(&table, pages.clone(), limit, None);
            let (mut requested, mut taken, mut most) = (Vec::new(), 0, 0);
            while !ahead.is_over() {
                requested.extend(std::iter::from_fn(|| ahead.next_request()));
                if ahead.is_due() {
                    most = most.max(std::mem::take(&mut taken));
                }
                match ahead.take() {
                    Some(page) => {
                        page.unwrap();
                        taken += 1;
                    }
                    None => {
                        for (place, address) in requested.drain(..) {
                            ahead.deliver(place, Ok(memory.bytes(address).unwrap()));
                        }
                    }
                }
            }
            assert_eq!(most, at_most, "{limit} pages ahead");
        }
    }
}
