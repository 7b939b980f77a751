//! The durable part of a table in memory: one small file, `locks.ledger`.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 18 | the ledger, as [`Ledger::encode`] lays it out |
//! | 18 | 4 | CRC-32C of these bytes, little-endian |
//!
//! 1. The file is never changed: a new one is written beside it, synced, and renamed over it. So after
//!    a crash there is either the previous ledger or the new one, complete.
//! 2. A file whose sync has failed is never renamed. After the directory's sync has failed, nothing is
//!    written any more: a later sync says nothing about the earlier writes.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::locks::authority::Ledger;
use disk::{Access, Disk};

use super::LockStartError;

const NAME: &str = "locks.ledger";
const NEW: &str = "locks.ledger.new";
const LENGTH: usize = 22;

/// See the module documentation.
pub(crate) struct LedgerFile {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// The directory's sync has failed.
    is_broken: AtomicBool,
    /// The lock by which this process is the only user of the directory.
    _lock: Box<dyn disk::DirLock>,
}

impl LedgerFile {
    /// Takes the directory, which is created if it does not exist, and reads the ledger.
    ///
    /// # Errors
    /// Returns a [`LockStartError`], above all when another process has the directory.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
    ) -> Result<(LedgerFile, Option<Ledger>), LockStartError> {
        let directory = directory.to_owned();
        let failed = |error| LockStartError::File {
            directory: directory.clone(),
            error,
        };
        disk.create_dir_all(&directory).map_err(failed)?;
        let lock = disk.lock_dir(&directory)?;
        let file = directory.join(NAME);
        let ledger = match read(&*disk, &file).map_err(failed)? {
            None => None,
            Some(bytes) => Some(decode(&bytes).ok_or(LockStartError::Ledger { file })?),
        };
        let file = LedgerFile {
            disk,
            directory,
            is_broken: AtomicBool::new(false),
            _lock: lock,
        };
        Ok((file, ledger))
    }

    /// Writes a ledger in place of the previous one.
    ///
    /// # Errors
    /// Returns the operating system's error. Then the file has either the previous ledger or this one;
    /// both promise enough.
    pub(crate) fn keep(&self, ledger: Ledger) -> io::Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            let text = "the directory of the locks could not be synced; restart the proxy";
            return Err(io::Error::other(text));
        }
        let new = self.directory.join(NEW);
        match self.disk.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let body = ledger.encode();
        let sum = crc32c::crc32c(&body).to_le_bytes();
        let file = self.disk.create_new(&new)?;
        file.write_and_sync(&[IoSlice::new(&body), IoSlice::new(&sum)], 0)?;
        self.disk.rename(&new, &self.directory.join(NAME))?;
        let synced = self.disk.sync_dir(&self.directory);
        self.is_broken.store(synced.is_err(), Ordering::Relaxed);
        synced
    }
}

fn read(disk: &dyn Disk, file: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(file, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = vec![0; LENGTH + 1];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(Some(bytes))
}

fn decode(bytes: &[u8]) -> Option<Ledger> {
    let (body, sum) = bytes.split_at_checked(LENGTH - 4)?;
    (crc32c::crc32c(body).to_le_bytes() == sum).then(|| Ledger::decode(body))?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::locks::FencingToken;
    use disk::{Crash, Fault, FaultDisk, FaultKind, OpKind, RealDisk};

    use super::*;

    fn ledger(number: u64) -> Ledger {
        Ledger {
            reserved: FencingToken(number),
            longest: Duration::from_millis(number),
            clean: false,
        }
    }

    fn open(directory: &Path) -> Result<(LedgerFile, Option<Ledger>), LockStartError> {
        LedgerFile::open(Arc::new(RealDisk), directory)
    }

    #[test]
    fn the_last_ledger_is_found_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path().join("a").join("b");
        for number in 0..4u64 {
            let (file, found) = open(&directory).expect("it opens");
            assert_eq!(found, number.checked_sub(1).map(ledger));
            file.keep(ledger(number)).expect("it is kept");
        }
    }

    #[test]
    fn a_directory_has_one_user() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = open(directory.path()).expect("it opens");
        let error = open(directory.path()).map(drop).expect_err("it is in use");
        assert!(
            error.to_string().contains("open in this process already"),
            "{error}"
        );
        drop(first);
        open(directory.path()).map(drop).expect("it opens");
    }

    #[test]
    fn damage_is_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, _) = open(directory.path()).expect("it opens");
        file.keep(ledger(77)).expect("it is kept");
        drop(file);
        let path = directory.path().join(NAME);
        let good = std::fs::read(&path).expect("the file");
        let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|cut| good[..cut].to_vec()).collect();
        bad.push([&good[..], &[0]].concat());
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bad.push(bytes);
        }
        for bytes in bad {
            std::fs::write(&path, &bytes).expect("written");
            let error = open(directory.path()).map(drop).expect_err("damaged");
            assert!(matches!(error, LockStartError::Ledger { .. }), "{bytes:?}");
        }
    }

    #[test]
    fn a_crash_leaves_the_last_ledger_that_was_kept_or_the_next() {
        let directory = Path::new("/locks");
        let mut crashes = 0;
        for seed in 0..10 {
            for (nth, kind) in (0..12).flat_map(|nth| {
                let kinds = [FaultKind::PowerOff, FaultKind::Io, FaultKind::ShortWrite];
                kinds.map(|kind| (nth, kind))
            }) {
                let disk = FaultDisk::new();
                let shared: Arc<dyn Disk> = Arc::new(disk.clone());
                let (file, _) = LedgerFile::open(shared, directory).expect("it opens");
                let before = disk.count(OpKind::Change);
                disk.plan(Fault {
                    on: OpKind::Change,
                    nth: before + nth,
                    kind,
                });
                let kept: Vec<bool> = (1..=3)
                    .map(|number| file.keep(ledger(number)).is_ok())
                    .collect();
                crashes += usize::from(kept.contains(&false));
                for crash in [Crash::DropAll, Crash::KeepPrefix, Crash::KeepSectors] {
                    let after: Arc<dyn Disk> = Arc::new(disk.crash(crash, seed));
                    let (_, found) = LedgerFile::open(after, directory).expect("it opens");
                    let least = (1..=3).filter(|at| kept[at - 1]).max().unwrap_or(0);
                    let found = found.map_or(0, |ledger| ledger.reserved.0) as usize;
                    assert!(
                        (least..=3).contains(&found),
                        "{kind:?} at {nth}, {crash:?}, seed {seed}: {kept:?}, then {found}"
                    );
                }
            }
        }
        assert!(crashes > 100, "only {crashes} faults had an effect");
    }
}
