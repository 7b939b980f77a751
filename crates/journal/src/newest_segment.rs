//! The record of the newest segment of a log that may hold blocks.
//!
//! The segments of a log prove each other's presence by their numbers, but for the last one. The
//! file `log<n>.newest`, beside the directory of log *n*, names it: recovery refuses a directory
//! whose newest segment was removed or emptied. The file has two records, at 0 and at 4096, which
//! are written in turn; of the valid ones, that with the greater segment counts.
//!
//! Record, 24 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKINW` |
//! | 8 | 4 | version | of this format: 1 |
//! | 12 | 4 | log | number of the log |
//! | 16 | 4 | segment | number of its newest segment that may hold blocks |
//! | 20 | 4 | checksum | CRC-32C of bytes 0…19 |
//!
//! Invariants:
//! 1. A segment is recorded after its header and its name are durable, and before a block is
//!    written to it.
//! 2. A file that has its name holds a valid record: it is written under another name first, and
//!    later writes leave the newest record as it is.
//!
//! A directory of an older release has no such file. Segments behind the recorded one are no
//! error: an older release may have written them.

use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Access, Disk, DiskFile};
use parking_lot::Mutex;

use base::codec::{put_at, u32_at};

use crate::error::{RecoverError, StartError};
use crate::format::log_name;

const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"KUMIKINW";
const RECORD: usize = 24;
/// Bytes from one record to the other: no sector and no page holds both.
const SLOT: u64 = 4096;
const SLOTS: u64 = 2;

/// The file of one log, as its writer has it.
pub(crate) struct NewestSegment {
    disk: Arc<dyn Disk>,
    /// The journal's directory.
    dir: PathBuf,
    path: PathBuf,
    log: u32,
    open: Mutex<Option<OpenSegment>>,
}

/// A file that has its name.
struct OpenSegment {
    file: Box<dyn DiskFile>,
    /// The offset of the next record.
    slot: u64,
}

impl NewestSegment {
    /// Returns the file of `log` in the journal's directory `dir`. The first record creates the
    /// file, or replaces it.
    pub(crate) fn new(disk: &Arc<dyn Disk>, dir: &Path, log: u32) -> NewestSegment {
        NewestSegment {
            disk: Arc::clone(disk),
            dir: dir.to_owned(),
            path: path(dir, log as usize),
            log,
            open: Mutex::new(None),
        }
    }

    /// Records `segment`, durably. After an error this record or the one before it is read back.
    pub(crate) fn record(&self, segment: u32) -> Result<(), StartError> {
        let mut open = self.open.lock();
        let Some(open) = &mut *open else {
            let file = self.create(segment)?;
            *open = Some(OpenSegment { file, slot: 1 });
            return Ok(());
        };
        self.write(&*open.file, open.slot, segment)
            .map_err(StartError::io("write and sync", &self.path))?;
        open.slot = (open.slot + 1) % SLOTS;
        Ok(())
    }

    fn create(&self, segment: u32) -> Result<Box<dyn DiskFile>, StartError> {
        let draft = self.path.with_extension("newest.new");
        match self.disk.remove(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StartError::io("remove", &draft)(error));
            }
            _ => {}
        }
        let file = self
            .disk
            .create_new(&draft)
            .map_err(StartError::io("create", &draft))?;
        // Space for the other record, so that later ones need none.
        file.allocate(SLOTS * SLOT)
            .map_err(StartError::io("set space aside for", &draft))?;
        self.write(&*file, 0, segment)
            .map_err(StartError::io("write and sync", &draft))?;
        self.disk
            .rename(&draft, &self.path)
            .map_err(StartError::io("rename", &draft))?;
        self.disk
            .sync_dir(&self.dir)
            .map_err(StartError::io("sync", &self.dir))?;
        Ok(file)
    }

    fn write(&self, file: &dyn DiskFile, slot: u64, segment: u32) -> io::Result<()> {
        let mut bytes = vec![0; SLOT as usize];
        bytes[..RECORD].copy_from_slice(&encode(self.log, segment));
        file.write_and_sync(&[IoSlice::new(&bytes)], slot * SLOT)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the file of `log`, durably: nothing is known of its newest segment then.
pub(crate) fn remove(disk: &dyn Disk, dir: &Path, log: usize) -> Result<(), RecoverError> {
    let path = path(dir, log);
    match disk.remove(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(RecoverError::io("remove", &path)(error)),
        Ok(()) => disk.sync_dir(dir).map_err(RecoverError::io("sync", dir)),
    }
}

/// Returns the newest segment that is recorded for `log` in the journal's directory `dir`; `None` when
/// there is no file.
pub(crate) fn read(disk: &dyn Disk, dir: &Path, log: usize) -> Result<Option<u32>, RecoverError> {
    let path = path(dir, log);
    let file = match disk.open(&path, Access::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(RecoverError::io("open", &path))?,
    };
    let mut newest = None;
    for slot in 0..SLOTS {
        let mut bytes = [0; RECORD];
        file.read_at(&mut bytes, slot * SLOT)
            .map_err(RecoverError::io("read", &path))?;
        match decode(&bytes, log as u32) {
            Ok(segment) => newest = newest.max(segment),
            Err(version) => {
                return Err(RecoverError::Newer {
                    path,
                    version,
                    supported: VERSION,
                });
            }
        }
    }
    let damaged = || {
        let what = "it names no segment; remove it if no file of the log is missing";
        RecoverError::corrupt(&path, 0, what)
    };
    newest.map(Some).ok_or_else(damaged)
}

/// Returns the path of the file of `log`.
pub(crate) fn path(dir: &Path, log: usize) -> PathBuf {
    dir.join(format!("{}.newest", log_name(log)))
}

/// Returns the log whose file has this name.
pub(crate) fn log_number(name: &str) -> Option<usize> {
    let log = name.strip_suffix(".newest")?.strip_prefix("log")?;
    let log = log.parse().ok()?;
    (log_name(log) == name.strip_suffix(".newest")?).then_some(log)
}

fn encode(log: u32, segment: u32) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    put_at(&mut bytes, 0, &MAGIC);
    put_at(&mut bytes, 8, &VERSION.to_le_bytes());
    put_at(&mut bytes, 12, &log.to_le_bytes());
    put_at(&mut bytes, 16, &segment.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..20]);
    put_at(&mut bytes, 20, &checksum.to_le_bytes());
    bytes
}

/// Returns the segment of a valid record of `log`, and `None` for other bytes. Fails with the version
/// of a record that a later release wrote.
fn decode(bytes: &[u8; RECORD], log: u32) -> Result<Option<u32>, u32> {
    let is_sound = bytes[..8] == MAGIC && u32_at(bytes, 20) == crc32c::crc32c(&bytes[..20]);
    match u32_at(bytes, 8) {
        _ if !is_sound => Ok(None),
        VERSION => Ok((u32_at(bytes, 12) == log).then(|| u32_at(bytes, 16))),
        newer => Err(newer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_every_flipped_bit_is_noticed() {
        let bytes = encode(3, 7);
        assert_eq!(decode(&bytes, 3), Ok(Some(7)));
        assert_eq!(decode(&bytes, 2), Ok(None), "that of another log");
        for bit in 0..RECORD * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad, 3), Ok(None), "bit {bit}");
        }
    }

    #[test]
    fn names_are_those_of_logs() {
        assert_eq!(log_number("log12.newest"), Some(12));
        for other in [
            "log.newest",
            "log01.newest",
            "log1",
            "log1.newest.new",
            "x.newest",
        ] {
            assert_eq!(log_number(other), None, "{other}");
        }
    }
}
