//! Restoring: the files of a node as they were at a moment, in a directory that did not exist.
//!
//! The pieces of the chain are joined in a directory beside the wanted one, which gets its name at the end: no server can
//! be started with a part. Then everything after the moment is made void ([`store::rewind`]), which also verifies
//! each block of the logs and of the checkpoint.
//!
//! | nodes in the backup | moments that can be restored |
//! |---|---|
//! | one | each one of its logs, to the millisecond: from the checkpoint of a chain on to its last backup |
//! | several | those of the backups, which all nodes have in common |

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Epoch;
use base::utc::UtcTime;
use disk::{Disk, RealDisk};
use store::{RecoverError, RewindError};

use crate::directory_store::free_bytes;
use crate::error::RepositoryError;
use crate::manifest::{BackupManifest, NodeBackup};
use crate::repository::{BackupChain, FilesOfNode, Repository};

/// What is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestorePoint {
    /// The newest backup.
    Newest,
    /// The backup of this name.
    Backup(String),
    /// The state at a time, milliseconds since the Unix epoch.
    Time(u64),
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The backup to which it belongs.
    pub backup: String,
    /// Its moment, milliseconds since the Unix epoch.
    pub moment_ms: u64,
    /// For each node: its number, the directory, and the epoch as of whose end its data is.
    pub nodes: Vec<(u16, PathBuf, u64)>,
    /// The bytes that were written.
    pub bytes: u64,
}

/// Sees the progress of a restore.
pub trait RestoreObserver: Sync {
    /// `done` of `of` bytes are written.
    fn written(&self, done: u64, of: u64);

    /// Returns `true` if it is to stop.
    fn is_stopped(&self) -> bool;
}

