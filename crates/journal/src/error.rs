//! The journal's errors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

/// The journal cannot be written: no further epoch becomes durable, or none does until there is room
/// for the log. Clones share the reason. The caller refuses writes and informs its operator.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the log cannot be written: {reason}. Commands that write are refused until {}",
    if *.is_lasting { "the server is restarted" } else { "there is room" }
)]
pub struct JournalFailure {
    /// The failure, and the file that it concerns.
    pub reason: Arc<str>,
    /// `true`: only a restart ends it. `false`: the journal continues by itself when there is room; no
    /// transaction that was acknowledged or appended is lost.
    pub is_lasting: bool,
}

impl JournalFailure {
    pub(crate) fn new(reason: impl Into<Arc<str>>) -> JournalFailure {
        JournalFailure {
            reason: reason.into(),
            is_lasting: true,
        }
    }

    pub(crate) fn no_room(error: &StartError) -> JournalFailure {
        JournalFailure {
            is_lasting: false,
            ..JournalFailure::new(error.to_string())
        }
    }
}

/// The reason why a journal could not be recovered. Nothing was changed on disk unless the error
/// says so.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The operating system reports an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that was tried.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Data that was durable is damaged.
    #[error(
        "{}: damaged at byte {offset}: {what}. This data was durable, so that starting without it \
         would lose acknowledged writes; restore the data directory from a backup or a replica",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset of the damage.
        offset: u64,
        /// A description of the damage.
        what: String,
    },
    /// A file or directory of the log is missing.
    #[error(
        "{} is missing: {why}. Put it back, or restore the data directory from a backup or a replica",
        path.display()
    )]
    Missing {
        /// The missing file or directory.
        path: PathBuf,
        /// The evidence that it is missing.
        why: String,
    },
    /// A file or directory is there that the journal did not create.
    #[error("{} does not belong to this log: {why}. Move it elsewhere", path.display())]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// A description of the error.
        why: String,
    },
    /// The log was written by a newer release.
    #[error(
        "{} has format version {version}, and this release reads up to {supported}: \
         start the release that wrote it, or a newer one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version that this release reads.
        supported: u32,
    },
}

impl RecoverError {
    /// Returns a function for `map_err` on operations on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecoverError {
        let path = path.to_owned();
        move |source| RecoverError::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> RecoverError {
        RecoverError::Corrupt {
            path: path.to_owned(),
            offset,
            what: what.into(),
        }
    }
}

/// The reason why logs could not be rewound to an epoch.
#[derive(Debug, thiserror::Error)]
pub enum RewindError {
    /// They cannot be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// A new segment cannot be made.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The logs begin later.
    #[error("the logs begin behind epoch {first}, and cannot be rewound to epoch {wanted}")]
    NoSuchEpoch {
        /// The epoch that was asked for.
        wanted: base::Epoch,
        /// The least epoch to which they can be rewound.
        first: base::Epoch,
    },
}

/// The reason why a checkpoint was not made. The one before it and the logs are as they were.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system reports an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that was tried.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A log cannot continue in a new segment.
    #[error(transparent)]
    Segment(#[from] StartError),
    /// The directory of checkpoints cannot be relied on until the store is opened again.
    #[error("an earlier checkpoint failed: {0}; there can be none until the store is opened again")]
    Broken(String),
    /// The journal has failed.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

impl CheckpointError {
    pub(crate) fn io(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> CheckpointError {
        let path = path.to_owned();
        move |source| CheckpointError::Io {
            action,
            path,
            source,
        }
    }
}

/// Returns `true` if there was no free file descriptor: the operation has had no effect.
pub(crate) fn lacks_descriptor(error: &io::Error) -> bool {
    let out_of_descriptors = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| out_of_descriptors.contains(&code))
}

/// The reason why a journal could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct StartError {
    /// The operation that was tried.
    pub action: &'static str,
    /// Its file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

impl StartError {
    /// Returns `true` if the operation can be repeated later: there is no space for files, or no free
    /// file descriptor.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ) || self.lacks_descriptor()
    }

    /// Returns `true` if there was no free file descriptor: the operation has had no effect.
    pub(crate) fn lacks_descriptor(&self) -> bool {
        lacks_descriptor(&self.source)
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StartError {
        let path = path.to_owned();
        move |source| StartError {
            action,
            path,
            source,
        }
    }
}
