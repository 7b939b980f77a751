//! Reads a snapshot: key by key, or in pieces for another member.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Change, Tid};
use disk::{Access, Disk, DiskFile};
use journal::ChangeReader;

use super::contents::{SnapshotFile, SnapshotHead, SnapshotRecord};
use super::error::SnapshotError;
use super::format::{
    self, BLOCK_HEADER, FILE_HEADER, FOOTER, Footer, SnapshotBlockHeader, SnapshotBlockKind,
};

/// Reads a snapshot in order and verifies it on the way.
pub struct SnapshotReader {
    file: Box<dyn DiskFile>,
    found: SnapshotFile,
    footer: Footer,
    /// The current block, and the position in it.
    block: Vec<u8>,
    at: usize,
    /// The offset of that block's payload, for errors.
    block_at: u64,
    /// The offset of the next block, and its number.
    next: u64,
    number: u64,
    chain: u32,
    records: u64,
    sessions: Vec<u8>,
}

impl SnapshotReader {
    /// Opens the snapshot in `path`, and verifies its beginning and its end.
    ///
    /// # Errors
    /// Returns the errors of the operating system, or an error if the snapshot is damaged.
    pub fn open(disk: &Arc<dyn Disk>, path: &Path) -> Result<SnapshotReader, SnapshotError> {
        let file = disk
            .open(path, Access::Read)
            .map_err(SnapshotError::io("open", path))?;
        let bytes = file.size().map_err(SnapshotError::io("read", path))?;
        let footer = read_footer(&*file, path, bytes)?;
        let found = SnapshotFile {
            path: path.to_owned(),
            head: SnapshotHead::default(),
            bytes,
            records: footer.records,
        };
        let mut reader = SnapshotReader {
            file,
            found,
            footer,
            block: Vec::new(),
            at: 0,
            block_at: 0,
            next: FILE_HEADER as u64,
            number: 0,
            chain: 0,
            records: 0,
            sessions: Vec::new(),
        };
        if reader.load()? != SnapshotBlockKind::Head {
            return Err(reader.damaged("the first block is no head"));
        }
        reader.found.head =
            format::read_head(&reader.block).map_err(|error| reader.damaged(error.to_string()))?;
        reader.at = reader.block.len();
        Ok(reader)
    }

    /// Returns the description of the snapshot.
    #[must_use]
    pub fn head(&self) -> &SnapshotHead {
        &self.found.head
    }

    /// Returns the description of the file; the number of its keys comes from its footer.
    #[must_use]
    pub fn file(&self) -> &SnapshotFile {
        &self.found
    }

    /// Returns the bytes that have been read, and their total.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.next, self.found.bytes)
    }

    /// Returns the next key; `None` behind the last one, when all of the file has been verified.
    ///
    /// # Errors
    /// Returns the errors of the operating system, or an error if the snapshot is damaged: the keys
    /// that were read so far are of no use then.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows from the reader"
    )]
    pub fn next(&mut self) -> Result<Option<SnapshotRecord<'_>>, SnapshotError> {
        while self.at == self.block.len() {
            if self.next == self.found.bytes {
                return Ok(None);
            }
            match self.load()? {
                SnapshotBlockKind::Keys if self.sessions.is_empty() => {}
                SnapshotBlockKind::Sessions => {
                    self.sessions.extend_from_slice(&self.block);
                    self.at = self.block.len();
                }
                SnapshotBlockKind::Footer => self.finish()?,
                _ => return Err(self.damaged("a block in the wrong place")),
            }
        }
        let offset = self.block_at + self.at as u64;
        let parsed = record(&self.block[self.at..]);
        let (record, length) =
            parsed.map_err(|what| SnapshotError::damaged(&self.found.path, offset, what))?;
        self.at += length;
        self.records += 1;
        Ok(Some(record))
    }

    /// Returns the table of sessions. Keys that were not read yet are verified and skipped.
    ///
    /// # Errors
    /// Returns the errors of [`SnapshotReader::next`].
    pub fn sessions(mut self) -> Result<Vec<u8>, SnapshotError> {
        while self.next()?.is_some() {}
        Ok(self.sessions)
    }

    /// Reads the next block, which exists.
    fn load(&mut self) -> Result<SnapshotBlockKind, SnapshotError> {
        self.block_at = self.next;
        let mut bytes = [0; BLOCK_HEADER];
        let room = self.found.bytes - self.next;
        if room < BLOCK_HEADER as u64 {
            return Err(self.damaged("a block is cut off"));
        }
        self.read_exact(&mut bytes)?;
        let header = SnapshotBlockHeader::decode(&bytes)
            .filter(|header| header.number == self.number)
            .ok_or_else(|| self.damaged("a block has no sound header"))?;
        if u64::from(header.length) > room - BLOCK_HEADER as u64 {
            return Err(self.damaged("a block is cut off"));
        }
        self.block_at = self.next;
        let mut block = std::mem::take(&mut self.block);
        block.resize(header.length as usize, 0);
        self.read_exact(&mut block)?;
        if crc32c::crc32c(&block) != header.payload_checksum {
            return Err(self.damaged("a block differs from its checksum"));
        }
        self.block = block;
        self.at = 0;
        self.number += 1;
        if header.kind != SnapshotBlockKind::Footer {
            self.chain = format::chained(self.chain, &bytes);
        }
        Ok(header.kind)
    }

    /// Compares what was read with the footer, which is the last block that was read.
    fn finish(&mut self) -> Result<(), SnapshotError> {
        self.at = self.block.len();
        let seen = Footer {
            records: self.records,
            bytes: self.block_at - BLOCK_HEADER as u64,
            chain: self.chain,
        };
        if self.next == self.found.bytes && seen == self.footer {
            Ok(())
        } else {
            Err(self.damaged("the footer is of other blocks"))
        }
    }

    fn read_exact(&mut self, to: &mut [u8]) -> Result<(), SnapshotError> {
        self.file
            .read_exact_at(to, self.next)
            .map_err(SnapshotError::io("read", &self.found.path))?;
        self.next += to.len() as u64;
        Ok(())
    }

    fn damaged(&self, what: impl Into<String>) -> SnapshotError {
        SnapshotError::damaged(&self.found.path, self.block_at, what)
    }
}