/// The reason why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestorationError {
    /// A backup cannot be read.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The directory is there.
    #[error("{} exists: name a directory that does not", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that was tried.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The files of the backup are damaged: they were when it was made, since they are as they were written.
    #[error("the data in the backup cannot be recovered: {0}")]
    Recover(#[from] RecoverError),
    /// The files of the backup are damaged, or do not have its epoch.
    #[error("the data in the backup cannot be recovered: {0}")]
    Rewind(#[from] RewindError),
    /// There is no backup from which the time can be restored.
    #[error("nothing can be restored as of {wanted}: {why}")]
    NoSuchTime {
        /// The time.
        wanted: UtcTime,
        /// Which times there are.
        why: String,
    },
    /// The backup has no such node.
    #[error("the backup has no node {wanted}; it has {nodes}")]
    NoSuchNode {
        /// The number that was asked for.
        wanted: u16,
        /// The numbers that there are.
        nodes: String,
    },
    /// There is no room.
    #[error("the data takes {needed} bytes, and {} has room for {free}; nothing was written", dir.display())]
    NoRoom {
        /// The bytes of the files.
        needed: u64,
        /// The bytes for which there is room.
        free: u64,
        /// The directory.
        dir: PathBuf,
    },
    /// It was stopped.
    #[error("stopped; nothing is kept")]
    Stopped,
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RestorationError {
    let path = path.to_owned();
    move |source| RestorationError::Io {
        action,
        path,
        source,
    }
}

/// A backup, and the moment of it that is restored.
struct ChosenBackup {
    chain: BackupChain,
    /// The last backup of the chain that is needed.
    last: usize,
    /// The time of which a single node's state is wanted; `None`: that of the backup.
    time_ms: Option<u64>,
}

impl ChosenBackup {
    fn manifest(&self) -> &BackupManifest {
        &self.chain.backups[self.last]
    }
}

/// Restores to `dir`: a node of no cluster there, and each node of a cluster in the directory `node<n>` there; or only
/// `node`, there.
///
/// # Errors
/// Returns an error if the directory exists, or a backup is damaged; there is no directory then.
pub fn restore(
    repository: &Repository,
    point: &RestorePoint,
    dir: &Path,
    only: Option<u16>,
    observer: &dyn RestoreObserver,
) -> Result<Restored, RestorationError> {
    if dir.symlink_metadata().is_ok() {
        return Err(RestorationError::Exists(dir.to_owned()));
    }
    let chosen = choose(repository, point)?;
    let nodes: Vec<&NodeBackup> = {
        let nodes = chosen.manifest().nodes.iter();
        nodes
            .filter(|node| only.is_none_or(|only| node.description.node == only))
            .collect()
    };
    if nodes.is_empty() {
        let all = chosen.manifest().nodes.iter();
        let all: Vec<String> = all.map(|node| node.description.node.to_string()).collect();
        return Err(RestorationError::NoSuchNode {
            wanted: only.unwrap_or_default(),
            nodes: all.join(", "),
        });
    }
    let files: Vec<FilesOfNode<'_>> = nodes
        .iter()
        .map(|node| repository.files_of(&chosen.chain, chosen.last, node.description.node))
        .collect::<Result<_, _>>()?;
    let pieces = files.iter().flat_map(BTreeMap::values).flatten();
    let needed: u64 = pieces.map(|(_, piece)| piece.to - piece.from).sum();
    if let Some(free) = free_bytes(dir).filter(|&free| free < needed) {
        let dir = dir.to_owned();
        return Err(RestorationError::NoRoom { needed, free, dir });
    }
    let draft = DraftDirectory::create(dir)?;
    let is_alone = only.is_some() || nodes.iter().all(|node| node.description.node == 0);
    let (mut written, mut epochs) = (0, Vec::new());
    for (node, files) in nodes.iter().zip(&files) {
        let number = node.description.node;
        let place = match is_alone {
            true => PathBuf::new(),
            false => PathBuf::from(format!("node{number}")),
        };
        let target = draft.path.join(&place);
        create_directory(&target)?;
        let report = |bytes| {
            written += bytes;
            observer.written(written, needed);
            observer.is_stopped()
        };
        join_files(repository, number, files, &target, report)?;
        let epoch = rewind(&target, &chosen, node)?;
        epochs.push((number, dir.join(place), epoch));
    }
    draft.keep(dir)?;
    Ok(Restored {
        backup: chosen.manifest().name(),
        moment_ms: chosen.time_ms.unwrap_or(chosen.manifest().moment_ms),
        nodes: epochs,
        bytes: needed,
    })
}

/// Makes everything after the moment void. Returns the epoch as of whose end the data is.
fn rewind(dir: &Path, chosen: &ChosenBackup, node: &NodeBackup) -> Result<u64, RestorationError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut epoch = Epoch(node.epoch);
    if let Some(time_ms) = chosen.time_ms {
        let (found, earliest) = store::epoch_at(&disk, dir, time_ms, &|_| {})?;
        if time_ms < earliest {
            let why = format!("the earliest time of this chain is {}", UtcTime(earliest));
            let wanted = UtcTime(time_ms);
            return Err(RestorationError::NoSuchTime { wanted, why });
        }
        epoch = epoch.min(found);
    }
    store::rewind(&disk, dir, epoch, &|_| {})?;
    Ok(epoch.0)
}

/// Writes the files of a node. Stops if `report`, which gets the bytes of each piece, says so.
fn join_files(
    repository: &Repository,
    node: u16,
    files: &FilesOfNode<'_>,
    dir: &Path,
    mut report: impl FnMut(u64) -> bool,
) -> Result<(), RestorationError> {
    for (name, pieces) in files {
        let path = dir.join(name);
        let parent = path.parent().unwrap_or(dir);
        create_directory(parent)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path).map_err(io_error("create", &path))?;
        for (backup, piece) in pieces {
            let content = repository.get_piece(backup, node, piece)?;
            file.write_all(&content).map_err(io_error("write", &path))?;
            if report(content.len() as u64) {
                return Err(RestorationError::Stopped);
            }
        }
        file.sync_all().map_err(io_error("sync", &path))?;
        sync_directory(parent)?;
    }
    sync_directory(dir)
}

/// Finds the backup of a moment.
fn choose(repository: &Repository, point: &RestorePoint) -> Result<ChosenBackup, RestorationError> {
    let mut chains = repository.chains()?;
    chains.retain(|chain| !chain.backups.is_empty());
    let none = || RepositoryError::Empty(repository.place());
    let chosen = |chain: &BackupChain, last, time_ms| ChosenBackup {
        chain: chain.clone(),
        last,
        time_ms,
    };
    match point {
        RestorePoint::Newest => {
            let chain = chains.last().ok_or_else(none)?;
            Ok(chosen(chain, chain.backups.len() - 1, None))
        }
        RestorePoint::Backup(wanted) => {
            let of_chain = |chain: &BackupChain| {
                let mut backups = chain.backups.iter();
                let last = backups.position(|backup| backup.name() == *wanted)?;
                Some(chosen(chain, last, None))
            };
            let found = chains.iter().find_map(of_chain);
            let missing = || RepositoryError::NoSuchBackup {
                wanted: wanted.clone(),
                place: repository.place(),
            };
            Ok(found.ok_or_else(missing)?)
        }
        &RestorePoint::Time(time_ms) => {
            let newest = chains.last().and_then(|chain| chain.backups.last());
            let newest = newest.ok_or_else(none)?.moment_ms;
            let mut backups = chains.iter().flat_map(|chain| &chain.backups);
            let is_of_one = backups.all(|backup| backup.nodes.len() == 1);
            let found = match time_ms {
                // What came after the newest backup is not known.
                later if later > newest => None,
                _ if is_of_one => within_log(&chains, time_ms),
                _ => newest_before(&chains, time_ms),
            };
            let refused = || RestorationError::NoSuchTime {
                wanted: UtcTime(time_ms),
                why: times(&chains, is_of_one),
            };
            let (chain, last) = found.ok_or_else(refused)?;
            Ok(chosen(chain, last, is_of_one.then_some(time_ms)))
        }
    }
}

