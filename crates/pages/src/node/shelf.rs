//! What a node gives away.

use std::sync::Arc;

use bytes::Bytes;
use disk::reads::ReadFile;

use crate::table::Table;

/// Where a node finds what readers ask for.
pub trait Shelf: Send + Sync {
    /// Which tables there are, in the form of [`Listed`](crate::remote::Listed).
    ///
    /// # Errors
    /// A text that says why that is not known.
    fn tables(&self) -> Result<Vec<u8>, String>;

    /// Opens the newest version of a table.
    ///
    /// # Errors
    /// A text: there is none, or it cannot be opened.
    fn open(&self, name: &str) -> Result<Arc<Opened>, String>;

    /// Opens a file that may be shown, as pages of so many bytes.
    ///
    /// # Errors
    /// A text: there is none, or it may not be shown, or the size is none.
    fn file(&self, name: &str, unit: usize) -> Result<Arc<Opened>, String>;
}

/// A version of a table, or a file, whose pages can be read. Stays readable as long as this lives, even
/// if newer versions have taken its place.
#[derive(Debug)]
pub struct Opened {
    /// The table; a file has none.
    pub table: Option<Arc<Table>>,
    /// The table as bytes, for readers.
    pub description: Bytes,
    /// Bytes of a page.
    pub unit: usize,
    /// The table's segments, or the file.
    pub extents: Vec<Extent>,
}

/// Where pages of a segment are: page *n* is in file *n* mod files, as the (*n* / files)th there.
#[derive(Debug)]
pub struct Extent {
    /// The files.
    pub files: Vec<Arc<ReadFile>>,
    /// How many pages there are.
    pub pages: u64,
}

impl Extent {
    /// In which file a page is, and from which byte on; `None` if there is no such page.
    #[must_use]
    pub fn find(&self, page: u32, unit: usize) -> Option<(usize, u64)> {
        let (page, files) = (u64::from(page), self.files.len() as u64);
        (page < self.pages).then(|| ((page % files) as usize, page / files * unit as u64))
    }
}
