//! Pages of this machine's own disks, read before the caller takes them.
//!
//! | part | concept |
//! |---|---|
//! | `options` | how pages are read |
//! | `reader` | a way of reading, and memory for what it reads |
//! | `stream` | pages on their way |
//!
//! A page stays where the read has put it, without being copied, until its last user drops it. All readers
//! share that memory. When kept pages have taken half of it, pages are copied out as they come.
//!
//! Invariant: a stream that waits has a read under way. When all memory is taken it reads into memory of
//! its reader's own, from which pages are always copied out; so a caller that keeps pages, however many,
//! blocks no stream.

mod options;
mod reader;
mod stream;

use std::sync::Arc;

pub use options::LocalOptions;

use crate::source::{PageStream, Source};
use crate::table::{PageAddress, Table};
use crate::tables::Tables;
use reader::Readers;
use stream::Stream;

/// Reads pages of tables on this machine. Clones share readers and memory.
#[derive(Clone)]
pub struct Local {
    readers: Arc<Readers>,
}

impl Local {
    /// Reads these tables, whose files the operating system has.
    ///
    /// # Panics
    /// Panics if the depth is zero or above 32768, or a way of threads has none.
    #[must_use]
    pub fn new(tables: Tables, options: LocalOptions) -> Local {
        let readers = Arc::new(Readers::new(tables, options));
        Local { readers }
    }

    /// Returns how pages are read.
    #[must_use]
    pub fn options(&self) -> &LocalOptions {
        self.readers.options()
    }
}

impl Source for Local {
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream {
        Box::new(Stream::new(&self.readers, table, pages))
    }
}
