//! The files of a database for backups: copied while it runs, and rewound to an epoch where they were copied to.
//!
//! 1. The files are pinned, so that no checkpoint removes them.
//! 2. The durable epoch is held for a moment. The state at its end is the backup's: until the hold ends, nothing that
//!    waits for durability leaves this process, so that no other process knows of anything later.
//! 3. The files are listed, as far as they are durable, and read. They hold that epoch, and perhaps more.
//! 4. A copy of the files is rewound to the epoch.

use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Epoch;
use disk::{Access, Disk};
use journal::{DataFiles, Journal, RecoverError, RewindError};

use crate::data_directory::DataDirectory;
use crate::db_state::DbState;
use crate::options::RecoveryProgress;

/// The file that distinguishes the data of a directory from that of others.
const DATA_ID: &str = "DATA-ID";
/// The same before it has its name.
const DATA_ID_NEW: &str = "DATA-ID.new";

/// The reason why a step of a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database is in memory only.
    #[error("the data is in memory only: there is nothing to back up")]
    Ephemeral,
    /// The files cannot be listed or read.
    #[error(transparent)]
    Files(#[from] RecoverError),
    /// The pin of the files has ended.
    #[error("the files are not pinned any more: the backup has not asked for them for too long")]
    NotPinned,
    /// Another hold lasts.
    #[error("another backup draws its moment: try again")]
    Held,
    /// The id of the data cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Id {
        /// The operation that was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

/// A moment at which durability is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMoment {
    /// The number of the hold.
    pub number: u64,
    /// Everything up to this epoch was durable, and nothing later has left the process since.
    pub epoch: Epoch,
    /// The database's time, milliseconds since the Unix epoch.
    pub time_ms: u64,
}

/// A database as a source of backups.
#[derive(Clone)]
pub struct BackupSource {
    db: Arc<DbState>,
}

impl BackupSource {
    pub(crate) fn new(db: &Arc<DbState>) -> BackupSource {
        BackupSource { db: Arc::clone(db) }
    }

    fn journal(&self) -> Result<(&Journal, &DataDirectory), BackupError> {
        let journal = self.db.journal.as_ref();
        let both = journal.zip(self.db.directory.as_ref());
        both.ok_or(BackupError::Ephemeral)
    }

    /// Pins the files that are there now, for `time`. A pin of the same name is replaced.
    ///
    /// # Errors
    /// Returns an error if they cannot be listed.
    pub fn pin(&self, name: &str, time: Duration) -> Result<(), BackupError> {
        let (journal, files) = self.journal()?;
        Ok(journal.pin_files(&*files.disk, &files.dir, name, time)?)
    }

