//! Makes a snapshot.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Change;
use base::codec::put_u64;
use disk::{Access, Disk, DiskFile};

use super::contents::{SnapshotFile, SnapshotHead, SnapshotRecord};
use super::directory::{DRAFT, publish};
use super::error::SnapshotError;
use super::format::{
    Footer, SnapshotBlockHeader, SnapshotBlockKind, chained, file_header, put_head,
};

/// A block is written once it has this many bytes.
const BLOCK: usize = 256 << 10;

/// Sets aside `bytes` for the next snapshot in `dir`, which exists. The snapshot can then be made
/// when the log has filled the disk, and the log can be cut. Call it when none is being made.
///
/// # Errors
/// Returns the errors of the operating system. If the disk is full, the space that was set aside
/// before stays.
pub fn reserve(disk: &dyn Disk, dir: &Path, bytes: u64) -> Result<(), SnapshotError> {
    let path = dir.join(DRAFT);
    open_draft(disk, &path)?
        .allocate(bytes)
        .map_err(SnapshotError::io("set space aside for", &path))
}

/// Opens the file that becomes the next snapshot. If a snapshot was begun and not finished, or
/// space was set aside, the file has that space.
fn open_draft(disk: &dyn Disk, path: &Path) -> Result<Box<dyn DiskFile>, SnapshotError> {
    match disk.open(path, Access::ReadWrite) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => disk
            .create_new(path)
            .map_err(SnapshotError::io("create", path)),
        opened => opened.map_err(SnapshotError::io("open", path)),
    }
}

/// Writes a snapshot. There is no snapshot until [`SnapshotWriter::finish`] has returned. A writer
/// that is dropped leaves its space to the next one.
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    head: SnapshotHead,
    /// The payload of the block that is being filled.
    block: Vec<u8>,
    /// Number of the next block.
    number: u64,
    /// Bytes written.
    end: u64,
    records: u64,
    /// Checksum of the headers written.
    chain: u32,
}

impl SnapshotWriter {
    /// Begins a snapshot in `dir`, which exists, with the space that was [set aside](reserve) for
    /// it. A snapshot that was begun there before and not finished is given up.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        head: &SnapshotHead,
    ) -> Result<SnapshotWriter, SnapshotError> {
        let path = dir.join(DRAFT);
        let file = open_draft(&**disk, &path)?;
        let mut writer = SnapshotWriter {
            disk: Arc::clone(disk),
            path,
            file,
            head: head.clone(),
            block: Vec::new(),
            number: 0,
            end: 0,
            records: 0,
            chain: 0,
        };
        let header = file_header();
        writer.write(&[IoSlice::new(&header)], header.len())?;
        put_head(&mut writer.block, head);
        writer.end_block(SnapshotBlockKind::Head)?;
        Ok(writer)
    }

    /// Adds a key. Keys come in their order.
    ///
    /// # Errors
    /// Returns the errors of the operating system; the writer is of no use then.
    pub fn put(&mut self, record: &SnapshotRecord<'_>) -> Result<(), SnapshotError> {
        put_u64(&mut self.block, record.tid.to_bits());
        let change = Change::Put {
            key: record.key,
            value: record.value,
            kind: record.kind,
            generation: record.generation,
            deadline: record.deadline,
            origin: record.origin,
        };
        journal::write_changes(&mut self.block, |to| to.change(&change));
        self.records += 1;
        if self.block.len() >= BLOCK {
            self.end_block(SnapshotBlockKind::Keys)?;
        }
        Ok(())
    }

    /// Returns the bytes that have been written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Ends the snapshot with the table of sessions; it is durable when this returns.
    ///
    /// # Errors
    /// Returns the errors of the operating system. There is no snapshot then, or, after a failed
    /// sync of the directory, there is one that a crash may remove.
    pub fn finish(mut self, sessions: &[u8]) -> Result<SnapshotFile, SnapshotError> {
        if !self.block.is_empty() {
            self.end_block(SnapshotBlockKind::Keys)?;
        }
        for piece in sessions.chunks(BLOCK) {
            self.block.extend_from_slice(piece);
            self.end_block(SnapshotBlockKind::Sessions)?;
        }
        let footer = Footer {
            records: self.records,
            bytes: self.end,
            chain: self.chain,
        };
        footer.put(&mut self.block);
        self.end_block(SnapshotBlockKind::Footer)?;
        self.file
            .set_size(self.end)
            .map_err(SnapshotError::io("cut", &self.path))?;
        self.file
            .sync_data()
            .map_err(SnapshotError::io("sync", &self.path))?;
        let path = publish(&*self.disk, &self.path, &self.head.meta)?;
        Ok(SnapshotFile {
            path,
            head: self.head.clone(),
            bytes: self.end,
            records: self.records,
        })
    }

    fn end_block(&mut self, kind: SnapshotBlockKind) -> Result<(), SnapshotError> {
        let block = std::mem::take(&mut self.block);
        let header = SnapshotBlockHeader {
            kind,
            length: u32::try_from(block.len()).expect("a key and its value are smaller"),
            number: self.number,
            payload_checksum: crc32c::crc32c(&block),
        }
        .encode();
        self.write(
            &[IoSlice::new(&header), IoSlice::new(&block)],
            header.len() + block.len(),
        )?;
        self.number += 1;
        self.chain = chained(self.chain, &header);
        self.block = block;
        self.block.clear();
        Ok(())
    }

    fn write(&mut self, parts: &[IoSlice<'_>], bytes: usize) -> Result<(), SnapshotError> {
        self.file
            .write_all_at(parts, self.end)
            .map_err(SnapshotError::io("write", &self.path))?;
        self.end += bytes as u64;
        Ok(())
    }
}
