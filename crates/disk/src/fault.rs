//! A disk in memory that fails on purpose, and in the same way each time.
//!
//! For each file it keeps:
//!
//! | part | meaning |
//! |---|---|
//! | `now` | the bytes as every reader sees them |
//! | `durable` | the bytes that survive any crash |
//! | `pending` | changes since the last sync: the next sync makes them durable |
//! | `lost` | changes whose sync failed: no sync makes them durable, a crash may keep them |
//!
//! For names it has `now`, `durable` and `pending` of each directory likewise; of unsynced changes
//! of names a crash keeps the first few in their order, as a journaling file system does.

mod medium;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use rustix::io::Errno;

pub use medium::Crash;
use medium::{DirectoryChange, FileChange, Inode};

use crate::{Access, DirEntry, DirLock, Disk, DiskFile, LockError, common_parent, parent};

/// Classes of operations that are counted, and can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// Every change, syncs included.
    Change,
    /// Writes into files, and changes of their size.
    Write,
    /// Syncs of files and directories.
    Sync,
    /// Opening, listing and reading.
    Read,
    /// Operations that need a file descriptor of their own: creating and opening files, listing,
    /// locking and syncing directories.
    Open,
}

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The device reports an error. A write has written half of its bytes.
    Io,
    /// There is no space. A write has written half of its bytes. (A sync can fail so, too.)
    NoSpace,
    /// A write writes half of its bytes and returns that number; any other operation reports an
    /// error.
    ShortWrite,
    /// The process has no free file descriptor: an operation of [`OpKind::Open`] has no effect.
    NoDescriptor,
    /// The power fails: this and all later operations fail. A write is under way.
    PowerOff,
}

/// One planned failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The operations that are counted.
    pub on: OpKind,
    /// The number of the operation that fails; the first is 0.
    pub nth: u64,
    /// The kind of the failure.
    pub kind: FaultKind,
}

#[derive(Clone, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: BTreeMap<PathBuf, Vec<DirectoryChange>>,
    dirs: BTreeSet<PathBuf>,
    /// Directories whose sync failed: no later sync of them has an effect while this process lives.
    /// (A file system that has lost a change of names continues only after a repair.)
    broken_dirs: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
    faults: Vec<Fault>,
    counts: [u64; 5],
    power_off: bool,
    /// The alignment of files that are created; 0 stands for 1.
    alignment: usize,
}

impl State {
    /// Counts one operation in its classes. Returns the failure that is due.
    fn count(&mut self, kinds: &[OpKind]) -> Option<FaultKind> {
        let mut fault = None;
        for &kind in kinds {
            let nth = self.counts[kind as usize];
            self.counts[kind as usize] += 1;
            let planned = self
                .faults
                .iter()
                .find(|fault| fault.on == kind && fault.nth == nth);
            fault = fault.or(planned.map(|fault| fault.kind));
        }
        if self.power_off {
            return Some(FaultKind::PowerOff);
        }
        self.power_off = fault == Some(FaultKind::PowerOff);
        fault
    }

    /// Counts as [`State::count`], for operations that have no effect at all when they fail.
    fn begin(&mut self, kinds: &[OpKind]) -> io::Result<()> {
        self.count(kinds).map_or(Ok(()), |kind| Err(error(kind)))
    }

