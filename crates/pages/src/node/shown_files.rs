//! Files that a node shows, for measurements.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use disk::reads::ReadFile;

use super::storage::{Extent, NodeStorage, OpenTable};
use crate::error::Error;
use crate::protocol::ListedTable;
use crate::table::Version;

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

impl NodeStorage for ShownFiles {
    fn tables(&self) -> Result<Vec<u8>, Error> {
        Ok(ListedTable::encode(&[]))
    }

    fn open(&self, name: &str, _: Version) -> Result<Arc<OpenTable>, Error> {
        Err(Error::Refused(format!(
            "this node shows files alone, and has no table {name}"
        )))
    }

    fn file(&self, name: &str, unit: usize) -> Result<Arc<OpenTable>, Error> {
        let shown = self.shown.get(name);
        let shown = shown.ok_or_else(|| Error::Refused(format!("no file is shown as {name}")))?;
        if !(512..=128 << 10).contains(&unit) || !unit.is_multiple_of(512) {
            return Err(Error::Refused(format!(
                "{unit} bytes at a time: take 512 to 131072, in steps of 512"
            )));
        }
        let (len, files, memory) = match shown {
            Shown::File(file) => (file.len(), vec![Arc::clone(file)], None),
            Shown::Memory(bytes) => (bytes.len() as u64, Vec::new(), Some(bytes.clone())),
        };
        let pages = len / unit as u64;
        if pages == 0 || pages > u64::from(u32::MAX) {
            return Err(Error::Refused(format!(
                "{name} has {pages} pages of {unit} bytes; 1 to 4294967295 can be"
            )));
        }
        Ok(Arc::new(OpenTable {
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
