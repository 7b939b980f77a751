//! Tables on a storage node's disks.
//!
//! | part | concept |
//! |---|---|
//! | `files` | files, their names, and a segment's open ones |
//! | `open` | what is found at the start, and what is removed then |
//! | `load` | new segments |
//! | `check` | whether all that was written is there |
//! | `error` | what may be wrong |
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
mod error;
mod files;
mod load;
mod open;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use disk::{DirLock, Disk};
use parking_lot::Mutex;

pub use check::Report;
pub use error::TablesError;
pub use files::{Location, ReadFiles, SegmentFiles};
pub use load::{Identity, Load, LoadOptions, Mode};

use crate::directory::directory;
use crate::manifest;
use crate::table::{SegmentId, Table, Version};
use error::At;

/// Tables on disk. Clones are handles to the same tables.
#[derive(Clone)]
pub struct Tables {
    inner: Arc<Inner>,
}

struct Inner {
    disk: Arc<dyn Disk>,
    dirs: Vec<PathBuf>,
    /// The locks of the directories; `None` if the tables are only read.
    locks: Option<Vec<Box<dyn DirLock>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tables: BTreeMap<String, Opened>,
    /// Tables that cannot be read, and why.
    damaged: BTreeMap<String, String>,
    /// All segments that are in use, also of versions that were replaced.
    segments: HashMap<SegmentId, Weak<SegmentFiles>>,
    /// Why changes are no longer allowed.
    failed: Option<String>,
}

/// A version of a table, whose files stay as long as this is not dropped.
#[derive(Clone)]
pub struct Opened {
    /// The version.
    pub table: Arc<Table>,
    /// The files of its segments, in their order.
    pub files: Vec<Arc<SegmentFiles>>,
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
    pub fn open(disk: Arc<dyn Disk>, dirs: &[PathBuf]) -> Result<Tables, TablesError> {
        open::open(disk, dirs, true)
    }

    /// Opens tables for reading only, also while another process has them open.
    ///
    /// # Errors
    /// Returns the errors of [`Tables::open`], and an error if there is no such directory.
    ///
    /// # Panics
    /// Panics without directories.
    pub fn open_read_only(disk: Arc<dyn Disk>, dirs: &[PathBuf]) -> Result<Tables, TablesError> {
        open::open(disk, dirs, false)
    }

    /// Groups these directories by the set to which they belong, each set with its main directory first, if
    /// it is among them. A directory in which there are no tables yet is a set by itself.
    ///
    /// # Errors
    /// Returns an error if a directory's marker cannot be read.
    pub fn sets(disk: &dyn Disk, dirs: &[PathBuf]) -> Result<Vec<Vec<PathBuf>>, TablesError> {
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
    pub fn table(&self, name: &str) -> Result<Arc<Table>, TablesError> {
        self.opened(name).map(|opened| opened.table)
    }

    /// Returns the newest version of a table, and its files.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it is damaged.
    pub fn opened(&self, name: &str) -> Result<Opened, TablesError> {
        let state = self.inner.state.lock();
        if let Some(what) = state.damaged.get(name) {
            return Err(TablesError::Damaged {
                name: name.to_owned(),
                what: what.clone(),
            });
        }
        let found = state.tables.get(name).cloned();
        found.ok_or_else(|| TablesError::Unknown {
            name: name.to_owned(),
            tables: state.tables.keys().cloned().collect(),
        })
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
    /// [`TablesError::Doubtful`].
    pub fn remove(&self, name: &str) -> Result<(), TablesError> {
        let mut state = self.inner.writable()?;
        if !state.damaged.contains_key(name) && !state.tables.contains_key(name) {
            drop(state);
            return self.table(name).map(|_| ());
        }
        let path = self.inner.main().join(files::manifest_name(name));
        let removed = self.inner.disk.remove(&path).at("remove", &path);
        let synced = removed.and_then(|()| self.inner.sync_dir(self.inner.main(), &mut state));
        synced.map_err(TablesError::of_change)?;
        state.damaged.remove(name);
        state.put(name, None);
        Ok(())
    }
}

impl Inner {
    fn main(&self) -> &Path {
        &self.dirs[0]
    }

    /// Returns the state, if changes are allowed.
    fn writable(&self) -> Result<parking_lot::MutexGuard<'_, State>, TablesError> {
        if self.locks.is_none() {
            return Err(TablesError::ReadOnly);
        }
        let state = self.state.lock();
        match &state.failed {
            Some(why) => Err(TablesError::Failed(why.clone())),
            None => Ok(state),
        }
    }

    /// Makes changes of names durable. If that fails it is unknown what a crash would leave, so that changes
    /// are no longer allowed, and no files are removed.
    fn sync_dir(&self, dir: &Path, state: &mut State) -> Result<(), TablesError> {
        let synced = self.disk.sync_dir(dir).at("sync", dir);
        if let Err(error) = &synced {
            state.failed = Some(error.to_string());
        }
        synced
    }

    /// Publishes a version of a table, whose segments are durable. An error before the renaming leaves the
    /// table as it was, one after it is [doubtful](TablesError::Doubtful).
    fn publish(&self, state: &mut State, opened: Opened) -> Result<(), TablesError> {
        let Opened { table, .. } = &opened;
        let directories = table.segments.iter().map(|segment| directory(segment));
        let bytes = manifest::encode(table, &directories.collect::<Vec<_>>());
        let path = self.main().join(files::manifest_name(&table.name));
        let new = files::write_new(&*self.disk, &path, &bytes)?;
        if let Err(error) = self.disk.rename(&new, &path) {
            // The renaming may have happened none the less.
            state.failed = Some(error.to_string());
            let error = Err(error).at("rename", &new);
            return error.map_err(TablesError::of_change);
        }
        let synced = self.sync_dir(self.main(), state);
        synced.map_err(TablesError::of_change)?;
        let name = table.name.clone();
        state.damaged.remove(&name);
        state.put(&name, Some(opened));
        Ok(())
    }
}

impl State {
    /// Replaces a table's version by another one, or by none. Segments that the new one does not have may be
    /// removed.
    fn put(&mut self, name: &str, next: Option<Opened>) {
        let before = self.tables.remove(name);
        let stays = |id: SegmentId| {
            let next = next.as_ref();
            next.is_some_and(|next| next.files.iter().any(|files| files.id() == id))
        };
        for files in before.iter().flat_map(|opened| &opened.files) {
            if !stays(files.id()) {
                files.doom();
            }
        }
        self.segments.retain(|_, files| files.strong_count() > 0);
        if let Some(next) = next {
            for files in &next.files {
                self.segments.insert(files.id(), Arc::downgrade(files));
            }
            self.tables.insert(name.to_owned(), next);
        }
    }

    /// Returns the version after that of a table.
    fn next_version(&self, name: &str) -> Result<Version, TablesError> {
        match self.tables.get(name) {
            Some(opened) => behind(name, opened.table.version),
            None => Ok(Version::FIRST),
        }
    }
}

/// Returns the version after this one of a table, whose number a client may have chosen.
pub(crate) fn behind(name: &str, version: Version) -> Result<Version, TablesError> {
    version.next().ok_or_else(|| {
        TablesError::Options(format!(
            "table {name} has version {}, and no number is left for another one: remove it, and load it anew",
            version.0
        ))
    })
}
