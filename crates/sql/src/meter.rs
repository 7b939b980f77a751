//! How many pages a scan has read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use operators::{Fragment, Rows};
use pages::{Address, PageStream, Source, Table};

/// Counts the pages that a scan reads, on this machine or over the network.
#[derive(Debug, Default)]
pub struct PageMeter(AtomicU64);

impl PageMeter {
    /// Pages so far.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes note of further pages.
    pub fn add(&self, pages: u64) {
        self.0.fetch_add(pages, Ordering::Relaxed);
    }
}

/// How long pages take to come from somewhere, on the average over the last ones.
#[derive(Debug)]
pub struct PageTime(AtomicU64);

impl PageTime {
    /// Before any was read: what is supposed, in seconds.
    #[must_use]
    pub fn supposed(seconds: f64) -> PageTime {
        PageTime(AtomicU64::new(seconds.to_bits()))
    }

    /// Seconds for a page.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Takes note of one. Of several at once some may be lost, which an average bears.
    fn took(&self, time: Duration) {
        let average = self.seconds();
        let next = average + (time.as_secs_f64() - average) / WEIGHED;
        self.0.store(next.to_bits(), Ordering::Relaxed);
    }
}

/// Over how many pages times are averaged.
const WEIGHED: f64 = 256.0;

/// A source whose pages are counted, and timed, as they come.
pub struct Metered {
    source: Arc<dyn Source>,
    meter: Arc<PageMeter>,
    time: Option<Arc<PageTime>>,
}

impl Metered {
    /// Counts a source's pages.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, meter: &Arc<PageMeter>) -> Metered {
        Metered {
            source,
            meter: Arc::clone(meter),
            time: None,
        }
    }

    /// Has a source's pages timed, too.
    #[must_use]
    pub fn timed(mut self, time: &Arc<PageTime>) -> Metered {
        self.time = Some(Arc::clone(time));
        self
    }
}

impl Source for Metered {
    fn read(&self, table: &Arc<Table>, pages: Vec<Address>) -> PageStream {
        let mut pages = self.source.read(table, pages);
        let (meter, time) = (Arc::clone(&self.meter), self.time.clone());
        Box::new(std::iter::from_fn(move || {
            let begun = Instant::now();
            let page = pages.next()?;
            meter.add(1);
            if let Some(time) = &time {
                time.took(begun.elapsed());
            }
            Some(page)
        }))
    }
}

/// The pages that have the columns of a fragment, in these rows: as many as are read if none is skipped.
pub(crate) fn pages_of(table: &Table, fragment: &Fragment, rows: &[Rows]) -> u64 {
    let mut groups: Vec<_> = fragment
        .columns
        .iter()
        .map(|c| table.group_of(*c).0)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    let mut pages = 0;
    for part in rows {
        let Some(segment) = table.segments.iter().find(|s| s.id == part.segment) else {
            continue;
        };
        for group in &groups {
            let all = &segment.groups[*group];
            let first =
                all.partition_point(|page| page.first_row + u64::from(page.rows) <= part.from);
            let end = all.partition_point(|page| page.first_row < part.to);
            pages += end.saturating_sub(first) as u64;
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Schema;
    use operators::Work;

    use super::*;
    use crate::test_support::paged;

    #[test]
    fn pages_of_a_part_are_those_that_it_touches() {
        let table = paged(1_000, 10);
        let fragment = Fragment {
            columns: vec![0],
            filter: None,
            work: Work::Aggregate {
                by: Vec::new(),
                aggregates: Vec::new(),
            },
            output: Arc::new(Schema::empty()),
        };
        let pages = |from, to| {
            let segment = table.segments[0].id;
            pages_of(&table, &fragment, &[Rows { segment, from, to }])
        };
        assert_eq!(pages(0, 1_000), 100);
        assert_eq!(pages(9, 11), 2);
        assert_eq!(pages(10, 20), 1);
        let none = Fragment {
            columns: Vec::new(),
            ..fragment.clone()
        };
        let segment = table.segments[0].id;
        let all = [Rows {
            segment,
            from: 0,
            to: 1_000,
        }];
        assert_eq!(pages_of(&table, &none, &all), 0);
    }
}
