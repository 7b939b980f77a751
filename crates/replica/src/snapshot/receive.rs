//! Joins the pieces of a snapshot that another member sends.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Access, Disk, DiskFile};

use super::contents::SnapshotFile;
use super::directory::{DRAFT, PART, publish, remove_leftover};
use super::error::SnapshotError;
use super::read::SnapshotReader;

/// Takes the pieces of one snapshot in order. A receiver that is dropped leaves no file, unless the
/// disk refuses to remove it.
pub struct SnapshotReceiver {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    term: u64,
    index: u64,
    bytes: u64,
    /// Bytes received.
    end: u64,
    published: bool,
}

impl SnapshotReceiver {
    /// Begins to receive the snapshot of entry `index`, which is of `term` and `bytes` long, into
    /// `dir`, which exists, and sets space aside for it. A snapshot that was begun there before is
    /// given up.
    ///
    /// # Errors
    /// Returns the errors of the operating system. The disk may lack the space for all of it.
    pub fn begin(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        of: (u64, u64),
        bytes: u64,
    ) -> Result<SnapshotReceiver, SnapshotError> {
        let path = dir.join(PART);
        remove_leftover(&**disk, &path)?;
        let file = disk
            .create_new(&path)
            .map_err(SnapshotError::io("create", &path))?;
        SnapshotReceiver::allocated(disk, path, file, of, bytes)
    }

    /// Does the same as [`SnapshotReceiver::begin`], with the space that was [set
    /// aside](super::reserve) for the next snapshot that is made here. Call it when none is being
    /// made.
    ///
    /// # Errors
    /// Returns the errors of [`SnapshotReceiver::begin`]; the space that was set aside stays so.
    pub fn begin_in_reserve(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        of: (u64, u64),
        bytes: u64,
    ) -> Result<SnapshotReceiver, SnapshotError> {
        let (draft, path) = (dir.join(DRAFT), dir.join(PART));
        let file = disk
            .open(&draft, Access::ReadWrite)
            .map_err(SnapshotError::io("open", &draft))?;
        file.allocate(bytes)
            .map_err(SnapshotError::io("set space aside for", &draft))?;
        disk.rename(&draft, &path)
            .map_err(SnapshotError::io("rename", &draft))?;
        SnapshotReceiver::allocated(disk, path, file, of, bytes)
    }

    fn allocated(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        file: Box<dyn DiskFile>,
        (term, index): (u64, u64),
        bytes: u64,
    ) -> Result<SnapshotReceiver, SnapshotError> {
        let receiver = SnapshotReceiver {
            disk: Arc::clone(disk),
            path,
            file,
            term,
            index,
            bytes,
            end: 0,
            published: false,
        };
        // Dropping the receiver removes the file.
        receiver
            .file
            .allocate(bytes)
            .map_err(SnapshotError::io("set space aside for", &receiver.path))?;
        Ok(receiver)
    }

    /// Returns the term and the index of the snapshot.
    #[must_use]
    pub fn of(&self) -> (u64, u64) {
        (self.term, self.index)
    }

    /// Returns the offset of the next piece: after a lost connection the sender goes on there.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.end
    }

    /// Returns the bytes that have been received, and their total.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.end, self.bytes)
    }

    /// Returns `true` if all bytes have been received.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end == self.bytes
    }

    /// Takes the piece that begins at `offset`. A piece that does not begin where the last one
    /// ended, or that goes beyond the end, changes nothing. Returns the offset of the next piece.
    ///
    /// # Errors
    /// Returns the errors of the operating system; the receiver is of no use then.
    pub fn chunk(&mut self, offset: u64, bytes: &[u8]) -> Result<u64, SnapshotError> {
        let room = self.bytes - self.end;
        if offset == self.end && bytes.len() as u64 <= room && !bytes.is_empty() {
            self.file
                .write_all_at(&[IoSlice::new(bytes)], offset)
                .map_err(SnapshotError::io("write", &self.path))?;
            self.end += bytes.len() as u64;
        }
        Ok(self.end)
    }

    /// Verifies all of the snapshot and gives it its name; it is durable when this returns.
    ///
    /// # Errors
    /// Returns the errors of the operating system, or an error if the snapshot is damaged or is not
    /// the one that was announced.
    pub fn finish(mut self) -> Result<SnapshotFile, SnapshotError> {
        let damaged = |at, what: &str| Err(SnapshotError::damaged(&self.path, at, what));
        if !self.is_complete() {
            return damaged(self.end, "pieces of it have not been received");
        }
        self.file
            .set_size(self.bytes)
            .map_err(SnapshotError::io("cut", &self.path))?;
        self.file
            .sync_data()
            .map_err(SnapshotError::io("sync", &self.path))?;
        let mut reader = SnapshotReader::open(&self.disk, &self.path)?;
        while reader.next()?.is_some() {}
        let mut found = reader.file().clone();
        if (found.head.meta.term, found.head.meta.index) != (self.term, self.index) {
            return damaged(0, "it is another snapshot than was announced");
        }
        found.path = publish(&*self.disk, &self.path, &found.head.meta)?;
        self.published = true;
        Ok(found)
    }
}

impl Drop for SnapshotReceiver {
    fn drop(&mut self) {
        if !self.published {
            // A file that cannot be removed is removed before the next one is made, or at the next
            // start.
            let _ = self.disk.remove(&self.path);
        }
    }
}
