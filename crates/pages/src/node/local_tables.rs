//! A node's own tables, and files that it shows.
//!
//! A version that a reader has opened is kept for a while after a newer one has taken its place: a
//! query that began with it still finds its pages, on every link on which it requests them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use disk::reads::PageCache;
use parking_lot::Mutex;

use super::shown_files::ShownFiles;
use super::storage::{Extent, NodeLoad, NodeStorage, OpenTable};
use crate::error::Error;
use crate::format_error::FormatError;
use crate::protocol::{ListedTable, LoadDefinition, TableSummary};
use crate::table::Version;
use crate::tables::{Load, OpenVersion, Tables};

/// How long a version is kept after its last request.
const KEPT: Duration = Duration::from_secs(600);

/// A version that was opened, and the time of its last request.
type RecentVersion = (Arc<OpenTable>, Instant);

/// A node's own tables, and files that it shows. A version that a reader has opened is kept for ten
/// minutes after its last request, even if a newer one has taken its place.
pub struct LocalTables {
    tables: Tables,
    shown: ShownFiles,
    page_cache: PageCache,
    opened: Mutex<HashMap<(String, Version), RecentVersion>>,
}

impl LocalTables {
    /// Makes a storage of these tables and files. Pages of tables are read past the system's page
    /// cache, or through it.
    #[must_use]
    pub fn new(tables: Tables, shown: ShownFiles, page_cache: PageCache) -> LocalTables {
        LocalTables {
            tables,
            shown,
            page_cache,
            opened: Mutex::default(),
        }
    }

    /// Returns the tables.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Drops versions that were kept for long enough, whose disk space becomes free. Opening a table
    /// does so, too; this is for nodes that get no requests.
    pub fn tidy(&self) {
        forget(&mut self.opened.lock(), Instant::now());
    }

    fn open_files(&self, opened: OpenVersion) -> Result<OpenTable, Error> {
        let table = Arc::clone(&opened.table);
        let mut extents = Vec::new();
        for (segment, files) in table.segments.iter().zip(&opened.files) {
            extents.push(Extent {
                files: files.read_files(self.page_cache)?.to_vec(),
                pages: segment.pages.into(),
                memory: None,
            });
        }
        Ok(OpenTable {
            description: Bytes::from(table.encode()),
            unit: table.page_size.bytes(),
            table: Some(table),
            extents,
            kept: Some(opened),
        })
    }
}

fn forget(opened: &mut HashMap<(String, Version), RecentVersion>, now: Instant) {
    opened.retain(|_, (_, used)| now.saturating_duration_since(*used) < KEPT);
}

impl NodeStorage for LocalTables {
    fn tables(&self) -> Result<Vec<u8>, Error> {
        let sound = self.tables.list();
        let sound = sound.iter().map(|table| ListedTable {
            name: table.name.clone(),
            found: Ok(TableSummary::of(table)),
        });
        let damaged = self.tables.damaged();
        let damaged = damaged.into_iter().map(|(name, damage)| ListedTable {
            name,
            found: Err(FormatError(damage)),
        });
        let all: Vec<ListedTable> = sound.chain(damaged).collect();
        Ok(ListedTable::encode(&all))
    }

    fn open(&self, name: &str, version: Version) -> Result<Arc<OpenTable>, Error> {
        let newest = self.tables.opened(name);
        let now = Instant::now();
        let mut all = self.opened.lock();
        forget(&mut all, now);
        let (newest, wanted) = match (newest, version) {
            (Err(error), Version(0)) => return Err(error),
            (Ok(found), Version(0)) => {
                let newest = found.table.version;
                (Ok(found), newest)
            }
            (newest, version) => (newest, version),
        };
        let key = (name.to_owned(), wanted);
        if let Some((opened, used)) = all.get_mut(&key) {
            // A table that was removed and made anew begins with version 1, too.
            let is_same = newest.as_ref().is_ok_and(|newest| {
                newest.table.version != wanted
                    || opened
                        .table
                        .as_ref()
                        .is_some_and(|t| t.id == newest.table.id)
            });
            if is_same || version != Version(0) {
                *used = now;
                return Ok(Arc::clone(opened));
            }
        }
        let newest = newest?;
        if newest.table.version != wanted {
            return Err(Error::Refused(format!(
                "version {} of table {name} is not kept any more; run the query again",
                wanted.0
            )));
        }
        let opened = Arc::new(self.open_files(newest)?);
        all.insert(key, (Arc::clone(&opened), now));
        Ok(opened)
    }

    fn file(&self, name: &str, unit: usize) -> Result<Arc<OpenTable>, Error> {
        self.shown.file(name, unit)
    }

    fn load(&self, definition: &[u8]) -> Result<Box<dyn NodeLoad>, Error> {
        let definition = LoadDefinition::decode(definition)?;
        let load = self.tables.load_as(
            &definition.name,
            &definition.schema,
            &definition.options,
            definition.mode,
            definition.identity,
        );
        Ok(Box::new(BlockLoad(load?)))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.tables.remove(name)
    }
}

/// Rows that come in blocks.
struct BlockLoad(Load);

impl NodeLoad for BlockLoad {
    fn push(&mut self, block: Bytes) -> Result<(), Error> {
        let schema = self.0.schema();
        let batch = crate::block::decode(block, schema).map_err(Error::refused)?;
        self.0.push(&batch)
    }

    fn prepare(&mut self) -> Result<(), Error> {
        self.0.prepare()
    }

    fn commit(self: Box<Self>) -> Result<Vec<u8>, Error> {
        let table = self.0.commit()?;
        Ok(table.encode())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use disk::RealDisk;

    use super::*;
    use crate::{LoadOptions, Mode};

    #[test]
    fn versions_without_requests_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(Arc::new(RealDisk), &[dir.path().to_path_buf()]).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let options = LoadOptions::default();
        let mut load = tables
            .load("t", &batch.schema(), &options, Mode::Create)
            .unwrap();
        load.push(&batch).unwrap();
        load.commit().unwrap();
        let local_tables = LocalTables::new(tables, ShownFiles::default(), PageCache::Past);
        let begun = Instant::now();
        let opened = Arc::downgrade(&local_tables.open("t", Version(0)).unwrap());
        local_tables.tidy();
        forget(
            &mut local_tables.opened.lock(),
            begun + KEPT - Duration::from_secs(1),
        );
        assert!(opened.upgrade().is_some());
        forget(&mut local_tables.opened.lock(), Instant::now() + KEPT);
        assert!(opened.upgrade().is_none());
    }
}
