//! A file layer whose syncs can be held, or made to fail.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use disk::{Access, DirEntry, DirLock, Disk, DiskFile, LockError, RealDisk};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    Broken,
}

/// A gate that syncs have to pass. Clones are handles to the same gate.
#[derive(Clone)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(Arc::new((Mutex::new(State::Open), Condvar::new())))
    }

    /// Holds every sync from now on.
    pub(crate) fn close(&self) {
        self.set(State::Closed);
    }

    pub(crate) fn open(&self) {
        self.set(State::Open);
    }

    /// Makes every sync fail from now on.
    pub(crate) fn break_down(&self) {
        self.set(State::Broken);
    }

    fn set(&self, state: State) {
        *self.0.0.lock().unwrap() = state;
        self.0.1.notify_all();
    }

    fn pass(&self) -> io::Result<()> {
        let closed = |state: &mut State| *state == State::Closed;
        let state = self
            .0
            .1
            .wait_while(self.0.0.lock().unwrap(), closed)
            .unwrap();
        if *state == State::Broken {
            Err(io::Error::other("the gate is broken"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn disk(&self) -> GatedDisk {
        GatedDisk {
            below: RealDisk,
            gate: self.clone(),
        }
    }
}

pub(crate) struct GatedDisk {
    below: RealDisk,
    gate: Gate,
}

struct GatedFile {
    below: Box<dyn DiskFile>,
    gate: Gate,
}

impl GatedDisk {
    fn file(&self, below: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(GatedFile {
            below,
            gate: self.gate.clone(),
        })
    }
}

impl Disk for GatedDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.below.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.below.create_new(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.below.open(path, access)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.below.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
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

impl DiskFile for GatedFile {
    fn size(&self) -> io::Result<u64> {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.below.read_at(buf, offset)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.below.write_all_at(parts, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.below.set_size(size)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.below.allocate(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass()?;
        self.below.sync_data()
    }
}
