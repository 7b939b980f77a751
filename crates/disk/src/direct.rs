//! Files that are written past the page cache: direct I/O through io_uring.
//!
//! [`DirectDisk::create_new`] gives a file opened with `O_DIRECT`. A write is copied into a buffer
//! that the kernel has mapped, and goes to the device from there; a sync after it is chained to it,
//! so that both take one system call. Everything else is as with [`RealDisk`]: existing files are
//! opened the ordinary way.
//!
//! The device takes only whole sectors. Where a write begins or ends elsewhere, the neighbouring
//! bytes in its first and last [`ALIGNMENT`] bytes are read and written again; and where the file
//! ends there, it is cut to its length after the write. Until then other threads may see zeros
//! behind its end, and a crash may leave them there.
//!
//! Thread-safety contract: aligned writes and reads share `edges`; an operation that touches
//! sectors that are not its own (unaligned writes) or the file's size holds it exclusively.
//!
//! Invariants:
//! 1. Two writes never work on one sector at once.
//! 2. A file has one handle that writes directly: the one that created it.
//! 3. A ring that goes back to the pool has nothing under way.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::buffers::{ALIGNMENT, AlignedBuffer};
use crate::real::{PRIVATE_FILE, RealDisk, RealFile};
use crate::write_ring::WriteRing;
use crate::{Access, DirEntry, DirLock, Disk, DiskFile, LockError, direct_write};

/// The number of rings that are made before threads share those of others.
const RINGS: usize = 16;
/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;

/// The operating system's files, written past the page cache.
#[derive(Clone, Default)]
pub struct DirectDisk {
    rings: Arc<RingPool>,
}

impl DirectDisk {
    /// Makes sure that the kernel allows io_uring to this process.
    ///
    /// # Errors
    /// Returns an error if it does not. The error says what to do.
    pub fn new() -> io::Result<DirectDisk> {
        let disk = DirectDisk::default();
        disk.rings.with(|_| Ok(()))?;
        Ok(disk)
    }
}

