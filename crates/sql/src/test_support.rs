//! Tables and stores for tests.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use operators::placement::{LinkCosts, SideCosts};
use operators::{Placement, Site};
use pages::{
    Bounds, Layout, PageEntry, PageNo, PageSize, Range, Segment, SegmentId, Table, TableId, Version,
};

use crate::catalogue::{Store, StoreLocation};
use crate::error::Error;
use crate::meter::PageMeter;

/// Returns a table of a column of integers, counted from 0, with so many rows in a page.
pub(crate) fn paged(rows: u64, page: u32) -> Table {
    let mut pages = Vec::new();
    let mut first_row = 0;
    while first_row < rows {
        let here = u64::from(page).min(rows - first_row);
        pages.push(PageEntry {
            page: PageNo(u32::try_from(pages.len()).unwrap()),
            first_row,
            rows: u32::try_from(here).unwrap(),
            bounds: vec![Bounds {
                nulls: 0,
                range: Range::Int {
                    min: first_row.into(),
                    max: (first_row + here - 1).into(),
                },
            }],
        });
        first_row += here;
    }
    let segment = Segment {
        id: SegmentId(1),
        rows,
        pages: u32::try_from(pages.len()).unwrap(),
        stripes: 1,
        groups: vec![pages],
    };
    let mut table = table("paged", 1, 1, &[]);
    table.segments = vec![Arc::new(segment)];
    table
}

/// Returns a version of a table with segments that have no rows.
pub(crate) fn table(name: &str, id: u128, version: u64, segments: &[u128]) -> Table {
    let segment = |id: &u128| {
        Arc::new(Segment {
            id: SegmentId(*id),
            rows: 0,
            pages: 0,
            stripes: 1,
            groups: vec![Vec::new()],
        })
    };
    Table {
        id: TableId(id),
        name: name.to_owned(),
        version: Version(version),
        schema: Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)])),
        page_size: PageSize::default(),
        layout: Layout::Columns,
        groups: vec![vec![0]],
        segments: segments.iter().map(segment).collect(),
    }
}

/// A store with only a catalogue, and optionally a site.
#[derive(Clone)]
pub(crate) struct FakeStore {
    name: String,
    remote: bool,
    tables: Option<Vec<Arc<Table>>>,
    pub(crate) site: Option<Arc<dyn Site>>,
}

impl FakeStore {
    pub(crate) fn local(name: &str, tables: Vec<Table>) -> FakeStore {
        FakeStore {
            name: name.to_owned(),
            remote: false,
            tables: Some(tables.into_iter().map(Arc::new).collect()),
            site: None,
        }
    }

    pub(crate) fn remote(name: &str, tables: Vec<Table>) -> FakeStore {
        FakeStore {
            remote: true,
            ..FakeStore::local(name, tables)
        }
    }

    /// Returns a store that does not answer.
    pub(crate) fn away(name: &str) -> FakeStore {
        FakeStore {
            tables: None,
            ..FakeStore::local(name, Vec::new())
        }
    }

    fn available(&self) -> Result<&[Arc<Table>], Error> {
        self.tables.as_deref().ok_or_else(|| "it is away".into())
    }
}

impl std::fmt::Debug for FakeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Store for FakeStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self, _: &Table) -> StoreLocation {
        let link = LinkCosts {
            round_trip_s: 50e-6,
            page_s: 30e-6,
            byte_s: 1e-9,
        };
        let side = SideCosts {
            page_s: 10e-6,
            operation_s: 1e-9,
            load: 0.0,
            threads: 2.0,
        };
        match self.is_remote() {
            true => StoreLocation::Remote(side, link),
            false => StoreLocation::Local { page_s: 10e-6 },
        }
    }

    fn is_remote(&self) -> bool {
        self.remote
    }

    fn tables(&self) -> Result<Vec<String>, Error> {
        Ok(self
            .available()?
            .iter()
            .map(|table| table.name.clone())
            .collect())
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        let found = self.available()?.iter().find(|table| table.name == name);
        Ok(found.cloned())
    }

    fn site(&self, _: &Arc<Table>, _: Placement, _: &Arc<PageMeter>) -> Option<Arc<dyn Site>> {
        self.site.clone()
    }
}
