//! How many pages a scan has read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A source whose pages are counted as they come.
pub struct Metered {
    source: Arc<dyn Source>,
    meter: Arc<PageMeter>,
}

impl Metered {
    /// Counts a source's pages.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, meter: &Arc<PageMeter>) -> Metered {
        Metered {
            source,
            meter: Arc::clone(meter),
        }
    }
}

impl Source for Metered {
    fn read(&self, table: &Arc<Table>, pages: Vec<Address>) -> PageStream {
        let meter = Arc::clone(&self.meter);
        let count = move |_: &_| meter.add(1);
        Box::new(self.source.read(table, pages).inspect(count))
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
