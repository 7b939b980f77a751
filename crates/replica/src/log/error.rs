//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why the log cannot be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system reports an error; nothing is lost by it, and the same may be tried again.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The log can no longer be written: nobody knows what a write or sync that failed has left.
    #[error(
        "the log cannot be written any more: {reason}. Repair or free the disk and start this \
         member again; the others go on without it"
    )]
    Failed {
        /// What happened to which file.
        reason: Arc<str>,
        /// Whether there was no space left.
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
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Something that the log needs is not there.
    #[error(
        "{} lacks {what}. Put it back, or move this member's data elsewhere and add the node again, \
         so that it gets a copy from the others",
        path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
        /// What is missing.
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
    /// Whether there is no space left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            LogError::Io { source, .. } => is_full(source),
            LogError::Failed { full, .. } => *full,
            _ => false,
        }
    }

    /// Whether what was not made durable is still there to be, by the same call again.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        matches!(self, LogError::Io { .. })
    }

    /// For `map_err` on operations on `path`.
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

    /// The same, once and for all.
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
