//! The tables and files that a node gives away.

mod stock;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use disk::reads::ReadFile;

pub use stock::Stock;

use super::tasks::Outcome;
use crate::table::{Table, Version};
use crate::tables;

/// The tables and files that readers can request.
pub trait Shelf: Send + Sync {
    /// Returns the tables, in the form of [`Listed`](crate::remote::Listed).
    ///
    /// # Errors
    /// Returns a text that says why they are not known.
    fn tables(&self) -> Result<Vec<u8>, String>;

    /// Opens a version of a table; the newest one for version 0.
    ///
    /// # Errors
    /// Returns a text if the version does not exist, or no longer, or cannot be opened.
    fn open(&self, name: &str, version: Version) -> Result<Arc<Opened>, String>;

    /// Opens a file that may be shown, as pages of so many bytes.
    ///
    /// # Errors
    /// Returns a text if the file does not exist, or may not be shown, or the size is invalid.
    fn file(&self, name: &str, unit: usize) -> Result<Arc<Opened>, String>;

    /// Begins to load rows into a table; see [`load`](crate::remote::load) for the definition.
    ///
    /// # Errors
    /// Returns a text if nothing is loaded here, or not in this way.
    fn load(&self, definition: &[u8]) -> Result<Box<dyn Loading>, String> {
        let _ = definition;
        Err("this node loads nothing".to_owned())
    }

    /// Removes a table.
    ///
    /// # Errors
    /// Returns an error if there is none, or it cannot be removed. The table is as it was, except for
    /// [`Outcome::Doubtful`].
    fn remove(&self, name: &str) -> Result<(), Outcome> {
        let text = format!("this node removes nothing, {name} neither");
        Err(Outcome::Refused(text))
    }
}

/// Rows on their way into a table. If it is dropped without a commit, the table stays as it was.
pub trait Loading: Send {
    /// Adds a [block](crate::block) of rows.
    ///
    /// # Errors
    /// Returns a text that says what is wrong. After that no rows can be added.
    fn push(&mut self, block: Bytes) -> Result<(), String>;

    /// Makes the rows durable, but not yet part of the table. After that no rows can be added.
    ///
    /// # Errors
    /// Returns a text that says what is wrong. The load is over then.
    fn prepare(&mut self) -> Result<(), String>;

    /// Makes the rows part of the table, durably and all at once. Returns the new version, in the form
    /// of [`Table::encode`].
    ///
    /// # Errors
    /// Returns what is wrong. The table is as it was, except for [`Outcome::Doubtful`].
    fn commit(self: Box<Self>) -> Result<Vec<u8>, Outcome>;
}

/// A version of a table, or a file, whose pages can be read. It stays readable as long as this exists,
/// even if newer versions have taken its place.
pub struct Opened {
    /// The table; a file has none.
    pub table: Option<Arc<Table>>,
    /// The table as bytes, for readers.
    pub description: Bytes,
    /// Bytes of a page.
    pub unit: usize,
    /// The table's segments, or the file.
    pub extents: Vec<Extent>,
    /// Keeps a table's files from being removed.
    pub kept: Option<tables::Opened>,
}

impl fmt::Debug for Opened {
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

/// Files that are shown as they are, by name: for measurements. Memory can be shown as if it were a
/// file: its pages cost everything but a read.
#[derive(Debug, Default)]
pub struct ShownFiles {
    shown: HashMap<String, Shown>,
}

/// A shown file, or memory.
#[derive(Debug)]
enum Shown {
    File(Arc<ReadFile>),
    Memory(Bytes),
}

impl ShownFiles {
    /// Shows a file under a name.
    pub fn show(&mut self, name: impl Into<String>, file: ReadFile) {
        self.shown.insert(name.into(), Shown::File(Arc::new(file)));
    }

    /// Shows bytes under a name.
    pub fn show_memory(&mut self, name: impl Into<String>, bytes: Bytes) {
        self.shown.insert(name.into(), Shown::Memory(bytes));
    }
}

impl Shelf for ShownFiles {
    fn tables(&self) -> Result<Vec<u8>, String> {
        Ok(crate::remote::Listed::encode(&[]))
    }

    fn open(&self, name: &str, _: Version) -> Result<Arc<Opened>, String> {
        Err(format!(
            "this node shows files alone, and has no table {name}"
        ))
    }

    fn file(&self, name: &str, unit: usize) -> Result<Arc<Opened>, String> {
        let shown = self.shown.get(name);
        let shown = shown.ok_or_else(|| format!("no file is shown as {name}"))?;
        if !(512..=128 << 10).contains(&unit) || !unit.is_multiple_of(512) {
            return Err(format!(
                "{unit} bytes at a time: take 512 to 131072, in steps of 512"
            ));
        }
        let (len, files, memory) = match shown {
            Shown::File(file) => (file.len(), vec![Arc::clone(file)], None),
            Shown::Memory(bytes) => (bytes.len() as u64, Vec::new(), Some(bytes.clone())),
        };
        let pages = len / unit as u64;
        if pages == 0 || pages > u64::from(u32::MAX) {
            return Err(format!(
                "{name} has {pages} pages of {unit} bytes; 1 to 4294967295 can be"
            ));
        }
        Ok(Arc::new(Opened {
            table: None,
            description: Bytes::copy_from_slice(&pages.to_le_bytes()),
            unit,
            extents: vec![Extent {
                files,
                pages,
                memory,
            }],
            kept: None,
        }))
    }
}