impl Disk for DirectDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = create(path)?;
        Ok(Box::new(DirectFile {
            file: RealFile(file),
            edges: RwLock::new(()),
            rings: Arc::clone(&self.rings),
        }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        RealDisk.open(path, access)
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
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

/// Creates a file for direct I/O. Returns an error that says why if direct I/O is not possible.
fn create(path: &Path) -> io::Result<File> {
    let open = |flags: OFlags| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(PRIVATE_FILE)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
    };
    let file = match open(OFlags::DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(no_direct_io()),
        other => other,
    };
    let refused = match &file {
        Ok(file) => !takes_our_sectors(file),
        Err(error) => error.kind() == io::ErrorKind::Unsupported,
    };
    if !refused {
        return file;
    }
    // A file system that refuses the flag may have created the file nevertheless.
    let _ = std::fs::remove_file(path);
    Err(no_direct_io())
}

fn no_direct_io() -> io::Error {
    let why = "the file system has no direct I/O in sectors of 4 KiB; use --log-device write";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Returns `true` if the file system takes direct writes at multiples of [`ALIGNMENT`]. If it does
/// not report that, the first write will show it.
fn takes_our_sectors(file: &File) -> bool {
    let wanted = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted) {
        Ok(about) if about.stx_mask & libc::STATX_DIOALIGN != 0 => {
            let sector = about.stx_dio_offset_align.max(about.stx_dio_mem_align) as usize;
            sector > 0 && ALIGNMENT.is_multiple_of(sector)
        }
        _ => true,
    }
}

/// Rings that no thread uses at the moment.
#[derive(Default)]
struct RingPool {
    idle: Mutex<IdleRings>,
}

#[derive(Default)]
struct IdleRings {
    rings: Vec<(ThreadId, WriteRing)>,
    /// The number of rings that exist, those in use included.
    made: usize,
}

impl RingPool {
    /// Lends a ring: the one that this thread has made, if it is idle, because its memory is near.
    fn with<T>(&self, action: impl FnOnce(&mut WriteRing) -> io::Result<T>) -> io::Result<T> {
        let me = std::thread::current().id();
        let (owner, mut ring) = match self.take(me) {
            Some(ring) => ring,
            None => {
                let ring = WriteRing::new().inspect_err(|_| self.idle.lock().made -= 1);
                (me, ring.map_err(|error| no_ring(&error))?)
            }
        };
        let result = action(&mut ring);
        let mut idle = self.idle.lock();
        if ring.is_idle() {
            idle.rings.push((owner, ring));
        } else {
            idle.made -= 1;
        }
        result
    }

    /// Takes an idle ring. If it returns `None`, the caller makes one, which is counted already.
    fn take(&self, me: ThreadId) -> Option<(ThreadId, WriteRing)> {
        let mut idle = self.idle.lock();
        let own = idle.rings.iter().position(|(owner, _)| *owner == me);
        if let Some(own) = own {
            return Some(idle.rings.swap_remove(own));
        }
        if idle.made >= RINGS
            && let Some(other) = idle.rings.pop()
        {
            return Some(other);
        }
        idle.made += 1;
        None
    }
}

fn no_ring(error: &io::Error) -> io::Error {
    let why = format!("the kernel refuses io_uring ({error}); use --log-device write");
    io::Error::new(error.kind(), why)
}

struct DirectFile {
    file: RealFile,
    edges: RwLock<()>,
    rings: Arc<RingPool>,
}

impl DirectFile {
    fn write(&self, parts: &[IoSlice<'_>], offset: u64, sync: bool) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return if sync { self.sync_data() } else { Ok(()) };
        }
        let end = offset + len as u64;
        if is_aligned(offset) && is_aligned(end) {
            let _shared = self.edges.read();
            self.transfer(parts, offset, sync)
        } else {
            let _alone = self.edges.write();
            self.write_with_edges(parts, offset, end, sync)
        }
    }

    fn transfer(&self, parts: &[IoSlice<'_>], offset: u64, sync: bool) -> io::Result<()> {
        let file = self.file.0.as_fd();
        self.rings
            .with(|ring| direct_write::write(ring, file, parts, offset, sync))
    }

    /// Writes whole sectors: `parts`, from `offset` to `end`, and the neighbouring bytes.
    fn write_with_edges(
        &self,
        parts: &[IoSlice<'_>],
        offset: u64,
        end: u64,
        sync: bool,
    ) -> io::Result<()> {
        let size = self.file.size()?;
        let (first, behind) = (floor(offset), end.next_multiple_of(ALIGNMENT as u64));
        let mut sector = AlignedBuffer::new(ALIGNMENT);
        self.read_sector(&mut sector, first)?;
        let head = sector[..(offset - first) as usize].to_vec();
        if behind > end && floor(end) > first {
            self.read_sector(&mut sector, floor(end))?;
        }
        let tail = &sector[ALIGNMENT - (behind - end) as usize..];
        let mut whole = vec![IoSlice::new(&head)];
        whole.extend(parts.iter().map(|part| IoSlice::new(part)));
        whole.push(IoSlice::new(tail));
        if behind <= size {
            return self.transfer(&whole, first, sync);
        }
        let written = self.transfer(&whole, first, false);
        // Also after a failure: the file is not longer than the write was to make it.
        let cut = self.file.set_size(size.max(end));
        written.and(cut)?;
        if sync { self.file.sync_data() } else { Ok(()) }
    }

    /// Reads a sector; behind the file's end there are zeros.
    fn read_sector(&self, sector: &mut AlignedBuffer, offset: u64) -> io::Result<()> {
        let n = self.read_sectors(sector, offset)?;
        sector[n..].fill(0);
        Ok(())
    }

    /// Reads whole sectors up to the file's end. Returns the number of bytes.
    fn read_sectors(&self, buf: &mut AlignedBuffer, offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&self.file.0, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !is_aligned(done as u64) {
                // Only the file's end lies within a sector.
                break;
            }
        }
        Ok(done)
    }
}

fn is_aligned(at: u64) -> bool {
    at.is_multiple_of(ALIGNMENT as u64)
}

/// Returns the offset of the sector of `at`.
fn floor(at: u64) -> u64 {
    at - at % ALIGNMENT as u64
}

impl DiskFile for DirectFile {
    fn size(&self) -> io::Result<u64> {
        let _shared = self.edges.read();
        self.file.size()
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let _shared = self.edges.read();
        let end = offset + buf.len() as u64;
        let sectors = end.next_multiple_of(ALIGNMENT as u64) - floor(offset);
        let mut piece = AlignedBuffer::new((sectors as usize).clamp(ALIGNMENT, PIECE));
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let skip = (at - floor(at)) as usize;
            let n = self.read_sectors(&mut piece, floor(at))?;
            let got = n.saturating_sub(skip).min(buf.len() - done);
            buf[done..done + got].copy_from_slice(&piece[skip..skip + got]);
            done += got;
            if n < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write(parts, offset, false)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let _alone = self.edges.write();
        self.file.set_size(size)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let _alone = self.edges.write();
        self.file.allocate(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_and_sync(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write(parts, offset, true)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }
}
