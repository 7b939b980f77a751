//! Tables on a storage node's disks.
//!
//! | part | concept |
//! |---|---|
//! | `files` | files, their names, and a segment's open ones |
//! | `open` | what is found at the start, and what is removed then |
//! | `state` | what a process knows of the directories, and changes there |
//! | `load_options`, `load` | new segments |
//! | `check` | verifies that all that was written is there |
//!
//! Invariants:
//!
//! 1. A segment's files, and their names, are durable before a manifest names it; they never change
//!    afterwards.
//! 2. A manifest takes the place of the one before by renaming. So a table has one version or the next,
//!    whenever the power fails.
//! 3. Files that no manifest names are removed: those of a version that was replaced, when its last reader
//!    has ended; those of a load that did not end, at the next start.
//! 4. One process at a time changes a set of directories. Others may read.

mod check;
mod files;
mod load;
mod load_options;
mod open;
mod state;

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use disk::Disk;

pub use check::Report;
pub use files::{Location, ReadFiles, SegmentFiles};
pub use load::Load;
pub use load_options::{Identity, LoadOptions, Mode};
pub use state::OpenVersion;
pub(crate) use state::version_after;

use crate::error::{At, Error};
use crate::table::{SegmentId, Table};
use state::TableDirectories;

/// Tables on disk. Clones are handles to the same tables.
#[derive(Clone)]
pub struct Tables {
    inner: Arc<TableDirectories>,
}

impl Tables {
    /// Opens the tables in these directories, which are created if they do not exist; the first one is the
    /// main one. Files of loads that did not end are removed.
    ///
    /// # Errors
    /// Returns an error if another process has the directories open, if they do not belong together, or if
    /// the system fails. A damaged table is no error: see [`Tables::damaged`].
    ///
    /// # Panics
    /// Panics without directories.
    pub fn open(disk: Arc<dyn Disk>, dirs: &[PathBuf]) -> Result<Tables, Error> {
        Ok(Tables {
            inner: Arc::new(open::open(disk, dirs, true)?),
        })
    }

    /// Opens tables for reading only, also while another process has them open.
    ///
    /// # Errors
    /// Returns the errors of [`Tables::open`], and an error if there is no such directory.
    ///
    /// # Panics
    /// Panics without directories.
    pub fn open_read_only(disk: Arc<dyn Disk>, dirs: &[PathBuf]) -> Result<Tables, Error> {
        Ok(Tables {
            inner: Arc::new(open::open(disk, dirs, false)?),
        })
    }

    /// Groups these directories by the set to which they belong, each set with its main directory first, if
    /// it is among them. A directory in which there are no tables yet is a set by itself.
    ///
    /// # Errors
    /// Returns an error if a directory's marker cannot be read.
    pub fn sets(disk: &dyn Disk, dirs: &[PathBuf]) -> Result<Vec<Vec<PathBuf>>, Error> {
        open::sets(disk, dirs)
    }

    /// Returns the directories of the tables; the first one is the main one.
    #[must_use]
    pub fn dirs(&self) -> &[PathBuf] {
        &self.inner.dirs
    }

    /// Returns the newest versions of all tables, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Table>> {
        let state = self.inner.state.lock();
        state
            .tables
            .values()
            .map(|opened| opened.table.clone())
            .collect()
    }

    /// Returns the tables that are damaged, and the damage of each.
    #[must_use]
    pub fn damaged(&self) -> Vec<(String, String)> {
        let state = self.inner.state.lock();
        state.damaged.clone().into_iter().collect()
    }

    /// Returns the newest version of a table.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it is damaged.
    pub fn table(&self, name: &str) -> Result<Arc<Table>, Error> {
        self.opened(name).map(|opened| opened.table)
    }

    /// Returns the newest version of a table, and its files.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it is damaged.
    pub fn opened(&self, name: &str) -> Result<OpenVersion, Error> {
        self.inner.opened(name)
    }

    /// Returns the files of a segment of a table's newest version, or of an older one that is in use.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<Arc<SegmentFiles>> {
        self.inner.state.lock().segments.get(&id)?.upgrade()
    }

    /// Removes a table, also one that is damaged.
    ///
    /// # Errors
    /// Returns an error if there is none, or if the system fails. The table is as it was, except for
    /// [`Error::Doubtful`].
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut state = self.inner.writable()?;
        if !state.damaged.contains_key(name) && !state.tables.contains_key(name) {
            drop(state);
            return self.table(name).map(|_| ());
        }
        let path = self.inner.main().join(files::manifest_name(name));
        let removed = self.inner.disk.remove(&path).at("remove", &path);
        let synced = removed.and_then(|()| self.inner.sync_dir(self.inner.main(), &mut state));
        synced.map_err(Error::of_begun_change)?;
        state.damaged.remove(name);
        state.put(name, None);
        Ok(())
    }

    /// Begins to load rows into a table. To [append](Mode::Append) the schema must be the table's, and
    /// the options do not matter.
    ///
    /// # Errors
    /// Returns an error if the mode does not allow the table to exist, or to be missing, if the columns
    /// cannot be stored in pages with these options, or if the system fails.
    pub fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Load, Error> {
        self.load_as(name, schema, options, mode, None)
    }

    /// Begins a load as [`Tables::load`], with names for the new version that another process has
    /// chosen.
    ///
    /// # Errors
    /// Returns the errors of [`Tables::load`], and an error if the names do not follow the version that
    /// the table has by then.
    pub fn load_as(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
        identity: Option<Identity>,
    ) -> Result<Load, Error> {
        Load::begin(&self.inner, name, schema, options, mode, identity)
    }

    /// Reads and verifies every page of a table: that it is the page that was written, that it has
    /// the right rows, and that its values lie within its bounds. `progress` is called after each
    /// page with the number of pages so far.
    ///
    /// # Errors
    /// Returns an error if there is no such table, or if it cannot be opened.
    pub fn check(&self, name: &str, progress: &mut dyn FnMut(u64)) -> Result<Report, Error> {
        Ok(check::check(&self.opened(name)?, progress))
    }
}
