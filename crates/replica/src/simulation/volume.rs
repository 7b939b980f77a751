//! A node's disk: it forgets data that was not synced, and may be full for a while.
//!
//! A full disk refuses writes that need more space than was freed since it is full. The space
//! within a file's size is already allocated.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::{
    Access, Crash, DirEntry, DirLock, Disk, DiskFile, Fault, FaultDisk, FaultKind, LockError,
    OpKind,
};

/// See the module's description. Clones are handles to the same disk.
#[derive(Clone, Default)]
pub(super) struct SimulatedDisk {
    disk: FaultDisk,
    full: Arc<AtomicBool>,
    /// Bytes that were freed since the disk is full, and are not used again.
    freed: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl SimulatedDisk {
    pub(super) fn syncs(&self) -> u64 {
        self.disk.count(OpKind::Sync)
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    pub(super) fn set_full(&self, full: bool) {
        self.freed.store(0, Ordering::SeqCst);
        self.full.store(full, Ordering::SeqCst);
    }

    /// Returns the number of operations that were refused because the disk was full.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    /// Makes the power fail at one of the next operations that change something.
    pub(super) fn fail_power(&self, after: u64) {
        self.disk.plan(Fault {
            on: OpKind::Change,
            nth: self.disk.count(OpKind::Change) + after,
            kind: FaultKind::PowerOff,
        });
    }

    /// Returns the disk as it is after a crash.
    pub(super) fn crash(&self, crash: Crash, seed: u64) -> SimulatedDisk {
        SimulatedDisk {
            disk: self.disk.crash(crash, seed),
            full: Arc::clone(&self.full),
            freed: Arc::clone(&self.freed),
            refused: Arc::clone(&self.refused),
        }
    }

    fn wrap(&self, file: io::Result<Box<dyn DiskFile>>) -> io::Result<Box<dyn DiskFile>> {
        let file = file?;
        Ok(Box::new(SimulatedDiskFile {
            file,
            volume: self.clone(),
        }))
    }

    fn take_room(&self, bytes: u64) -> io::Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        let taken = self
            .freed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |freed| {
                freed.checked_sub(bytes)
            });
        taken.map(drop).map_err(|_| {
            self.refused.fetch_add(1, Ordering::SeqCst);
            io::ErrorKind::StorageFull.into()
        })
    }
}

impl Disk for SimulatedDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.wrap(self.disk.create_new(path))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.wrap(self.disk.open(path, access))
    }

    fn alignment(&self) -> usize {
        self.disk.alignment()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let size = self.disk.open(path, Access::Read)?.size()?;
        self.disk.remove(path)?;
        self.freed.fetch_add(size, Ordering::SeqCst);
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.disk.lock_dir(dir)
    }
}

struct SimulatedDiskFile {
    file: Box<dyn DiskFile>,
    volume: SimulatedDisk,
}

impl SimulatedDiskFile {
    fn grow(&self, size: u64) -> io::Result<()> {
        let more = size.saturating_sub(self.file.size()?);
        if more > 0 {
            self.volume.take_room(more)?;
        }
        Ok(())
    }
}

impl DiskFile for SimulatedDiskFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.grow(offset + length as u64)?;
        self.file.write_all_at(parts, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.grow(size)?;
        let less = self.file.size()?.saturating_sub(size);
        self.file.set_size(size)?;
        self.volume.freed.fetch_add(less, Ordering::SeqCst);
        Ok(())
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.grow(size)?;
        self.file.allocate(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