    /// Renews a pin for `time`.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn renew(&self, name: &str, time: Duration) -> Result<(), BackupError> {
        let (journal, _) = self.journal()?;
        let lasts = journal.renew_pin(name, time);
        lasts.then_some(()).ok_or(BackupError::NotPinned)
    }

    /// Narrows a pin to the segments from those numbers on, one for each log, and to no checkpoint.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn narrow(&self, name: &str, segments: &[u32]) -> Result<(), BackupError> {
        let (journal, _) = self.journal()?;
        let lasts = journal.narrow_pin(name, segments);
        lasts.then_some(()).ok_or(BackupError::NotPinned)
    }

    /// Ends a pin.
    pub fn unpin(&self, name: &str) {
        if let Ok((journal, _)) = self.journal() {
            journal.unpin_files(name);
        }
    }

    /// Holds the durable epoch, for `time` at most.
    ///
    /// # Errors
    /// Returns an error if another hold lasts.
    pub fn hold(&self, time: Duration) -> Result<HeldMoment, BackupError> {
        let (journal, _) = self.journal()?;
        let (number, epoch) = journal.hold_durable(time).ok_or(BackupError::Held)?;
        Ok(HeldMoment {
            number,
            epoch,
            time_ms: self.db.clock.now_ms(),
        })
    }

    /// Ends a hold. Returns `true` if it has lasted until now.
    #[must_use]
    pub fn release(&self, number: u64) -> bool {
        let journal = self.journal();
        journal.is_ok_and(|(journal, _)| journal.release_durable(number))
    }

    /// Lists the files, as far as they are durable.
    ///
    /// # Errors
    /// Returns an error if they cannot be listed.
    pub fn files(&self) -> Result<DataFiles, BackupError> {
        let (journal, files) = self.journal()?;
        Ok(journal.data_files(&*files.disk, &files.dir)?)
    }

    /// Reads up to `count` bytes of a listed file.
    ///
    /// # Errors
    /// Returns an error if there is no such file, or it cannot be read.
    pub fn read(&self, name: &str, offset: u64, count: usize) -> Result<Vec<u8>, BackupError> {
        let (_, files) = self.journal()?;
        let (disk, dir) = (&*files.disk, &files.dir);
        Ok(Journal::read_data_file(disk, dir, name, offset, count)?)
    }

    /// Returns a text that distinguishes this data from that of all other directories. The first call draws it, from
    /// `random`. Copies of the directory that other tools make have the same; what a backup restores has none.
    ///
    /// # Errors
    /// Returns an error if its file cannot be read or written.
    pub fn data_id(&self, random: impl FnOnce() -> u64) -> Result<String, BackupError> {
        let (_, files) = self.journal()?;
        let _one_at_a_time = self.db.data_id.lock();
        if let Some(id) = read_id(files)? {
            return Ok(id);
        }
        let id = format!("{:016x}", random());
        write_id(files, &id)?;
        Ok(id)
    }
}

fn read_id(files: &DataDirectory) -> Result<Option<String>, BackupError> {
    let path = files.dir.join(DATA_ID);
    let failed = |source| BackupError::Id {
        action: "read",
        path: path.clone(),
        source,
    };
    let file = match files.disk.open(&path, Access::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let source = std::io::Error::new(ErrorKind::InvalidData, "it has no 16 hexadecimal digits");
        return Err(failed(source));
    }
    Ok(Some(text))
}

fn write_id(files: &DataDirectory, id: &str) -> Result<(), BackupError> {
    let (disk, dir) = (&*files.disk, &files.dir);
    let (draft, path) = (dir.join(DATA_ID_NEW), dir.join(DATA_ID));
    let written = || {
        match disk.remove(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create_new(&draft)?;
        file.write_and_sync(&[IoSlice::new(id.as_bytes())], 0)?;
        disk.rename(&draft, &path)?;
        disk.sync_dir(dir)
    };
    written().map_err(|source| BackupError::Id {
        action: "write",
        path: path.clone(),
        source,
    })
}

/// Returns the newest epoch of the copied files in `dir` whose time is not after `time_ms`, and the earliest time that
/// they have.
///
/// # Errors
/// Returns an error if the files are damaged.
pub fn epoch_at(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    time_ms: u64,
    progress: &(dyn Fn(&RecoveryProgress) + Sync),
) -> Result<(Epoch, u64), RecoverError> {
    let progress = reported(progress);
    Journal::epoch_at(disk, dir, threads(), time_ms, &progress)
}

/// Rewinds the copied files in `dir` to an epoch: a database that is opened there has the state as of its end. Verifies
/// them all. After an error the directory is of no use.
///
/// # Errors
/// Returns an error if the files are damaged, or do not have the epoch.
pub fn rewind(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    epoch: Epoch,
    progress: &(dyn Fn(&RecoveryProgress) + Sync),
) -> Result<(), RewindError> {
    let progress = reported(progress);
    Journal::rewind(disk, dir, threads(), epoch, &progress)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns a reporter of the journal's progress.
fn reported(progress: &(dyn Fn(&RecoveryProgress) + Sync)) -> impl Fn(journal::Progress) + Sync {
    let start = std::time::Instant::now();
    move |so_far: journal::Progress| {
        progress(&RecoveryProgress {
            bytes_read: so_far.bytes_read,
            bytes_total: so_far.bytes_total,
            entries: so_far.entries,
            elapsed: start.elapsed(),
        });
    }
}