/// Returns the newest chain whose logs have a time, and the first of its backups that has it.
fn within_log(chains: &[BackupChain], time_ms: u64) -> Option<(&BackupChain, usize)> {
    chains.iter().rev().find_map(|chain| {
        let (begin, _) = times_of(chain);
        let mut backups = chain.backups.iter();
        let last = backups.position(|backup| backup.moment_ms >= time_ms);
        last.filter(|_| begin <= time_ms).map(|last| (chain, last))
    })
}

/// Returns the newest backup whose moment is not after a time.
fn newest_before(chains: &[BackupChain], time_ms: u64) -> Option<(&BackupChain, usize)> {
    chains.iter().rev().find_map(|chain| {
        let mut backups = chain.backups.iter();
        let last = backups.rposition(|backup| backup.moment_ms <= time_ms);
        last.map(|last| (chain, last))
    })
}

/// Returns the first and the last time that the logs of a chain of a single node have.
fn times_of(chain: &BackupChain) -> (u64, u64) {
    let first = chain
        .backups
        .first()
        .and_then(|backup| backup.nodes.first());
    let last = chain.backups.last();
    (
        first.map_or(0, |node| node.base_ms),
        last.map_or(0, |backup| backup.moment_ms),
    )
}

/// Describes the times that can be restored.
fn times(chains: &[BackupChain], is_of_one: bool) -> String {
    if !is_of_one {
        let moments = chains.iter().flat_map(|chain| &chain.backups);
        let moments: Vec<u64> = moments.map(|backup| backup.moment_ms).collect();
        let (first, last) = (moments.iter().min(), moments.iter().max());
        return format!(
            "the moments of the backups are from {} to {}",
            UtcTime(first.copied().unwrap_or_default()),
            UtcTime(last.copied().unwrap_or_default())
        );
    }
    let spans = chains.iter().map(|chain| {
        let (first, last) = times_of(chain);
        match first {
            0 => format!("up to {}", UtcTime(last)),
            first => format!("from {} to {}", UtcTime(first), UtcTime(last)),
        }
    });
    let spans: Vec<String> = spans.collect();
    format!(
        "the logs in the backups have times {}",
        spans.join(", and ")
    )
}

/// A directory that has not got its name. It is removed if it does not get it.
struct DraftDirectory {
    path: PathBuf,
    is_kept: bool,
}

impl DraftDirectory {
    /// Creates one beside `dir`.
    fn create(dir: &Path) -> Result<DraftDirectory, RestorationError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let path = dir.with_file_name(format!(".{name}.{}.restoring", std::process::id()));
        let parent = path.parent();
        if let Some(parent) = parent.filter(|parent| !parent.as_os_str().is_empty()) {
            create_directory(parent)?;
        }
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.map_err(io_error("create", &path))?;
        Ok(DraftDirectory {
            path,
            is_kept: false,
        })
    }

    /// Gives it its name.
    fn keep(mut self, dir: &Path) -> Result<(), RestorationError> {
        sync_directory(&self.path)?;
        fs::rename(&self.path, dir).map_err(io_error("rename", &self.path))?;
        self.is_kept = true;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_directory(parent.unwrap_or(Path::new(".")))
    }
}

impl Drop for DraftDirectory {
    fn drop(&mut self) {
        if !self.is_kept {
            // The error that matters is the one for which it is given up.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Creates a directory and its parents, if they are not there.
fn create_directory(dir: &Path) -> Result<(), RestorationError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.map_err(io_error("create", dir))
}

fn sync_directory(dir: &Path) -> Result<(), RestorationError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(io_error("sync", dir))
}
