//! A disk that forgets all unsynced changes when the process dies.
//!
//! Killing a process loses nothing of the page cache, so that a missing sync goes unnoticed. Here
//! unsynced changes wait in the memory of the process and go to the disk below only when they are
//! synced:
//!
//! | change | reaches the disk below |
//! |---|---|
//! | a write, a new size | at [`DiskFile::sync_data`], if the file has a name below; else with its name |
//! | a new file | at [`Disk::sync_dir`], holding what was synced of it |
//! | a rename, a removal | at [`Disk::sync_dir`] |
//! | a new directory | at once (it is durable by contract) |
//!
//! All users of the same `ForgetfulDisk` see all changes. Names that other processes change below
//! are not seen while unsynced changes cover them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Access, DirEntry, DirLock, Disk, DiskFile, LockError, common_parent, parent};

/// Keeps unsynced changes of the disk `D` in memory.
pub struct ForgetfulDisk<D> {
    below: D,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Open files by their name, so that all handles share their pending changes.
    files: BTreeMap<PathBuf, Arc<Node>>,
    /// The present names where they differ from those below; `None`: removed.
    names: BTreeMap<PathBuf, Option<Arc<Node>>>,
    /// The actions that the next sync of each directory performs below, in order.
    pending: BTreeMap<PathBuf, Vec<NameChange>>,
}

enum NameChange {
    Create(PathBuf, Arc<Node>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// A file, under any name.
struct Node {
    content: Mutex<Content>,
    /// The alignment of the file below, also while there is none.
    alignment: usize,
}

struct Content {
    /// The file below, once it has a name there.
    below: Option<Box<dyn DiskFile>>,
    /// The bytes that were synced before there was a file below.
    synced: Vec<u8>,
    /// Changes since the last sync, in order.
    pending: Vec<Change>,
    /// The file's size, pending changes included.
    size: u64,
}

enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Size(u64),
}

impl Content {
    fn push(&mut self, change: Change) {
        self.size = match &change {
            Change::Write { offset, bytes } => self.size.max(offset + bytes.len() as u64),
            Change::Size(size) => *size,
        };
        self.pending.push(change);
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = (buf.len() as u64).min(self.size.saturating_sub(offset)) as usize;
        let buf = &mut buf[..n];
        buf.fill(0);
        match &self.below {
            Some(file) => {
                file.read_at(buf, offset)?;
            }
            None => overlay(buf, offset, &self.synced, 0),
        }
        for change in &self.pending {
            match change {
                Change::Write { offset: at, bytes } => overlay(buf, offset, bytes, *at),
                // The bytes that a cut removed read as zeros when the file grows again.
                Change::Size(size) => {
                    let from = (size.saturating_sub(offset) as usize).min(n);
                    buf[from..].fill(0);
                }
            }
        }
        Ok(n)
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some(file) = &self.below else {
            for change in self.pending.drain(..) {
                match change {
                    Change::Size(size) => self.synced.resize(size as usize, 0),
                    Change::Write { offset, bytes } => {
                        let end = offset as usize + bytes.len();
                        self.synced.resize(self.synced.len().max(end), 0);
                        self.synced[offset as usize..end].copy_from_slice(&bytes);
                    }
                }
            }
            return Ok(());
        };
        // The last write goes together with the sync, as most writes do.
        let last = self
            .pending
            .pop_if(|last| matches!(last, Change::Write { .. }));
        for change in self.pending.drain(..) {
            match change {
                Change::Size(size) => file.set_size(size)?,
                Change::Write { offset, bytes } => {
                    file.write_all_at(&[IoSlice::new(&bytes)], offset)?;
                }
            }
        }
        match last {
            Some(Change::Write { offset, bytes }) => {
                file.write_and_sync(&[IoSlice::new(&bytes)], offset)
            }
            _ => file.sync_data(),
        }
    }

    /// Gives the file its name below, with its synced contents.
    fn create(&mut self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        let file = disk.create_new(path)?;
        let synced = std::mem::take(&mut self.synced);
        file.write_all_at(&[IoSlice::new(&synced)], 0)?;
        file.sync_data()?;
        self.below = Some(file);
        Ok(())
    }
}

/// Copies the part of `bytes`, which lie at `at`, that falls into `buf`, which lies at `offset`.
fn overlay(buf: &mut [u8], offset: u64, bytes: &[u8], at: u64) {
    let from = offset.max(at);
    let to = (offset + buf.len() as u64).min(at + bytes.len() as u64);
    if from < to {
        let (from_buf, to_buf) = ((from - offset) as usize, (to - offset) as usize);
        buf[from_buf..to_buf].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
    }
}

impl<D: Disk> ForgetfulDisk<D> {
    /// Returns a disk that forgets all changes that are not synced to `below`.
    pub fn new(below: D) -> ForgetfulDisk<D> {
        ForgetfulDisk {
            below,
            state: Mutex::default(),
        }
    }

