//! What a process knows of its directories of tables, and the changes that it makes there.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use disk::{DirLock, Disk};
use parking_lot::Mutex;

use super::files::{self, SegmentFiles};
use crate::error::{At, Error};
use crate::manifest;
use crate::segment_directory;
use crate::table::{PageSize, SegmentId, Table, Version};

/// The directories of a set of tables, and what is in them.
pub(super) struct TableDirectories {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dirs: Vec<PathBuf>,
    /// The locks of the directories; `None` if the tables are only read.
    pub(super) locks: Option<Vec<Box<dyn DirLock>>>,
    pub(super) state: Mutex<TableState>,
}

/// The tables of a set of directories.
#[derive(Default)]
pub(super) struct TableState {
    pub(super) tables: BTreeMap<String, OpenVersion>,
    /// Tables that cannot be read, and why.
    pub(super) damaged: BTreeMap<String, String>,
    /// All segments that are in use, also of versions that were replaced.
    pub(super) segments: HashMap<SegmentId, Weak<SegmentFiles>>,
    /// Why changes are no longer allowed.
    pub(super) failed: Option<String>,
}

/// A version of a table, whose files stay as long as this is not dropped.
#[derive(Clone)]
pub struct OpenVersion {
    /// The version.
    pub table: Arc<Table>,
    /// The files of its segments, in their order.
    pub files: Vec<Arc<SegmentFiles>>,
}

impl TableDirectories {
    /// Returns the newest version of a table, and its files.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it is damaged.
    pub(super) fn opened(&self, name: &str) -> Result<OpenVersion, Error> {
        let state = self.state.lock();
        if let Some(what) = state.damaged.get(name) {
            return Err(Error::Damaged {
                name: name.to_owned(),
                what: what.clone(),
            });
        }
        let found = state.tables.get(name).cloned();
        found.ok_or_else(|| Error::Unknown {
            name: name.to_owned(),
            tables: state.tables.keys().cloned().collect(),
        })
    }

    /// Returns `true` if there is a table of this name, also a damaged one.
    pub(super) fn exists(&self, name: &str) -> bool {
        let state = self.state.lock();
        state.tables.contains_key(name) || state.damaged.contains_key(name)
    }

    pub(super) fn main(&self) -> &Path {
        &self.dirs[0]
    }

    /// Returns the state, if changes are allowed.
    pub(super) fn writable(&self) -> Result<parking_lot::MutexGuard<'_, TableState>, Error> {
        if self.locks.is_none() {
            return Err(Error::ReadOnly);
        }
        let state = self.state.lock();
        match &state.failed {
            Some(why) => Err(Error::Failed(why.clone())),
            None => Ok(state),
        }
    }

    /// Makes changes of names durable. If that fails it is unknown what a crash would leave, so that changes
    /// are no longer allowed, and no files are removed.
    pub(super) fn sync_dir(&self, dir: &Path, state: &mut TableState) -> Result<(), Error> {
        let synced = self.disk.sync_dir(dir).at("sync", dir);
        if let Err(error) = &synced {
            state.failed = Some(error.to_string());
        }
        synced
    }

    /// Publishes a version of a table, whose segments are durable. An error before the renaming leaves the
    /// table as it was, one after it is [doubtful](Error::Doubtful).
    pub(super) fn publish(&self, state: &mut TableState, opened: OpenVersion) -> Result<(), Error> {
        let OpenVersion { table, .. } = &opened;
        let directories = table
            .segments
            .iter()
            .map(|segment| segment_directory::encode(segment));
        let bytes = manifest::encode(table, &directories.collect::<Vec<_>>());
        let path = self.main().join(files::manifest_name(&table.name));
        let new = files::write_new(&*self.disk, &path, &bytes)?;
        if let Err(error) = self.disk.rename(&new, &path) {
            // The renaming may have happened none the less.
            state.failed = Some(error.to_string());
            let error = Err(error).at("rename", &new);
            return error.map_err(Error::of_begun_change);
        }
        let synced = self.sync_dir(self.main(), state);
        synced.map_err(Error::of_begun_change)?;
        let name = table.name.clone();
        state.damaged.remove(&name);
        state.put(&name, Some(opened));
        Ok(())
    }
}

impl TableState {
    /// Replaces a table's version by another one, or by none. Segments that the new one does not have may be
    /// removed.
    pub(super) fn put(&mut self, name: &str, next: Option<OpenVersion>) {
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
    pub(super) fn next_version(&self, name: &str) -> Result<Version, Error> {
        match self.tables.get(name) {
            Some(opened) => version_after(name, opened.table.version),
            None => Ok(Version::FIRST),
        }
    }
}

/// Returns the version after this one of a table, whose number a client may have chosen.
pub(crate) fn version_after(name: &str, version: Version) -> Result<Version, Error> {
    version.next().ok_or_else(|| {
        Error::Options(format!(
            "table {name} has version {}, and no number is left for another one: remove it, and load it anew",
            version.0
        ))
    })
}

impl TableDirectories {
    /// Creates the files of a new segment: one in each directory.
    pub(super) fn create(&self, id: SegmentId, page_size: PageSize) -> Result<SegmentFiles, Error> {
        let mut stripes = Vec::new();
        for (stripe, dir) in self.dirs.iter().enumerate() {
            let path = dir.join(files::stripe_name(id, stripe as u16));
            let file = self.disk.create_new(&path).at("create", &path)?;
            stripes.push((path, file));
        }
        let directory = self.main().join(files::directory_name(id));
        let disk = self.disk.clone();
        Ok(SegmentFiles::new(disk, id, page_size, directory, stripes))
    }
}
