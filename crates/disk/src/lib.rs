//! Files as a parameter.
//!
//! Whatever Kumiki keeps lies behind [`Disk`]: named files in directories, written at offsets and
//! made durable when asked. All implementations answer to one conformance suite
//! ([`conformance`]):
//!
//! | disk | bytes lie in | what it is for |
//! |---|---|---|
//! | [`RealDisk`] | the file system | production |
//! | [`DirectDisk`] | the file system, past the page cache | production, on devices with fast syncs |
//! | [`ForgetfulDisk`] | another disk, once synced | loses all unsynced data when the process is killed |
//! | [`ThrottledDisk`] | another disk | is slow under one directory: for experiments with a slow device |
//! | [`FaultDisk`] | memory | fails at a chosen operation, loses power, tears what was not synced |
//!
//! Whoever reads many pieces at once, of files that do not change, has [`reads`].
//!
//! The contract, which callers may rely on and no more:
//!
//! 1. A write is seen by every later read, and survives a crash only after
//!    [`DiskFile::sync_data`] of its file has returned. Until then any part of it may survive, in
//!    pieces, in any order.
//! 2. A created, renamed or removed name survives a crash only after [`Disk::sync_dir`] of its
//!    directory has returned.
//! 3. Directories made by [`Disk::create_dir_all`] survive from its return on.
//! 4. After a failed sync nobody knows what was kept: the data may be gone, and a later sync that
//!    succeeds says nothing about it. Whoever gets such an error must not sync that file again
//!    and believe it.
//! 5. A failed write may have written any part of its bytes.
//! 6. Until a write is synced, zeros may survive behind it that nobody wrote, up to the next
//!    multiple of the file's alignment.
//!
//! This crate does not know what the bytes mean.

#![deny(unsafe_code)]

mod buffers;
pub mod conformance;
mod direct;
mod fault;
mod forgetful;
pub mod reads;
mod real;
mod ring;
mod throttled;
mod transfer;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

pub use direct::DirectDisk;
pub use fault::{Crash, Fault, FaultDisk, FaultKind, OpKind};
pub use forgetful::ForgetfulDisk;
pub use real::RealDisk;
pub use throttled::{Throttle, ThrottledDisk};

/// A place where files lie. See the [module](self) for what survives a crash.
pub trait Disk: Send + Sync {
    /// Makes `dir` and its missing parents, durably.
    ///
    /// # Errors
    /// As the operating system says; also when something other than a directory is in the way.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes an empty file for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, or as the operating system says.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// `NotFound`, or as the operating system says.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// The [`DiskFile::alignment`] of files that [`Disk::create_new`] makes.
    fn alignment(&self) -> usize {
        1
    }

    /// What lies in `dir`, sorted by name.
    ///
    /// # Errors
    /// `NotFound`, or as the operating system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// As the operating system says; see rule 4 of the [module](self).
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file, replacing what has the new name. Both lie in one directory.
    ///
    /// # Errors
    /// `InvalidInput` when the directories differ, or as the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Handles that are open stay usable.
    ///
    /// # Errors
    /// `NotFound`, or as the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Takes `dir`, which exists, for the sole use of the caller until the lock is dropped.
    ///
    /// # Errors
    /// [`LockError::InUse`] when another process has it, [`LockError::OpenHere`] when this one has.
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError>;
}

/// An open file. All methods may be called from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Its length in bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn size(&self) -> io::Result<u64>;

    /// Writes had better begin and end at multiples of this, a power of two: others may write
    /// synced bytes beside them again, which a power failure can then tear.
    fn alignment(&self) -> usize {
        1
    }

    /// Reads at `offset` into `buf` and says how many bytes there were: fewer than `buf` holds
    /// only at the end of the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `parts`, one behind the other, at `offset`.
    ///
    /// # Errors
    /// As the operating system says, `WriteZero` for a short write; any part may be written.
    fn write_all_at(&self, parts: &[io::IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes the file `size` bytes long, cutting it or filling it with zeros.
    ///
    /// # Errors
    /// As the operating system says.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Makes the file at least `size` bytes long, with space set aside where the file system can,
    /// so that later writes and syncs within it are cheap. The new part reads as zeros.
    ///
    /// # Errors
    /// As the operating system says. A file system that cannot set space aside is no error.
    fn allocate(&self, size: u64) -> io::Result<()>;

    /// Makes what was written durable, and the file's size as far as reading it back needs.
    ///
    /// # Errors
    /// As the operating system says; see rule 4 of the [module](self).
    fn sync_data(&self) -> io::Result<()>;

    /// As [`DiskFile::write_all_at`] and then [`DiskFile::sync_data`], in one go where the file
    /// has a way to. What was written before becomes durable, too.
    ///
    /// # Errors
    /// As of the two. Whichever failed, rule 4 of the [module](self) holds.
    fn write_and_sync(&self, parts: &[io::IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write_all_at(parts, offset)?;
        self.sync_data()
    }

    /// What the operating system knows it by, if the file is one of the operating system's: whoever
    /// reads it in another way begins with that, because its name may be gone.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl dyn DiskFile {
    /// Reads exactly `buf`'s length at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before, or as the operating system says.
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

/// How an existing file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading alone.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name, without its directory.
    pub name: OsString,
    /// Whether it is a directory, or a symbolic link to one.
    pub is_dir: bool,
}

/// Holds a directory until dropped.
pub trait DirLock: Send + Sync {}

/// Why a directory cannot be locked.
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
        /// Who has it, when the lock file says so.
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
        /// What the operating system said.
        source: io::Error,
    },
}

/// The directory of `path`; a bare name lies in the current one.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Both paths' common directory.
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
