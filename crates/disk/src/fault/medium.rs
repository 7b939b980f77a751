//! The contents of a file or a directory on the medium, and the part of them that a power loss
//! leaves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fastrand::Rng;

/// The part of the unsynced changes that a crash leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The power fails: nothing is left.
    DropAll,
    /// The power fails: the first few changes of each file are left, the last of them torn.
    KeepPrefix,
    /// The power fails: random sectors are left.
    KeepSectors,
    /// The process dies, and the machine continues: everything is left, and still not durable.
    KillProcess,
}

/// The unit that a device writes whole or not at all.
const SECTOR: usize = 512;

/// A change of a file that is not synced.
#[derive(Clone)]
pub(super) enum FileChange {
    /// `unit`: the writer's alignment. The neighbouring bytes in the first and last unit are
    /// written again with `bytes`.
    Write {
        offset: u64,
        bytes: Vec<u8>,
        unit: usize,
    },
    Size(u64),
}

impl FileChange {
    pub(super) fn apply(&self, to: &mut Vec<u8>) {
        match self {
            FileChange::Write { offset, bytes, .. } => overwrite(to, *offset as usize, bytes),
            FileChange::Size(size) => to.resize(*size as usize, 0),
        }
    }
}

fn overwrite(to: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = at + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[at..end].copy_from_slice(bytes);
}

/// A file. See the table in [`super`].
#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) now: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<FileChange>,
    pub(super) lost: Vec<FileChange>,
}

impl Inode {
    pub(super) fn change(&mut self, change: FileChange) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    pub(super) fn after_power_loss(&self, crash: Crash, rng: &mut Rng) -> Inode {
        let mut kept = self.durable.clone();
        let unsynced: Vec<&FileChange> = self.lost.iter().chain(&self.pending).collect();
        match crash {
            Crash::KeepPrefix if !unsynced.is_empty() => {
                let whole = rng.usize(0..=unsynced.len());
                unsynced[..whole]
                    .iter()
                    .for_each(|change| change.apply(&mut kept));
                if let Some(FileChange::Write { offset, bytes, .. }) = unsynced.get(whole) {
                    let cut = rng.usize(0..=bytes.len() / SECTOR) * SECTOR;
                    overwrite(&mut kept, *offset as usize, &bytes[..cut]);
                }
            }
            Crash::KeepSectors => {
                unsynced
                    .iter()
                    .for_each(|change| keep_sectors(change, &mut kept, rng));
                if rng.bool() && self.now.len() > kept.len() {
                    // The size reached the device, but the data did not.
                    kept.resize(self.now.len(), 0);
                }
            }
            _ => {}
        }
        Inode {
            now: kept.clone(),
            durable: kept,
            ..Inode::default()
        }
    }
}

fn keep_sectors(change: &FileChange, kept: &mut Vec<u8>, rng: &mut Rng) {
    let FileChange::Write {
        offset,
        bytes,
        unit,
    } = change
    else {
        if rng.bool() {
            change.apply(kept);
        }
        return;
    };
    let mut at = 0;
    while at < bytes.len() {
        let place = *offset as usize + at;
        let end = bytes.len().min(at + SECTOR - place % SECTOR);
        if rng.bool() {
            overwrite(kept, place, &bytes[at..end]);
        }
        at = end;
    }
    let (begin, end) = (*offset as usize, *offset as usize + bytes.len());
    tear(kept, begin - begin % unit, begin, rng);
    tear(kept, end, end.next_multiple_of(*unit), rng);
}

/// Loses the bytes from `from` to `to` that were to be written again, in one of four cases.
fn tear(kept: &mut [u8], from: usize, to: usize, rng: &mut Rng) {
    let to = to.min(kept.len());
    if from < to && rng.u8(0..4) == 0 {
        kept[from..to].fill(0);
    }
}

/// A change of a directory that is not synced.
#[derive(Clone)]
pub(super) enum DirectoryChange {
    Set(PathBuf, usize),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl DirectoryChange {
    pub(super) fn apply(&self, to: &mut BTreeMap<PathBuf, usize>) {
        match self {
            DirectoryChange::Set(path, inode) => {
                to.insert(path.clone(), *inode);
            }
            DirectoryChange::Remove(path) => {
                to.remove(path);
            }
            DirectoryChange::Rename(from, into) => {
                if let Some(inode) = to.remove(from) {
                    to.insert(into.clone(), inode);
                }
            }
        }
    }
}
