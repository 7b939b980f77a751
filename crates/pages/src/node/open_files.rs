//! Files that a reader loop has open for reading.

use std::collections::HashMap;
use std::sync::Arc;

use disk::reads::{FileId, ReadQueue};

use super::read_target::ReadTarget;
use super::storage::OpenTable;

/// Open files, shared by their users.
#[derive(Default)]
pub(super) struct OpenFiles(HashMap<usize, (ExtentFiles, usize)>);

/// The files of each extent.
pub(super) type ExtentFiles = Arc<Vec<Vec<FileId>>>;

impl OpenFiles {
    /// Opens the files of a table, unless they are open.
    pub(super) fn open(
        &mut self,
        opened: &Arc<OpenTable>,
        reads: &mut dyn ReadQueue<ReadTarget>,
    ) -> ExtentFiles {
        let (files, users) = self.0.entry(key(opened)).or_insert_with(|| {
            let mut files = Vec::new();
            for extent in &opened.extents {
                let of_it = extent.files.iter();
                files.push(of_it.map(|file| reads.add(Arc::clone(file))).collect());
            }
            (Arc::new(files), 0)
        });
        *users += 1;
        Arc::clone(files)
    }

    /// Closes the files, unless another reader uses them.
    pub(super) fn close(&mut self, opened: &Arc<OpenTable>, reads: &mut dyn ReadQueue<ReadTarget>) {
        let key = key(opened);
        let Some((files, users)) = self.0.get_mut(&key) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            for &file in files.iter().flatten() {
                reads.remove(file);
            }
            self.0.remove(&key);
        }
    }
}

/// Returns a key of an open version: its address, which is unique as long as it is in use.
fn key(opened: &Arc<OpenTable>) -> usize {
    Arc::as_ptr(opened).addr()
}
