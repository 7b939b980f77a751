//! Making a snapshot.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Change;
use base::codec::put_u64;
use disk::{Disk, DiskFile};

use super::format::{BlockHeader, Footer, Kind, chained, file_header, put_head};
use super::{DRAFT, Head, SnapshotError, SnapshotFile, SnapshotRecord, publish, remove_leftover};

/// A block is written once it has so many bytes.
const BLOCK: usize = 256 << 10;

/// Writes a snapshot. Until [`SnapshotWriter::finish`] has returned there is none; a writer that is
/// dropped leaves no file, as far as the disk lets it.
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    head: Head,
    /// The payload of the block that is being filled.
    block: Vec<u8>,
    /// Number of the next block.
    number: u64,
    /// Bytes written.
    end: u64,
    records: u64,
    /// Checksum of the headers written.
    chain: u32,
    published: bool,
}

impl SnapshotWriter {
    /// Begins a snapshot in `dir`, which exists. One that was begun there before and not finished is
    /// given up.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        head: &Head,
    ) -> Result<SnapshotWriter, SnapshotError> {
        let path = dir.join(DRAFT);
        remove_leftover(&**disk, &path)?;
        let file = disk
            .create_new(&path)
            .map_err(SnapshotError::io("create", &path))?;
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
            published: false,
        };
        let header = file_header();
        writer.write(&[IoSlice::new(&header)], header.len())?;
        put_head(&mut writer.block, head);
        writer.end_block(Kind::Head)?;
        Ok(writer)
    }

    /// Adds a key. Keys come in their order.
    ///
    /// # Errors
    /// As the operating system says; the writer is of no use then.
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
            self.end_block(Kind::Keys)?;
        }
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Ends the snapshot, with the table of sessions; it is durable when this returns.
    ///
    /// # Errors
    /// As the operating system says: there is no snapshot then, or, after a failed sync of the
    /// directory, one that a crash may take away.
    pub fn finish(mut self, sessions: &[u8]) -> Result<SnapshotFile, SnapshotError> {
        if !self.block.is_empty() {
            self.end_block(Kind::Keys)?;
        }
        for piece in sessions.chunks(BLOCK) {
            self.block.extend_from_slice(piece);
            self.end_block(Kind::Sessions)?;
        }
        let footer = Footer {
            records: self.records,
            bytes: self.end,
            chain: self.chain,
        };
        footer.put(&mut self.block);
        self.end_block(Kind::Footer)?;
        self.file
            .sync_data()
            .map_err(SnapshotError::io("sync", &self.path))?;
        let path = publish(&*self.disk, &self.path, &self.head.meta)?;
        self.published = true;
        Ok(SnapshotFile {
            path,
            head: self.head.clone(),
            bytes: self.end,
            records: self.records,
        })
    }

    fn end_block(&mut self, kind: Kind) -> Result<(), SnapshotError> {
        let block = std::mem::take(&mut self.block);
        let header = BlockHeader {
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

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.published {
            // What stays behind is removed before the next one, or at the next start.
            let _ = self.disk.remove(&self.path);
        }
    }
}