    fn change_name(&mut self, dir: &Path, change: DirectoryChange) {
        change.apply(&mut self.names);
        self.pending_names
            .entry(dir.to_owned())
            .or_default()
            .push(change);
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn has_dir(&self, dir: &Path) -> io::Result<()> {
        let known = dir == Path::new(".") || dir == Path::new("/") || self.dirs.contains(dir);
        if known {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

fn error(kind: FaultKind) -> io::Error {
    match kind {
        FaultKind::Io => Errno::IO.into(),
        FaultKind::NoSpace => Errno::NOSPC.into(),
        FaultKind::ShortWrite => io::ErrorKind::WriteZero.into(),
        FaultKind::NoDescriptor => Errno::MFILE.into(),
        FaultKind::PowerOff => io::Error::other("the power is off"),
    }
}

/// A disk in memory with planned faults. Clones are handles to the same disk.
#[derive(Clone, Default)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

impl FaultDisk {
    /// Returns an empty disk on which nothing fails.
    #[must_use]
    pub fn new() -> FaultDisk {
        FaultDisk::default()
    }

    /// Returns an empty disk whose files, when created, are written in units of `alignment` bytes.
    /// A write that begins or ends within a unit writes the rest of the unit again, even if that is
    /// synced, and a crash can tear it.
    ///
    /// # Panics
    /// Panics if `alignment` is no power of two.
    #[must_use]
    pub fn with_alignment(alignment: usize) -> FaultDisk {
        assert!(alignment.is_power_of_two(), "an alignment of {alignment}");
        let disk = FaultDisk::default();
        disk.state.lock().alignment = alignment;
        disk
    }

    /// Plans a failure, in addition to those planned before.
    pub fn plan(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Returns the number of operations of this class so far.
    #[must_use]
    pub fn count(&self, kind: OpKind) -> u64 {
        self.state.lock().counts[kind as usize]
    }

    /// Returns the disk as it is found after a crash: counters at zero, no failure planned, no lock
    /// held. This disk stays as it is. The same `seed` keeps the same part.
    #[must_use]
    pub fn crash(&self, crash: Crash, seed: u64) -> FaultDisk {
        let mut rng = Rng::with_seed(seed);
        let state = self.state.lock();
        let mut after = State {
            dirs: state.dirs.clone(),
            alignment: state.alignment,
            ..State::default()
        };
        if crash == Crash::KillProcess {
            after.inodes.clone_from(&state.inodes);
            after.names.clone_from(&state.names);
            after.durable_names.clone_from(&state.durable_names);
            after.pending_names.clone_from(&state.pending_names);
        } else {
            after.inodes = state
                .inodes
                .iter()
                .map(|file| file.after_power_loss(crash, &mut rng))
                .collect();
            after.names.clone_from(&state.durable_names);
            for changes in state.pending_names.values() {
                let kept = if crash == Crash::DropAll {
                    0
                } else {
                    rng.usize(0..=changes.len())
                };
                changes[..kept]
                    .iter()
                    .for_each(|change| change.apply(&mut after.names));
            }
            after.durable_names.clone_from(&after.names);
        }
        FaultDisk {
            state: Arc::new(Mutex::new(after)),
        }
    }

    /// Damages a file directly on the medium, durably.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such file.
    pub fn damage(&self, path: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.find(path)?;
        let file = &mut state.inodes[inode];
        damage(&mut file.now);
        *file = Inode {
            now: file.now.clone(),
            durable: file.now.clone(),
            ..Inode::default()
        };
        Ok(())
    }

    /// Returns the names of all files.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.state.lock().names.keys().cloned().collect()
    }

    fn handle(&self, inode: usize, access: Access, alignment: usize) -> Box<dyn DiskFile> {
        Box::new(FaultFile {
            state: Arc::clone(&self.state),
            inode,
            access,
            alignment,
        })
    }
}

impl Disk for FaultDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Change])?;
        for dir in dir.ancestors() {
            if state.names.contains_key(dir) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        state.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Change, OpKind::Open])?;
        state.has_dir(parent(path))?;
        if state.names.contains_key(path) || state.dirs.contains(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.change_name(parent(path), DirectoryChange::Set(path.to_owned(), inode));
        Ok(self.handle(inode, Access::ReadWrite, state.alignment.max(1)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Read, OpKind::Open])?;
        let inode = state.find(path)?;
        Ok(self.handle(inode, access, 1))
    }

