//! The tables and files that a node serves.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use disk::reads::ReadFile;

use crate::error::Error;
use crate::table::{Table, Version};
use crate::tables::OpenVersion;

/// The tables and files that readers can request.
pub trait NodeStorage: Send + Sync {
    /// Returns the tables, in the form of [`ListedTable`](crate::remote::ListedTable).
    ///
    /// # Errors
    /// Returns why they are not known.
    fn tables(&self) -> Result<Vec<u8>, Error>;

    /// Opens a version of a table; the newest one for version 0.
    ///
    /// # Errors
    /// Returns an error if the version does not exist, or no longer, or cannot be opened.
    fn open(&self, name: &str, version: Version) -> Result<Arc<OpenTable>, Error>;

    /// Opens a file that may be shown, as pages of so many bytes.
    ///
    /// # Errors
    /// Returns an error if the file does not exist, or may not be shown, or the size is invalid.
    fn file(&self, name: &str, unit: usize) -> Result<Arc<OpenTable>, Error>;

    /// Begins to load rows into a table; module `protocol` has the format of the definition.
    ///
    /// # Errors
    /// Returns an error if nothing is loaded here, or not in this way.
    fn load(&self, definition: &[u8]) -> Result<Box<dyn NodeLoad>, Error> {
        let _ = definition;
        Err(Error::refused("this node loads nothing"))
    }

    /// Removes a table.
    ///
    /// # Errors
    /// Returns an error if there is none, or it cannot be removed. The table is as it was, except for
    /// [`Error::Doubtful`].
    fn remove(&self, name: &str) -> Result<(), Error> {
        let text = format!("this node removes nothing, {name} neither");
        Err(Error::Refused(text))
    }
}

/// Rows on their way into a table. If it is dropped without a commit, the table stays as it was.
pub trait NodeLoad: Send {
    /// Adds a [block](crate::block) of rows.
    ///
    /// # Errors
    /// Returns what is wrong. After that no rows can be added.
    fn push(&mut self, block: Bytes) -> Result<(), Error>;

    /// Makes the rows durable, but not yet part of the table. After that no rows can be added.
    ///
    /// # Errors
    /// Returns what is wrong. The load is over then.
    fn prepare(&mut self) -> Result<(), Error>;

    /// Makes the rows part of the table, durably and all at once. Returns the new version, in the form
    /// of [`Table::encode`].
    ///
    /// # Errors
    /// Returns what is wrong. The table is as it was, except for [`Error::Doubtful`].
    fn commit(self: Box<Self>) -> Result<Vec<u8>, Error>;
}

/// A version of a table, or a file, whose pages can be read. It stays readable as long as this exists,
/// even if newer versions have taken its place.
pub struct OpenTable {
    /// The table; a file has none.
    pub table: Option<Arc<Table>>,
    /// The table as bytes, for readers.
    pub description: Bytes,
    /// Bytes of a page.
    pub unit: usize,
    /// The table's segments, or the file.
    pub extents: Vec<Extent>,
    /// Keeps a table's files from being removed.
    pub kept: Option<OpenVersion>,
}

impl fmt::Debug for OpenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.table.as_ref().map(|table| &table.name);
        let mut shown = f.debug_struct("Opened");
        shown.field("table", &name).field("unit", &self.unit);
        shown.finish_non_exhaustive()
    }
}

/// The place of a segment's pages: page *n* is in file *n* mod files, as the (*n* / files)th there.
#[derive(Debug)]
pub struct Extent {
    /// The files.
    pub files: Vec<Arc<ReadFile>>,
    /// The number of pages.
    pub pages: u64,
    /// The pages, one after the other, if they are not in a file: they are answered at once.
    pub memory: Option<Bytes>,
}

impl Extent {
    /// Returns the file of a page, and the byte at which it begins; `None` if there is no such page, or
    /// no file.
    #[must_use]
    pub fn find(&self, page: u32, unit: usize) -> Option<(usize, u64)> {
        let (page, files) = (u64::from(page), self.files.len() as u64);
        let is_there = page < self.pages && files > 0;
        is_there.then(|| ((page % files) as usize, page / files * unit as u64))
    }

    /// Returns a page that lies in memory.
    #[must_use]
    pub fn in_memory(&self, page: u32, unit: usize) -> Option<Bytes> {
        let memory = self.memory.as_ref()?;
        let start = page as usize * unit;
        (u64::from(page) < self.pages).then(|| memory.slice(start..start + unit))
    }
}
