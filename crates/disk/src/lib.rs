//! Files as a parameter.
//!
//! All files of Kumiki lie behind [`Disk`]: named files in directories, written at offsets and made
//! durable when asked. All implementations pass one conformance suite ([`conformance`]):
//!
//! | disk | bytes lie in | what it is for |
//! |---|---|---|
//! | [`RealDisk`] | the file system | production |
//! | [`DirectDisk`] | the file system, past the page cache | production, on devices with fast syncs |
//! | [`MappedDisk`] | the file system, through mapped memory | production, on persistent memory |
//! | [`ForgetfulDisk`] | another disk, once synced | loses all unsynced data when the process is killed |
//! | [`ThrottledDisk`] | another disk | is slow under one directory: for experiments with a slow device |
//! | [`FaultDisk`] | memory | fails at a chosen operation, loses power, tears what was not synced |
//!
//! Code that reads many pieces at once, of files that do not change, uses [`reads`].
//!
//! The contract, on which callers may rely, and on nothing more:
//!
//! 1. A write is seen by every later read, and survives a crash only after
//!    [`DiskFile::sync_data`] of its file has returned. Until then any part of it may survive, in
//!    pieces, in any order.
//! 2. A created, renamed or removed name survives a crash only after [`Disk::sync_dir`] of its
//!    directory has returned.
//! 3. Directories made by [`Disk::create_dir_all`] survive from its return on.
//! 4. After a failed sync it is not known what was kept: the data may be gone, and a later sync
//!    that succeeds says nothing about it. A caller that gets such an error must not sync that file
//!    again and trust the result.
//! 5. A failed write may have written any part of its bytes.
//! 6. Until a write is synced, zeros that no caller wrote may survive behind it, up to the next
//!    multiple of the file's alignment.
//!
//! This crate does not know what the bytes mean.

#![deny(unsafe_code)]

mod buffers;
pub mod conformance;
mod direct;
mod direct_write;
mod fault;
mod forgetful;
mod mapped;
pub mod reads;
mod real;
mod throttled;
mod write_ring;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

pub use direct::DirectDisk;
pub use fault::{Crash, Fault, FaultDisk, FaultKind, OpKind};
pub use forgetful::ForgetfulDisk;
pub use mapped::{MappedDisk, MappedMedium};
pub use real::RealDisk;
pub use throttled::{Throttle, ThrottledDisk};

/// A storage for files. See the [module](self) for the guarantees after a crash.
pub trait Disk: Send + Sync {
    /// Creates `dir` and its missing parents, durably.
    ///
    /// # Errors
    /// Returns the operating system's error, also when a file that is no directory is in the way.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Creates an empty file for reading and writing.
    ///
    /// # Errors
    /// Returns `AlreadyExists`, or the operating system's error.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// Returns `NotFound`, or the operating system's error.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Returns the [`DiskFile::alignment`] of files that [`Disk::create_new`] creates.
    fn alignment(&self) -> usize {
        1
    }

    /// Returns the entries of `dir`, sorted by name.
    ///
    /// # Errors
    /// Returns `NotFound`, or the operating system's error.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// Returns the operating system's error; see rule 4 of the [module](self).
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file, replacing any file that has the new name. Both lie in one directory.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the directories differ, or the operating system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Handles that are open stay usable.
    ///
    /// # Errors
    /// Returns `NotFound`, or the operating system's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Locks `dir`, which exists, for the sole use of the caller until the lock is dropped.
    ///
    /// # Errors
    /// Returns [`LockError::InUse`] if another process has it, [`LockError::OpenHere`] if this one
    /// has.
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError>;
}

/// An open file. All methods may be called from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// Returns the operating system's error.
    fn size(&self) -> io::Result<u64>;

    /// Returns a power of two at whose multiples writes should begin and end: other writes may
    /// write neighbouring synced bytes again, which a power failure can then tear.
    fn alignment(&self) -> usize {
        1
    }

    /// Reads at `offset` into `buf` and returns the number of bytes: fewer than `buf` holds only at
    /// the end of the file.
    ///
    /// # Errors
    /// Returns the operating system's error.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `parts`, one behind the other, at `offset`.
    ///
    /// # Errors
    /// Returns the operating system's error, or `WriteZero` for a short write; any part may be
    /// written.
    fn write_all_at(&self, parts: &[io::IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes the file `size` bytes long, cutting it or filling it with zeros.
    ///
    /// # Errors
    /// Returns the operating system's error.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Makes the file at least `size` bytes long, with space set aside where the file system can,
    /// so that later writes and syncs within it are cheap. The new part reads as zeros.
    ///
    /// # Errors
    /// Returns the operating system's error. A file system that cannot set space aside is no error.
    fn allocate(&self, size: u64) -> io::Result<()>;

    /// Makes all writes durable, and the file's size as far as reading them back needs it.
    ///
    /// # Errors
    /// Returns the operating system's error; see rule 4 of the [module](self).
    fn sync_data(&self) -> io::Result<()>;

    /// Performs [`DiskFile::write_all_at`] and then [`DiskFile::sync_data`], in one step where the
    /// file can. Earlier writes become durable, too.
    ///
    /// # Errors
    /// Returns the errors of the two. Whichever failed, rule 4 of the [module](self) holds.
    fn write_and_sync(&self, parts: &[io::IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write_all_at(parts, offset)?;
        self.sync_data()
    }

    /// Returns the file descriptor, if the file is one of the operating system's. Code that reads
    /// the file in another way begins with it, because the file's name may be gone.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl dyn DiskFile {
    /// Reads exactly `buf`'s length at `offset`.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the file ends before, or the operating system's error.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(buf, offset)? == buf.len() {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the file ends too early",
        ))
    }
}

/// The access with which an existing file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Only reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name, without its directory.
    pub name: OsString,
    /// `true` for a directory, or a symbolic link to one.
    pub is_dir: bool,
}

/// A lock of a directory, held until it is dropped.
pub trait DirLock: Send + Sync {}

/// The reason why a directory cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "directory {} is used by another process{}; stop it, or choose another directory",
        dir.display(),
        pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process that has it, if the lock file says so.
        pid: Option<u32>,
    },
    /// This process has it.
    #[error(
        "directory {} is open in this process already; use what has it open, or choose another \
         directory",
        dir.display()
    )]
    OpenHere {
        /// The directory.
        dir: PathBuf,
    },
    /// The lock file cannot be opened or locked.
    #[error("cannot lock directory {}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Returns the directory of `path`; a bare name lies in the current one.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Returns the common directory of both paths.
fn common_parent<'a>(from: &'a Path, to: &Path) -> io::Result<&'a Path> {
    let dir = parent(from);
    if dir == parent(to) {
        return Ok(dir);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "a rename stays within its directory",
    ))
}
