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

use super::{Extent, Loading, Opened, Outcome, Shelf, ShownFiles};
use crate::remote::load::Definition;
use crate::remote::{Listed, Newest};
use crate::table::Version;
use crate::tables::{self, Load, Tables, TablesError};

/// How long a version is kept after its last request.
const KEPT: Duration = Duration::from_secs(600);

/// A version that was opened, and the time of its last request.
type Kept = (Arc<Opened>, Instant);

/// A node's own tables, and files that it shows. A version that a reader has opened is kept for ten
/// minutes after its last request, even if a newer one has taken its place.
pub struct Stock {
    tables: Tables,
    shown: ShownFiles,
    page_cache: PageCache,
    opened: Mutex<HashMap<(String, Version), Kept>>,
}

impl Stock {
    /// Makes a stock of these tables and files. Pages of tables are read past the system's page
    /// cache, or through it.
    #[must_use]
    pub fn new(tables: Tables, shown: ShownFiles, page_cache: PageCache) -> Stock {
        Stock {
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

    fn open_files(&self, opened: tables::Opened) -> Result<Opened, String> {
        let table = Arc::clone(&opened.table);
        let mut extents = Vec::new();
        for (segment, files) in table.segments.iter().zip(&opened.files) {
            extents.push(Extent {
                files: files.read_files(self.page_cache)?.to_vec(),
                pages: segment.pages.into(),
                memory: None,
            });
        }
        Ok(Opened {
            description: Bytes::from(table.encode()),
            unit: table.page_size.bytes(),
            table: Some(table),
            extents,
            kept: Some(opened),
        })
    }
}

fn forget(opened: &mut HashMap<(String, Version), Kept>, now: Instant) {
    opened.retain(|_, (_, used)| now.saturating_duration_since(*used) < KEPT);
}

impl Shelf for Stock {
    fn tables(&self) -> Result<Vec<u8>, String> {
        let sound = self.tables.list();
        let sound = sound.iter().map(|table| Listed {
            name: table.name.clone(),
            found: Ok(Newest::of(table)),
        });
        let damaged = self.tables.damaged();
        let damaged = damaged.into_iter().map(|(name, damage)| Listed {
            name,
            found: Err(damage),
        });
        let all: Vec<Listed> = sound.chain(damaged).collect();
        Ok(Listed::encode(&all))
    }

    fn open(&self, name: &str, version: Version) -> Result<Arc<Opened>, String> {
        let newest = self.tables.opened(name);
        let now = Instant::now();
        let mut all = self.opened.lock();
        forget(&mut all, now);
        let wanted = match (&newest, version) {
            (Ok(newest), Version(0)) => newest.table.version,
            (Err(error), Version(0)) => return Err(error.to_string()),
            _ => version,
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
        let newest = newest.map_err(|error| error.to_string())?;
        if newest.table.version != wanted {
            return Err(format!(
                "version {} of table {name} is not kept any more; run the query again",
                wanted.0
            ));
        }
        let opened = Arc::new(self.open_files(newest)?);
        all.insert(key, (Arc::clone(&opened), now));
        Ok(opened)
    }

    fn file(&self, name: &str, unit: usize) -> Result<Arc<Opened>, String> {
        self.shown.file(name, unit)
    }

    fn load(&self, definition: &[u8]) -> Result<Box<dyn Loading>, String> {
        let definition = Definition::decode(definition).map_err(|error| error.to_string())?;
        let load = self.tables.load_as(
            &definition.name,
            &definition.schema,
            &definition.options,
            definition.mode,
            definition.identity,
        );
        Ok(Box::new(Batches(load.map_err(|error| error.to_string())?)))
    }

    fn remove(&self, name: &str) -> Result<(), Outcome> {
        self.tables.remove(name).map_err(outcome)
    }
}

/// Returns the outcome of a change that was not made, or perhaps was.
fn outcome(error: TablesError) -> Outcome {
    match error {
        TablesError::Doubtful(why) => Outcome::Doubtful(why.to_string()),
        error => Outcome::Refused(error.to_string()),
    }
}

/// Rows that come in blocks.
struct Batches(Load);

impl Loading for Batches {
    fn push(&mut self, block: Bytes) -> Result<(), String> {
        let schema = self.0.schema();
        let batch = crate::block::decode(block, schema).map_err(|error| error.to_string())?;
        self.0.push(&batch).map_err(|error| error.to_string())
    }

    fn prepare(&mut self) -> Result<(), String> {
        self.0.prepare().map_err(|error| error.to_string())
    }

    fn commit(self: Box<Self>) -> Result<Vec<u8>, Outcome> {
        let table = self.0.commit().map_err(outcome)?;
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
        let stock = Stock::new(tables, ShownFiles::default(), PageCache::Past);
        let begun = Instant::now();
        let opened = Arc::downgrade(&stock.open("t", Version(0)).unwrap());
        stock.tidy();
        forget(
            &mut stock.opened.lock(),
            begun + KEPT - Duration::from_secs(1),
        );
        assert!(opened.upgrade().is_some());
        forget(&mut stock.opened.lock(), Instant::now() + KEPT);
        assert!(opened.upgrade().is_none());
    }
}
