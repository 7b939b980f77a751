//! Files that are mapped: a write is a copy to the file's memory, as libpmem does it (paper 2,
//! section 5.2).
//!
//! Space that [`DiskFile::allocate`] has set aside in a file of [`MappedDisk::create_new`] is
//! mapped, and writes within it are copies. What makes such a write durable depends on the file
//! system, see [`MappedMedium`]. Writes beyond that space, and all else, are as with [`RealDisk`];
//! existing files are opened the ordinary way.
//!
//! Invariants:
//! 1. Copies go only to bytes before `reserved`: space that the file system has set aside for this
//!    file and that has not been cut off since. A full disk is an error of [`DiskFile::allocate`],
//!    or of an ordinary write, and never a signal.
//! 2. A write returns behind a store fence: a read through any handle sees it, and in persistent
//!    memory it is durable.
//! 3. While `unsynced` is `true`, the file system may hold data or metadata of the file that a
//!    power failure would take: a sync calls the kernel, on every medium.
//!
//! Outside of the contract: another program cuts the file, or the device fails to read a page that
//! the kernel has taken out of memory. The process ends by SIGBUS then, as in a crash.

mod cache_line;
mod file_mapping;
mod persistent_copy;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::real::{RealDisk, RealFile};
use crate::{Access, DirEntry, DirLock, Disk, DiskFile, LockError, parent};
use file_mapping::FileMapping;

/// Bytes of the zeros that are written at once.
const ZEROS: usize = 1 << 20;

/// What holds a mapped file, and what therefore makes a write durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappedMedium {
    /// Persistent memory, through a file system with DAX: a copy is durable, a sync calls nothing.
    PersistentMemory,
    /// A file system in memory (tmpfs): a power failure takes everything, a sync calls nothing.
    VolatileMemory,
    /// A file system on a device, with a page cache: a sync is `fdatasync` after the copy.
    PageCache,
    /// A file system that may need space when a mapped page is written, or none that is known:
    /// nothing is mapped, and files are written and synced as by [`RealDisk`].
    Unmapped,
}

/// Called with the medium of a file and the file's directory.
type Observer = dyn Fn(MappedMedium, &Path) + Send + Sync;

/// The operating system's files, written through memory.
#[derive(Clone)]
pub struct MappedDisk {
    media: Arc<ObservedMedia>,
}

/// The media that were found, each of which is reported once.
struct ObservedMedia {
    found: Mutex<Vec<MappedMedium>>,
    observer: Box<Observer>,
}

impl Default for MappedDisk {
    fn default() -> MappedDisk {
        MappedDisk::with_observer(|_, _| {})
    }
}

impl MappedDisk {
    /// Calls `observer` when the first space on a medium is set aside, with the medium and the
    /// directory of the file. It is for a message to users: what is durable depends on the medium.
    #[must_use]
    pub fn with_observer(
        observer: impl Fn(MappedMedium, &Path) + Send + Sync + 'static,
    ) -> MappedDisk {
        let media = ObservedMedia {
            found: Mutex::new(Vec::new()),
            observer: Box::new(observer),
        };
        MappedDisk {
            media: Arc::new(media),
        }
    }
}

impl ObservedMedia {
    fn report(&self, medium: MappedMedium, dir: &Path) {
        let mut found = self.found.lock();
        if !found.contains(&medium) {
            found.push(medium);
            (self.observer)(medium, dir);
        }
    }
}

impl Disk for MappedDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(MappedFile {
            file: RealFile::create(path)?,
            dir: parent(path).to_owned(),
            media: Arc::clone(&self.media),
            state: Mutex::new(MappedState {
                medium: None,
                mapping: None,
                reserved: 0,
                unsynced: true,
            }),
        }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        RealDisk.open(path, access)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        RealDisk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        RealDisk.lock_dir(dir)
    }
}

struct MappedFile {
    file: RealFile,
    dir: PathBuf,
    media: Arc<ObservedMedia>,
    state: Mutex<MappedState>,
}

struct MappedState {
    /// `None` until space is set aside for the first time.
    medium: Option<MappedMedium>,
    /// Covers `reserved` at least; `None` before `medium` is known, and if it is `Unmapped`.
    mapping: Option<FileMapping>,
    /// See invariant 1.
    reserved: u64,
    /// See invariant 3.
    unsynced: bool,
}