/// Reads the footer, which shows at once if a file was cut or never finished.
fn read_footer(
    file: &(dyn DiskFile + 'static),
    path: &Path,
    bytes: u64,
) -> Result<Footer, SnapshotError> {
    let cut = || SnapshotError::damaged(path, bytes, "the file is cut off");
    let at = bytes
        .checked_sub((BLOCK_HEADER + FOOTER) as u64)
        .filter(|&at| at >= FILE_HEADER as u64)
        .ok_or_else(cut)?;
    let read = |to: &mut [u8], at| {
        let read = file.read_exact_at(to, at);
        read.map_err(SnapshotError::io("read", path))
    };
    let mut header = [0; FILE_HEADER];
    read(&mut header, 0)?;
    match format::version(&header) {
        Some(format::OLDEST_VERSION..=format::VERSION) => {}
        Some(version) => {
            return Err(SnapshotError::Newer {
                path: path.to_owned(),
                version,
                supported: format::VERSION,
            });
        }
        None => return Err(SnapshotError::damaged(path, 0, "it is no snapshot")),
    }
    let (mut header, mut payload) = ([0; BLOCK_HEADER], [0; FOOTER]);
    read(&mut header, at)?;
    read(&mut payload, at + BLOCK_HEADER as u64)?;
    let sound = SnapshotBlockHeader::decode(&header).is_some_and(|header| {
        header.kind == SnapshotBlockKind::Footer
            && header.length == FOOTER as u32
            && header.payload_checksum == crc32c::crc32c(&payload)
    });
    let footer = Footer::read(&payload).ok();
    footer
        .filter(|footer| sound && footer.bytes == at)
        .ok_or_else(|| SnapshotError::damaged(path, at, "it does not end with a footer"))
}

/// Reads a key. Returns it with the number of its bytes.
fn record(bytes: &[u8]) -> Result<(SnapshotRecord<'_>, usize), &'static str> {
    let (tid, rest) = bytes.split_first_chunk().ok_or("a key is cut off")?;
    let mut changes = ChangeReader::new(rest);
    let change = changes.next().ok_or("a key is cut off")?;
    match change.map_err(|(_, what)| what)? {
        Change::Put {
            key,
            value,
            kind,
            generation,
            deadline,
            origin,
        } => {
            let record = SnapshotRecord {
                key,
                value,
                kind,
                generation,
                deadline,
                tid: Tid::from_bits(u64::from_le_bytes(*tid)),
                origin,
            };
            Ok((record, bytes.len() - changes.rest().len()))
        }
        _ => Err("an entry that is no key"),
    }
}

/// A snapshot as bytes, to be sent. It can be read to its end even if its name is removed.
pub struct SnapshotSource {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    bytes: u64,
}

impl SnapshotSource {
    /// Opens a snapshot.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<SnapshotSource, SnapshotError> {
        let file = disk
            .open(path, Access::Read)
            .map_err(SnapshotError::io("open", path))?;
        let bytes = file.size().map_err(SnapshotError::io("read", path))?;
        let path = path.to_owned();
        Ok(SnapshotSource { file, path, bytes })
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes from `offset` on, at most `max` of them; none behind the end.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn read_chunk(&self, offset: u64, max: usize) -> Result<Vec<u8>, SnapshotError> {
        let rest = self.bytes.saturating_sub(offset);
        let length = usize::try_from(rest).map_or(max, |rest| rest.min(max));
        let mut chunk = vec![0; length];
        self.file
            .read_exact_at(&mut chunk, offset)
            .map_err(SnapshotError::io("read", &self.path))?;
        Ok(chunk)
    }
}
