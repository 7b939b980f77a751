//! Counts of the pages that a scan has taken, and their origin.

use std::fmt;
use std::ops::Add;
use std::sync::Arc;

use operators::{Fragment, RowRange};
use pages::{PageAddress, PageStream, Source, Table, Tally};

/// Counts the pages that a scan takes: read on this machine, received over the network, or found in a
/// cache.
#[derive(Debug, Default)]
pub struct PageMeter {
    tally: Arc<Tally>,
}

impl PageMeter {
    /// Returns the number of pages so far, of any origin.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.tally.read() + self.tally.cached()
    }

    /// Returns the tally for sources that count by themselves, because only they know which pages were in
    /// a cache.
    #[must_use]
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Returns the counts of a scan that has so many pages.
    #[must_use]
    pub fn figures(&self, pages: u64) -> PageFigures {
        PageFigures {
            read: self.tally.read(),
            cached: self.tally.cached(),
            skipped: pages.saturating_sub(self.pages()),
        }
    }
}

/// Counts of pages by what happened to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageFigures {
    /// Read from this machine's disks, or by a storage node for this one.
    pub read: u64,
    /// Found in the cache of nodes' pages.
    pub cached: u64,
    /// Not needed, because of their bounds or because there were enough rows.
    pub skipped: u64,
}

impl PageFigures {
    /// Returns the part of needed pages that was in the cache, between 0 and 1; `None` if none was
    /// needed.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let needed = self.read + self.cached;
        (needed > 0).then(|| self.cached as f64 / needed as f64)
    }
}

impl Add for PageFigures {
    type Output = PageFigures;

    fn add(self, other: PageFigures) -> PageFigures {
        PageFigures {
            read: self.read + other.read,
            cached: self.cached + other.cached,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for PageFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, cached, skipped) = (self.read, self.cached, self.skipped);
        write!(f, "{read} read, {cached} from the cache, {skipped} skipped")?;
        match self.hit_rate() {
            Some(rate) => write!(f, " (hit rate {:.1} %)", 100.0 * rate),
            None => Ok(()),
        }
    }
}

/// A source whose pages are counted as they come, none of them from a cache.
pub struct MeteredSource {
    source: Arc<dyn Source>,
    tally: Arc<Tally>,
}

impl MeteredSource {
    /// Counts a source's pages.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, meter: &PageMeter) -> MeteredSource {
        MeteredSource {
            source,
            tally: Arc::clone(meter.tally()),
        }
    }
}

impl Source for MeteredSource {
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream {
        let tally = Arc::clone(&self.tally);
        let pages = self.source.read(table, pages);
        Box::new(pages.inspect(move |_| tally.add_read(1)))
    }
}

/// Returns the number of pages that have the columns of a fragment, in these rows: as many as are read if
/// none is skipped.
pub(crate) fn pages_of(table: &Table, fragment: &Fragment, rows: &[RowRange]) -> u64 {
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
    use operators::FragmentWork;

    use super::*;
    use crate::test_support::paged;

    #[test]
    fn pages_of_a_part_are_those_that_it_touches() {
        let table = paged(1_000, 10);
        let fragment = Fragment {
            columns: vec![0],
            filter: None,
            work: FragmentWork::Aggregate {
                by: Vec::new(),
                aggregates: Vec::new(),
            },
            output: Arc::new(Schema::empty()),
        };
        let pages = |from, to| {
            let segment = table.segments[0].id;
            pages_of(&table, &fragment, &[RowRange { segment, from, to }])
        };
        assert_eq!(pages(0, 1_000), 100);
        assert_eq!(pages(9, 11), 2);
        assert_eq!(pages(10, 20), 1);
        let none = Fragment {
            columns: Vec::new(),
            ..fragment.clone()
        };
        let segment = table.segments[0].id;
        let all = [RowRange {
            segment,
            from: 0,
            to: 1_000,
        }];
        assert_eq!(pages_of(&table, &none, &all), 0);
    }
}