    fn alignment(&self) -> usize {
        self.state.lock().alignment.max(1)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Read, OpKind::Open])?;
        state.has_dir(dir)?;
        let entry = |path: &PathBuf, is_dir| {
            let name = path.file_name().filter(|_| parent(path) == dir)?;
            Some(DirEntry {
                name: name.to_owned(),
                is_dir,
            })
        };
        let mut entries: Vec<DirEntry> =
            state.names.keys().filter_map(|p| entry(p, false)).collect();
        entries.extend(state.dirs.iter().filter_map(|p| entry(p, true)));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(kind) = state.count(&[OpKind::Change, OpKind::Sync, OpKind::Open]) {
            // A directory that could not be opened was not synced.
            if !matches!(kind, FaultKind::PowerOff | FaultKind::NoDescriptor) {
                state.broken_dirs.insert(dir.to_owned());
            }
            return Err(error(kind));
        }
        state.has_dir(dir)?;
        if !state.broken_dirs.contains(dir) {
            let changes = state.pending_names.remove(dir).unwrap_or_default();
            changes
                .iter()
                .for_each(|change| change.apply(&mut state.durable_names));
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Change])?;
        let dir = common_parent(from, to)?;
        state.find(from)?;
        state.change_name(dir, DirectoryChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Change])?;
        state.find(path)?;
        state.change_name(parent(path), DirectoryChange::Remove(path.to_owned()));
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        let mut state = self.state.lock();
        let io_error = |source| LockError::Io {
            dir: dir.to_owned(),
            source,
        };
        state
            .begin(&[OpKind::Read, OpKind::Open])
            .map_err(io_error)?;
        state.has_dir(dir).map_err(io_error)?;
        if !state.locked.insert(dir.to_owned()) {
            let dir = dir.to_owned();
            return Err(LockError::OpenHere { dir });
        }
        Ok(Box::new(FaultLock {
            state: Arc::clone(&self.state),
            dir: dir.to_owned(),
        }))
    }
}

struct FaultLock {
    state: Arc<Mutex<State>>,
    dir: PathBuf,
}

impl DirLock for FaultLock {}

impl Drop for FaultLock {
    fn drop(&mut self) {
        self.state.lock().locked.remove(&self.dir);
    }
}

struct FaultFile {
    state: Arc<Mutex<State>>,
    inode: usize,
    access: Access,
    alignment: usize,
}

impl FaultFile {
    /// Applies a change, or half of a write when it fails.
    fn change(&self, change: FileChange) -> io::Result<()> {
        if self.access == Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut state = self.state.lock();
        let was_off = state.power_off;
        let fault = state.count(&[OpKind::Change, OpKind::Write]);
        let file = &mut state.inodes[self.inode];
        match (fault, change) {
            (None, change) => file.change(change),
            (Some(_), _) if was_off => {}
            // Under way when the power fails: any part of it may be left.
            (Some(FaultKind::PowerOff), change) => file.change(change),
            (
                Some(_),
                FileChange::Write {
                    offset,
                    mut bytes,
                    unit,
                },
            ) => {
                bytes.truncate(bytes.len() / 2);
                file.change(FileChange::Write {
                    offset,
                    bytes,
                    unit,
                });
            }
            (Some(_), FileChange::Size(_)) => {}
        }
        fault.map_or(Ok(()), |kind| Err(error(kind)))
    }
}

impl DiskFile for FaultFile {
    fn size(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Read])?;
        Ok(state.inodes[self.inode].now.len() as u64)
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state.lock();
        state.begin(&[OpKind::Read])?;
        let bytes = &state.inodes[self.inode].now;
        let from = bytes.len().min(offset as usize);
        let n = buf.len().min(bytes.len() - from);
        buf[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let unit = self.alignment;
        self.change(FileChange::Write {
            offset,
            bytes,
            unit,
        })
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.change(FileChange::Size(size))
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let now = self.state.lock().inodes[self.inode].now.len() as u64;
        if size <= now {
            Ok(())
        } else {
            self.change(FileChange::Size(size))
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.count(&[OpKind::Change, OpKind::Sync]);
        let file = &mut state.inodes[self.inode];
        match fault {
            None => {
                for change in file.pending.drain(..) {
                    change.apply(&mut file.durable);
                }
                Ok(())
            }
            Some(FaultKind::PowerOff) => Err(error(FaultKind::PowerOff)),
            Some(kind) => {
                let dropped = std::mem::take(&mut file.pending);
                file.lost.extend(dropped);
                Err(error(kind))
            }
        }
    }
}