impl MappedState {
    /// Finds the file's medium, and maps the file unless that is `Unmapped`.
    fn map(&mut self, file: &File, size: u64) -> io::Result<MappedMedium> {
        if let Some(persistent) = FileMapping::persistent(file, size)? {
            self.mapping = Some(persistent);
            return Ok(MappedMedium::PersistentMemory);
        }
        let medium = medium(file)?;
        if medium != MappedMedium::Unmapped {
            self.mapping = Some(FileMapping::new(file, size)?);
        }
        Ok(medium)
    }

    /// Sets space aside up to `size`, and maps it.
    fn reserve(&mut self, file: &RealFile, size: u64) -> io::Result<()> {
        let Some(mapping) = &mut self.mapping else {
            return file.allocate(size);
        };
        let now = file.size()?;
        // Also between `reserved` and the file's end, where there may be holes.
        match file.set_aside(self.reserved, size) {
            Err(Errno::OPNOTSUPP) => return file.allocate(size),
            result => result?,
        }
        mapping.grow(size)?;
        match self.medium {
            Some(MappedMedium::PersistentMemory) => {
                // Each first store to a page would wait until the file system has recorded that the
                // page was written. An ordinary write records that for many pages at once.
                write_zeros(file, now, size)?;
                mapping.populate(self.reserved, size)?;
            }
            Some(MappedMedium::VolatileMemory) => mapping.populate(self.reserved, size)?,
            // Its pages are to be made writable before each write, see there.
            _ => {}
        }
        self.reserved = size;
        Ok(())
    }
}

/// Writes zeros from `from` up to `to`.
fn write_zeros(file: &RealFile, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS.min(to.saturating_sub(from) as usize)];
    let mut at = from;
    while at < to {
        let piece = &zeros[..zeros.len().min((to - at) as usize)];
        file.write_all_at(&[IoSlice::new(piece)], at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Returns the medium of a file that is not in persistent memory. File systems that write a page to
/// a new place each time are `Unmapped`: space that is set aside is not enough for them.
fn medium(file: &File) -> io::Result<MappedMedium> {
    // The type of the number differs between processors; all of these are positive 32-bit numbers.
    let kind = rustix::fs::fstatfs(file)?.f_type as u32;
    let is = |known: &[u32]| known.contains(&kind);
    if is(&[libc::TMPFS_MAGIC as u32]) {
        Ok(MappedMedium::VolatileMemory)
    } else if is(&[libc::EXT4_SUPER_MAGIC as u32, libc::XFS_SUPER_MAGIC as u32]) {
        Ok(MappedMedium::PageCache)
    } else {
        Ok(MappedMedium::Unmapped)
    }
}

impl DiskFile for MappedFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes == 0 {
            return Ok(());
        }
        let end = offset.saturating_add(bytes as u64);
        let mut state = self.state.lock();
        if end > state.reserved {
            state.unsynced = true;
            return self.file.write_all_at(parts, offset);
        }
        let medium = state.medium;
        let mapping = state.mapping.as_mut().expect("reserved space is mapped");
        if medium == Some(MappedMedium::PageCache) {
            // After each sync the file system wants to hear of the next store to a page, and may
            // refuse it. Here that is an error, in the copy it would be a signal.
            mapping.populate(offset, end)?;
        }
        mapping.write(parts, offset);
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.reserved = state.reserved.min(size);
        state.unsynced = true;
        self.file.set_size(size)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if size <= state.reserved {
            return Ok(());
        }
        state.unsynced = true;
        if state.medium.is_none() {
            let medium = state.map(&self.file.0, size)?;
            state.medium = Some(medium);
            self.media.report(medium, &self.dir);
        }
        state.reserve(&self.file, size)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        match state.medium {
            Some(MappedMedium::PersistentMemory | MappedMedium::VolatileMemory) => {
                if state.unsynced {
                    self.file.sync_data()?;
                    state.unsynced = false;
                }
                Ok(())
            }
            Some(MappedMedium::PageCache | MappedMedium::Unmapped) | None => {
                drop(state);
                self.file.sync_data()
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }
}
