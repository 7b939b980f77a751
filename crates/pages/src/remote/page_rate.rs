//! How fast pages come from a node.
//!
//! The pace of pages shows only while a reader waits for a page: it is the time in which any reader
//! waits, divided by the pages that come in it. Two things would distort that:
//!
//! - A reader's first wait is mostly the way to the node and back, and is not counted.
//! - Readers that are slower than the link never wait. Their time for a page is an upper bound then.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::mean::Mean;
use crate::table::PageSize;

/// The number of pages that must have come before the mean is used.
const ENOUGH: f64 = 32.0;
/// The number of pages over which means are taken.
const WINDOW: f64 = 4096.0;
/// The number of a reader's pages from which on its time for each is a bound.
const READ: u64 = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct PageRate {
    /// Seconds for a page, for each size.
    pages: [Mean; PageSize::ALL.len()],
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// Readers that wait at present.
    readers: u32,
    /// The time since when at least one reader waits.
    since: Option<Instant>,
    /// Pages that have come since then.
    arrived: u64,
}

impl Default for PageRate {
    fn default() -> PageRate {
        PageRate {
            pages: std::array::from_fn(|_| Mean::new(ENOUGH, WINDOW)),
            waits: Mutex::default(),
        }
    }
}

impl PageRate {
    /// Returns the seconds for a page of this size: measured, or derived from another size, byte for
    /// byte.
    pub(super) fn page_s(&self, size: PageSize) -> Option<f64> {
        let own = self.pages[place(size)].get();
        own.or_else(|| self.byte_s().map(|byte| byte * size.bytes() as f64))
    }

    /// Returns the seconds for a byte, by the largest pages that have come.
    pub(super) fn byte_s(&self) -> Option<f64> {
        let largest = PageSize::ALL.into_iter().rev();
        let mut known = largest.filter_map(|size| Some((self.pages[place(size)].get()?, size)));
        known.next().map(|(page, size)| page / size.bytes() as f64)
    }

    /// Notes that a reader begins to wait.
    fn wait(&self, now: Instant) {
        let mut waits = self.waits.lock();
        waits.readers += 1;
        waits.since.get_or_insert(now);
    }

    /// Notes that so many pages of this size have come to a reader.
    fn arrived(&self, count: u64) {
        let mut waits = self.waits.lock();
        if waits.readers > 0 {
            waits.arrived += count;
        }
    }

    /// Notes that a reader waits no more.
    fn go_on(&self, size: PageSize, now: Instant) {
        let mut waits = self.waits.lock();
        waits.readers -= 1;
        if waits.readers > 0 {
            return;
        }
        let arrived = std::mem::take(&mut waits.arrived);
        let since = waits.since.take();
        drop(waits);
        if let Some(since) = since.filter(|_| arrived > 0) {
            self.add(size, now.saturating_duration_since(since), arrived);
        }
    }

    fn add(&self, size: PageSize, took: Duration, pages: u64) {
        let each = took.as_secs_f64() / pages as f64;
        self.pages[place(size)].add(each, pages as f64);
    }

    /// Notes that a reader that never waited took `took` for so many pages.
    fn bound(&self, size: PageSize, took: Duration, pages: u64) {
        let each = took.as_secs_f64() / pages as f64;
        let known = self.pages[place(size)].get();
        if pages >= READ && known.is_none_or(|known| known > each) {
            self.add(size, took, pages);
        }
    }
}

fn place(size: PageSize) -> usize {
    let found = PageSize::ALL.into_iter().position(|known| known == size);
    found.expect("one of all")
}

/// One reader's part of the measurement.
pub(super) struct ReaderRate {
    size: PageSize,
    /// When the first page came, and the last one.
    first: Option<Instant>,
    last: Option<Instant>,
    /// Pages that came after the first one.
    pages: u64,
    /// The number of its waits after that.
    waited: u64,
    waiting: bool,
}

impl ReaderRate {
    pub(super) fn new(size: PageSize) -> ReaderRate {
        ReaderRate {
            size,
            first: None,
            last: None,
            pages: 0,
            waited: 0,
            waiting: false,
        }
    }

    /// Notes that it waits for a page.
    pub(super) fn wait(&mut self, rate: &PageRate, now: Instant) {
        if self.first.is_some() && !self.waiting {
            self.waiting = true;
            self.waited += 1;
            rate.wait(now);
        }
    }

    /// Notes that a page has come from the node.
    pub(super) fn arrived(&mut self, rate: &PageRate, now: Instant) {
        match self.first {
            None => self.first = Some(now),
            Some(_) => self.pages += 1,
        }
        self.last = Some(now);
        rate.arrived(1);
    }

    /// Notes that it has a page to work on.
    pub(super) fn go_on(&mut self, rate: &PageRate, now: Instant) {
        if std::mem::take(&mut self.waiting) {
            rate.go_on(self.size, now);
        }
    }

    /// Notes that it has read all that it wanted, or wants no more.
    pub(super) fn end(&mut self, rate: &PageRate, now: Instant) {
        self.go_on(rate, now);
        if let (Some(first), Some(last), 0) = (self.first, self.last, self.waited) {
            rate.bound(self.size, last - first, self.pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: usize) -> PageSize {
        PageSize::new(bytes).unwrap()
    }

    #[test]
    fn what_is_measured_for_one_size_tells_of_others() {
        let rate = PageRate::default();
        let (small, large) = (size(4096), size(128 << 10));
        assert_eq!((rate.page_s(small), rate.byte_s()), (None, None));
        rate.add(large, Duration::from_micros(131_072), 1000);
        assert!((rate.byte_s().unwrap() - 1e-9).abs() < 1e-12);
        assert!((rate.page_s(small).unwrap() - 4.096e-6).abs() < 1e-9);
        rate.add(small, Duration::from_millis(10), 1000);
        assert!((rate.page_s(small).unwrap() - 10e-6).abs() < 1e-9);
        assert!((rate.byte_s().unwrap() - 1e-9).abs() < 1e-12);
    }

    #[test]
    fn the_first_wait_does_not_count_and_others_do() {
        let (rate, size) = (PageRate::default(), size(8192));
        let mut reader = ReaderRate::new(size);
        let mut now = Instant::now();
        for page in 0..=64 {
            reader.wait(&rate, now);
            now += Duration::from_millis(if page == 0 { 1000 } else { 2 });
            reader.arrived(&rate, now);
            reader.go_on(&rate, now);
            // The time that the reader takes for a page does not count.
            now += Duration::from_millis(50);
        }
        reader.end(&rate, now);
        let each = rate.page_s(size).unwrap();
        assert!((each - 2e-3).abs() < 1e-9, "{each} s");
    }

    #[test]
    fn a_reader_that_never_waits_bounds_the_time_of_a_page() {
        let (rate, size) = (PageRate::default(), size(8192));
        rate.add(size, Duration::from_secs(100), 32);
        let mut reader = ReaderRate::new(size);
        let mut now = Instant::now();
        for _ in 0..=READ {
            reader.arrived(&rate, now);
            now += Duration::from_secs(1);
        }
        reader.end(&rate, now);
        let expected = (100.0 + READ as f64) / (32.0 + READ as f64);
        let each = rate.page_s(size).unwrap();
        assert!((each - expected).abs() < 1e-9, "{each} s");
    }
}
