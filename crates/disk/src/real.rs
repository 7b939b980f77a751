//! The file system.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::{Access, DirEntry, DirLock, Disk, DiskFile, LockError, common_parent, parent};

/// The most parts that one vectored write may have (Linux's `IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// Only the owner has access to directories and files that are created: they hold clients' data.
pub(crate) const PRIVATE_DIR: u32 = 0o700;
pub(crate) const PRIVATE_FILE: u32 = 0o600;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let above = parent(dir);
        if dir.is_dir() {
            // The process that created it may have died before making it durable. A directory above
            // that cannot be opened is not ours and was not created by us.
            let _ = self.sync_dir(above);
            return Ok(());
        }
        if above != dir {
            self.create_dir_all(above)?;
        }
        match DirBuilder::new().mode(PRIVATE_DIR).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            other => other?,
        }
        self.sync_dir(above)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile::create(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let write = access == Access::ReadWrite;
        Ok(Box::new(RealFile(
            OpenOptions::new().read(true).write(write).open(path)?,
        )))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // This follows symbolic links: a log directory may lie on a device of its own. A
            // dangling link is listed as it is.
            let is_dir = fs::metadata(entry.path()).is_ok_and(|data| data.is_dir());
            entries.push(DirEntry {
                name: entry.file_name(),
                is_dir,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        common_parent(from, to)?;
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        let io_error = |source| LockError::Io {
            dir: dir.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_FILE)
            .open(dir.join("LOCK"))
            .map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                if is_open_elsewhere_here(&file) {
                    let dir = dir.to_owned();
                    return Err(LockError::OpenHere { dir });
                }
                let mut text = String::new();
                // The number is only information; a lock file that cannot be read still locks.
                let _ = file.read_to_string(&mut text);
                return Err(LockError::InUse {
                    dir: dir.to_owned(),
                    pid: text.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(io_error(error)),
        }
        file.set_len(0).map_err(io_error)?;
        file.rewind().map_err(io_error)?;
        writeln!(file, "{}", std::process::id()).map_err(io_error)?;
        Ok(Box::new(RealLock { file }))
    }
}

/// Returns `true` if this process has the file open by another descriptor, too. The number in the
/// lock file does not say so: processes of two containers can have the same one.
fn is_open_elsewhere_here(file: &File) -> bool {
    let identity = |found: &fs::Metadata| (found.dev(), found.ino());
    let Ok(wanted) = file.metadata().map(|found| identity(&found)) else {
        return false;
    };
    let open = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let same = open.filter(|entry| {
        entry.file_name().to_str() != Some(&file.as_raw_fd().to_string())
            && fs::metadata(entry.path()).is_ok_and(|found| identity(&found) == wanted)
    });
    same.count() > 0
}

/// The kernel drops the lock when the file is closed, also when the process dies. The file itself
/// stays: removing it would race with a process that has opened it to lock it.
struct RealLock {
    file: File,
}

impl DirLock for RealLock {}

impl Drop for RealLock {
    /// Unlocks the file. A program that another thread is just starting has the file open, too, until
    /// it runs; only closing the file would leave the lock to that program for a moment.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// A file of the file system, read and written the ordinary way.
pub(crate) struct RealFile(pub(crate) File);

impl RealFile {
    /// Creates an empty file.
    pub(crate) fn create(path: &Path) -> io::Result<RealFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(PRIVATE_FILE)
            .open(path)?;
        Ok(RealFile(file))
    }

    /// Sets space aside from `from` up to `to`, and makes the file end there at least.
    pub(crate) fn set_aside(&self, from: u64, to: u64) -> Result<(), Errno> {
        let set_aside = || rustix::fs::fallocate(&self.0, FallocateFlags::empty(), from, to - from);
        rustix::io::retry_on_intr(set_aside)
    }
}

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        for some in parts.chunks(PARTS_MAX) {
            let total: usize = some.iter().map(|part| part.len()).sum();
            let mut written = match rustix::io::pwritev(&self.0, some, offset) {
                Err(Errno::INTR) => 0,
                other => other?,
            };
            // A short write is rare (a signal, a full disk): the rest goes part by part, and the
            // next call returns the error.
            let mut skip = written;
            for part in some {
                if skip >= part.len() {
                    skip -= part.len();
                    continue;
                }
                let rest = &part[skip..];
                self.0.write_all_at(rest, offset + written as u64)?;
                written += rest.len();
                skip = 0;
            }
            debug_assert_eq!(written, total, "every part was written");
            offset += written as u64;
        }
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let now = self.size()?;
        if size <= now {
            return Ok(());
        }
        match self.set_aside(now, size) {
            Err(Errno::OPNOTSUPP) => self.0.set_len(size),
            other => Ok(other?),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_the_owner_s_alone() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        RealDisk.create_dir_all(&data.join("log0")).unwrap();
        drop(RealDisk.create_new(&data.join("log0/file")).unwrap());
        drop(RealDisk.lock_dir(&data).unwrap());
        for made in ["", "log0", "log0/file", "LOCK"] {
            let mode = fs::metadata(data.join(made)).unwrap().mode();
            assert_eq!(mode & 0o077, 0, "{made}: {mode:o}");
        }
    }

    /// The file is open as in a program that another thread is just starting.
    #[test]
    fn a_released_lock_is_free_while_another_process_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("LOCK")).unwrap();
        file.try_lock().unwrap();
        let copy = file.try_clone().unwrap();
        drop(RealLock { file });
        assert!(RealDisk.lock_dir(dir.path()).is_ok());
        drop(copy);
    }
}
