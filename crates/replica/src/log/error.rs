//! Errors of the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why the log cannot be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system reports an error. Nothing is lost, and the operation may be tried
    /// again.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The log can no longer be written: the effect of a failed write or sync is not known.
    #[error(
        "the log cannot be written any more: {reason}. Repair or free the disk and start this \
         member again; the others go on without it"
    )]
    Failed {
        /// The operation and the file that failed.
        reason: Arc<str>,
        /// `true` if the disk had no space.
        full: bool,
    },
    /// Data that was durable is damaged.
    #[error(
        "{}: damaged at byte {offset}: {what}. This data was durable, and the others count on it: \
         move this member's data elsewhere and add the node again, so that it gets a copy from them",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset of the damage.
        offset: u64,
        /// The kind of damage.
        what: String,
    },
    /// A part that the log needs is missing.
    #[error(
        "{} lacks {what}. Put it back, or move this member's data elsewhere and add the node again, \
         so that it gets a copy from the others",
        path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
        /// The part that is missing.
        what: String,
    },
    /// The log was written by a newer release.
    #[error(
        "{} has format version {version}, and this release reads {supported}: start the release \
         that wrote it, or a newer one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version that this release reads.
        supported: u32,
    },
}

impl LogError {
    /// Returns `true` if the disk has no space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            LogError::Io { source, .. } => is_full(source),
            LogError::Failed { full, .. } => *full,
            _ => false,
        }
    }

    /// Returns `true` if the data that was not made durable is kept, so that the same call can be
    /// tried again.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        matches!(self, LogError::Io { .. })
    }

    /// Makes an error for `map_err` on operations on `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
        let path = path.to_owned();
        move |source| LogError::Io {
            action,
            path,
            source: Arc::new(source),
        }
    }

    pub(super) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> LogError {
        LogError::Corrupt {
            path: path.to_owned(),
            offset,
            what: what.into(),
        }
    }

    /// Makes the error final: the log cannot be written any more.
    pub(super) fn into_failed(self) -> LogError {
        let (reason, full) = (self.to_string().into(), self.is_full());
        LogError::Failed { reason, full }
    }
}

fn advice(error: &io::Error) -> &'static str {
    if is_full(error) {
        "; make room on that disk"
    } else {
        ""
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Checks that the snapshot contains the entries that were removed. `snapshot` is its index; 0
/// means that there is none.
pub(super) fn require_snapshot(dir: &Path, floor: u64, snapshot: u64) -> Result<(), LogError> {
    if snapshot >= floor {
        return Ok(());
    }
    Err(LogError::Missing {
        path: dir.to_owned(),
        what: format!("a snapshot as of entry {floor} or later"),
    })
}
