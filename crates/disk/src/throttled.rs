//! A disk that is slow on purpose, under one directory: a slow device among fast ones.
//!
//! The model is a device that does one operation at a time: a write of *n* bytes takes *n* divided
//! by the rate, a sync takes its delay, and an operation that comes while it is busy waits. The
//! disk below takes its own time in addition. The time slept depends on the operations alone, never
//! on the clock. Sleeps are collected until they are long enough ([`WORTH`]), at the latest in a
//! sync.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Access, DirEntry, DirLock, Disk, DiskFile, LockError};

/// A sleep that is shorter than this takes longer than it should.
const WORTH: Duration = Duration::from_millis(1);

/// The speed of a [`ThrottledDisk`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Bytes written in a second; 0: as many as the disk below can.
    pub bytes_per_second: u64,
    /// The additional time of each sync.
    pub sync_delay: Duration,
}

type Sleep = dyn Fn(Duration) + Send + Sync;

/// Slows down the files under one directory of the disk `D`.
pub struct ThrottledDisk<D> {
    below: D,
    dir: PathBuf,
    device: Arc<Device>,
}

impl<D: Disk> ThrottledDisk<D> {
    /// Returns a disk that slows `below` down for files whose path begins with `dir`, as it was
    /// given to the disk.
    pub fn new(below: D, dir: impl Into<PathBuf>, throttle: Throttle) -> ThrottledDisk<D> {
        ThrottledDisk::with_sleep(below, dir, throttle, Box::new(std::thread::sleep))
    }

    /// Returns a disk as [`ThrottledDisk::new`], but one that calls `sleep` instead of sleeping.
    pub fn with_sleep(
        below: D,
        dir: impl Into<PathBuf>,
        throttle: Throttle,
        sleep: Box<Sleep>,
    ) -> ThrottledDisk<D> {
        ThrottledDisk {
            below,
            dir: dir.into(),
            device: Arc::new(Device {
                throttle,
                owed: Mutex::default(),
                sleep,
            }),
        }
    }

    fn slowed(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        if !path.starts_with(&self.dir) {
            return file;
        }
        Box::new(ThrottledFile {
            below: file,
            device: Arc::clone(&self.device),
        })
    }
}

/// The state that all slowed files share.
struct Device {
    throttle: Throttle,
    /// The time that was taken and not slept yet. The lock is held during the sleep.
    owed: Mutex<Duration>,
    sleep: Box<Sleep>,
}

impl Device {
    fn write(&self, bytes: usize) {
        let Some(nanos) =
            (bytes as u64 * 1_000_000_000).checked_div(self.throttle.bytes_per_second)
        else {
            return;
        };
        let mut owed = self.owed.lock();
        *owed += Duration::from_nanos(nanos);
        if *owed >= WORTH {
            (self.sleep)(std::mem::take(&mut *owed));
        }
    }

    fn sync(&self) {
        let mut owed = self.owed.lock();
        let time = std::mem::take(&mut *owed) + self.throttle.sync_delay;
        if !time.is_zero() {
            (self.sleep)(time);
        }
    }
}

impl<D: Disk> Disk for ThrottledDisk<D> {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.below.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.slowed(path, self.below.create_new(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.slowed(path, self.below.open(path, access)?))
    }

    fn alignment(&self) -> usize {
        self.below.alignment()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.below.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.starts_with(&self.dir) {
            self.device.sync();
        }
        self.below.sync_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.below.lock_dir(dir)
    }
}

struct ThrottledFile {
    below: Box<dyn DiskFile>,
    device: Arc<Device>,
}

fn bytes(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

impl DiskFile for ThrottledFile {
    fn size(&self) -> io::Result<u64> {
        self.below.size()
    }

    fn alignment(&self) -> usize {
        self.below.alignment()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.below.read_at(buf, offset)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.device.write(bytes(parts));
        self.below.write_all_at(parts, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.below.set_size(size)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.below.allocate(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.device.sync();
        self.below.sync_data()
    }

    fn write_and_sync(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.device.write(bytes(parts));
        self.device.sync();
        self.below.write_and_sync(parts, offset)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.below.fd()
    }
}