    /// Returns the file of this name, as a node that all handles share.
    fn node(&self, state: &mut State, path: &Path) -> io::Result<Arc<Node>> {
        match state.names.get(path) {
            Some(Some(node)) => return Ok(Arc::clone(node)),
            Some(None) => return Err(io::ErrorKind::NotFound.into()),
            None => {}
        }
        if let Some(node) = state.files.get(path) {
            return Ok(Arc::clone(node));
        }
        let file = match self.below.open(path, Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.below.open(path, Access::Read)?
            }
            other => other?,
        };
        let alignment = file.alignment();
        let content = Content {
            size: file.size()?,
            below: Some(file),
            synced: Vec::new(),
            pending: Vec::new(),
        };
        let node = Arc::new(Node {
            content: Mutex::new(content),
            alignment,
        });
        state.files.insert(path.to_owned(), Arc::clone(&node));
        Ok(node)
    }

    fn apply(&self, state: &mut State, change: &NameChange) -> io::Result<()> {
        match change {
            NameChange::Create(path, node) => {
                node.content.lock().create(&self.below, path)?;
                state.files.insert(path.clone(), Arc::clone(node));
            }
            NameChange::Rename(from, to) => {
                self.below.rename(from, to)?;
                if let Some(node) = state.files.remove(from) {
                    state.files.insert(to.clone(), node);
                }
            }
            NameChange::Remove(path) => {
                self.below.remove(path)?;
                state.files.remove(path);
            }
        }
        Ok(())
    }
}

impl<D: Disk> Disk for ForgetfulDisk<D> {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let state = self.state.lock();
        for dir in dir.ancestors() {
            if matches!(state.names.get(dir), Some(Some(_))) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        self.below.create_dir_all(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        let entries = self.below.list(parent(path))?;
        let taken = match state.names.get(path) {
            Some(node) => node.is_some(),
            None => entries
                .iter()
                .any(|entry| Some(entry.name.as_os_str()) == path.file_name()),
        };
        if taken {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Content {
            below: None,
            synced: Vec::new(),
            pending: Vec::new(),
            size: 0,
        };
        let node = Arc::new(Node {
            content: Mutex::new(content),
            alignment: self.below.alignment(),
        });
        state.names.insert(path.to_owned(), Some(Arc::clone(&node)));
        let change = NameChange::Create(path.to_owned(), Arc::clone(&node));
        state
            .pending
            .entry(parent(path).to_owned())
            .or_default()
            .push(change);
        Ok(Box::new(ForgetfulFile {
            node,
            access: Access::ReadWrite,
        }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let node = self.node(&mut self.state.lock(), path)?;
        Ok(Box::new(ForgetfulFile { node, access }))
    }

    fn alignment(&self) -> usize {
        self.below.alignment()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        let mut entries: BTreeMap<OsString, bool> = self
            .below
            .list(dir)?
            .into_iter()
            .map(|entry| (entry.name, entry.is_dir))
            .collect();
        for (path, node) in &state.names {
            let Some(name) = path.file_name().filter(|_| parent(path) == dir) else {
                continue;
            };
            if node.is_some() {
                entries.insert(name.to_owned(), false);
            } else {
                entries.remove(name);
            }
        }
        Ok(entries
            .into_iter()
            .map(|(name, is_dir)| DirEntry { name, is_dir })
            .collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        for change in state.pending.remove(dir).unwrap_or_default() {
            self.apply(&mut state, &change)?;
        }
        self.below.sync_dir(dir)?;
        state.names.retain(|path, _| parent(path) != dir);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let dir = common_parent(from, to)?;
        let node = self.node(&mut state, from)?;
        state.names.insert(from.to_owned(), None);
        state.names.insert(to.to_owned(), Some(node));
        let change = NameChange::Rename(from.to_owned(), to.to_owned());
        state
            .pending
            .entry(dir.to_owned())
            .or_default()
            .push(change);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        self.node(&mut state, path)?;
        state.names.insert(path.to_owned(), None);
        let change = NameChange::Remove(path.to_owned());
        state
            .pending
            .entry(parent(path).to_owned())
            .or_default()
            .push(change);
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.below.lock_dir(dir)
    }
}

struct ForgetfulFile {
    node: Arc<Node>,
    access: Access,
}

impl ForgetfulFile {
    fn change(&self, change: Change) -> io::Result<()> {
        if self.access == Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.node.content.lock().push(change);
        Ok(())
    }
}

impl DiskFile for ForgetfulFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.node.content.lock().size)
    }

    fn alignment(&self) -> usize {
        self.node.alignment
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.node.content.lock().read(buf, offset)
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        if bytes.is_empty() {
            return Ok(());
        }
        self.change(Change::Write { offset, bytes })
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.change(Change::Size(size))
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        if size <= self.size()? {
            Ok(())
        } else {
            self.change(Change::Size(size))
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.node.content.lock().sync()
    }
}
