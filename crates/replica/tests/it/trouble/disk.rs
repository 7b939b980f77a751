//! A real disk with faults: it is full, or fails with snapshots.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use disk::{Access, DirEntry, DirLock, Disk, DiskFile, LockError, RealDisk};

/// The result of making snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Snapshots {
    Work = 0,
    Fail = 1,
    Panic = 2,
}

#[derive(Default)]
struct Mood {
    full: AtomicBool,
    /// `true` if there is no space for snapshots that are received.
    no_room_to_receive: AtomicBool,
    /// The number of snapshots for which there was no space, and bytes of them that were written
    /// all the same.
    refused: AtomicU64,
    received_bytes: AtomicU64,
    snapshots: AtomicU8,
    /// The number of snapshots that failed.
    failures: AtomicU64,
}

impl Mood {
    fn room(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

/// See the module's description. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct MoodyDisk {
    mood: Arc<Mood>,
}

impl MoodyDisk {
    /// Prevents files from growing, beyond the space that was set aside for them.
    pub(crate) fn fill(&self, full: bool) {
        self.mood.full.store(full, Ordering::SeqCst);
    }

    pub(crate) fn snapshots(&self, what: Snapshots) {
        self.mood.snapshots.store(what as u8, Ordering::SeqCst);
    }

    /// Refuses space for snapshots that are received.
    pub(crate) fn refuse_received(&self, refuse: bool) {
        let mood = &self.mood;
        mood.no_room_to_receive.store(refuse, Ordering::SeqCst);
    }

    /// Returns the number of snapshots for which there was no space, and the bytes that were
    /// written of any that were received.
    pub(crate) fn refused(&self) -> (u64, u64) {
        let mood = &self.mood;
        let refused = mood.refused.load(Ordering::SeqCst);
        (refused, mood.received_bytes.load(Ordering::SeqCst))
    }

    /// Returns the number of snapshots that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.mood.failures.load(Ordering::SeqCst)
    }

    fn file(&self, file: Box<dyn DiskFile>, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let size = AtomicU64::new(file.size()?);
        let mood = Arc::clone(&self.mood);
        let is_snapshot = path.ends_with("snapshot.new");
        let is_received = path.ends_with("snapshot.part");
        Ok(Box::new(MoodyFile {
            file,
            mood,
            size,
            is_snapshot,
            is_received,
        }))
    }
}

impl Disk for MoodyDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.file(RealDisk.create_new(path)?, path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.file(RealDisk.open(path, access)?, path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        RealDisk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // The space that is set aside for a member's own snapshot is not enough.
        let refuses = self.mood.no_room_to_receive.load(Ordering::SeqCst);
        if refuses && to.ends_with("snapshot.part") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        RealDisk.lock_dir(dir)
    }
}

struct MoodyFile {
    file: Box<dyn DiskFile>,
    mood: Arc<Mood>,
    size: AtomicU64,
    is_snapshot: bool,
    is_received: bool,
}

impl MoodyFile {
    /// Grows the file up to `end`, if that is more than it has.
    fn grow(&self, end: u64) -> io::Result<()> {
        if end > self.size.load(Ordering::SeqCst) {
            self.mood.room()?;
            self.size.store(end, Ordering::SeqCst);
        }
        Ok(())
    }

    fn snapshot(&self) -> io::Result<()> {
        let what = self.mood.snapshots.load(Ordering::SeqCst);
        if !self.is_snapshot || what == Snapshots::Work as u8 {
            return Ok(());
        }
        self.mood.failures.fetch_add(1, Ordering::SeqCst);
        assert!(
            what != Snapshots::Panic as u8,
            "a snapshot, as was asked for"
        );
        Err(io::Error::other("a snapshot, as was asked for"))
    }
}

impl DiskFile for MoodyFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.snapshot()?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if self.is_received {
            let received = &self.mood.received_bytes;
            received.fetch_add(bytes as u64, Ordering::SeqCst);
        }
        self.grow(offset + bytes as u64)?;
        self.file.write_all_at(parts, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.grow(size)?;
        self.file.set_size(size)?;
        self.size.store(size, Ordering::SeqCst);
        Ok(())
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        if self.is_received && self.mood.no_room_to_receive.load(Ordering::SeqCst) {
            self.mood.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.grow(size)?;
        self.file.allocate(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
