//! Tables of this machine's own directories.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use disk::RealDisk;
use disk::reads::PageCache;
use operators::{LocalSite, Placement, Site, WorkCosts};
use pages::{Local, LocalOptions, Table, Tables};
use parking_lot::Mutex;

use crate::catalogue::{MeasuredCosts, Store, StoreLocation};
use crate::error::Error;
use crate::meter::{MeteredSource, PageMeter};

/// Directories with tables that belong together. A storage node may serve, and change, them at the
/// same time: each look-up finds the version that is the newest then, and versions that queries still
/// read stay readable.
pub struct Directory {
    name: String,
    dirs: Vec<PathBuf>,
    opened: Mutex<Vec<Opened>>,
    /// The costs of work on its pages.
    costs: Arc<WorkCosts>,
}

/// The assumed seconds of a page before one was read.
const SUPPOSED_S: f64 = 30e-6;

/// The tables that were found at some time.
struct Opened {
    signature: Signature,
    tables: Tables,
    /// The source from which all queries read them: they share its memory.
    pages: Arc<Local>,
}

/// The signature by which changes of a directory's tables are found: for each file its name, the time
/// when it was written, and its size.
type Signature = Vec<(std::ffi::OsString, Option<SystemTime>, u64)>;

impl Directory {
    /// Opens a directory; its path is its name.
    ///
    /// # Errors
    /// Returns an error if there are no tables, or they cannot be read; the text says what to do.
    pub fn open(dir: &Path) -> Result<Directory, Error> {
        Directory::open_all(&[dir.to_owned()])
    }

    /// Opens directories over which tables are spread, the main one first, whose path is their name.
    ///
    /// # Errors
    /// Returns an error if there are no tables, or they cannot be read; the text says what to do.
    ///
    /// # Panics
    /// Panics without directories.
    pub fn open_all(dirs: &[PathBuf]) -> Result<Directory, Error> {
        let directory = Directory {
            name: dirs[0].display().to_string(),
            dirs: dirs.to_vec(),
            opened: Mutex::new(Vec::new()),
            costs: Arc::default(),
        };
        directory.newest()?;
        Ok(directory)
    }

    /// Returns the tables as they are at present.
    fn newest(&self) -> Result<Tables, Error> {
        let signature = signature(&self.dirs[0]);
        let signature = signature.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Invalid(format!(
                "there is no directory {}: load tables into it with 'kumiki pages load', or say where \
                 tables are with --dir or --node",
                self.name
            )),
            _ => Error::System(format!("cannot list {}: {error}", self.name)),
        })?;
        let mut opened = self.opened.lock();
        if let Some(last) = opened.last()
            && last.signature == signature
        {
            return Ok(last.tables.clone());
        }
        let tables = Tables::open_read_only(Arc::new(RealDisk), &self.dirs);
        let tables = tables?;
        // Earlier tables stay while a query uses one of them.
        opened.retain(|earlier| {
            let mut list = earlier.tables.list().into_iter();
            // One reference is that of this list, and another one that of the tables.
            list.any(|table| Arc::strong_count(&table) > 2)
        });
        // This machine's own page cache is used, as the system knows best how much memory it may take.
        let options = LocalOptions {
            page_cache: PageCache::Through,
            ..LocalOptions::default()
        };
        opened.push(Opened {
            signature,
            tables: tables.clone(),
            pages: Arc::new(Local::new(tables.clone(), options)),
        });
        Ok(tables)
    }
}

fn signature(dir: &Path) -> std::io::Result<Signature> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // A file may be removed while the directory is read.
        if let Ok(about) = entry.metadata() {
            files.push((entry.file_name(), about.modified().ok(), about.len()));
        }
    }
    files.sort();
    Ok(files)
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Store for Directory {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self, _: &Table) -> StoreLocation {
        StoreLocation::Local {
            page_s: self.costs.wait_s().unwrap_or(SUPPOSED_S),
        }
    }

    fn measured(&self) -> MeasuredCosts {
        MeasuredCosts {
            pages: self.costs.wait_s().is_some(),
            operation_s: self.costs.operation_s(),
            page_s: self.costs.page_s(),
            ..MeasuredCosts::default()
        }
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn tables(&self) -> Result<Vec<String>, Error> {
        let list = self.newest()?.list();
        Ok(list.iter().map(|table| table.name.clone()).collect())
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        let tables = self.newest()?;
        if let Some((_, what)) = tables
            .damaged()
            .into_iter()
            .find(|(found, _)| found == name)
        {
            return Err(Error::Damaged(what));
        }
        Ok(tables.list().into_iter().find(|table| table.name == name))
    }

    fn site(
        &self,
        table: &Arc<Table>,
        placement: Placement,
        meter: &Arc<PageMeter>,
    ) -> Option<Arc<dyn Site>> {
        if placement != Placement::Local {
            return None;
        }
        let opened = self.opened.lock();
        let has = |opened: &&Opened| {
            let known = opened.tables.table(&table.name);
            known.is_ok_and(|known| Arc::ptr_eq(&known, table))
        };
        let pages = Arc::clone(&opened.iter().find(has)?.pages);
        let here = LocalSite::new(Arc::new(MeteredSource::new(pages, meter)));
        Some(Arc::new(here.measured(&self.costs)))
    }
}
