//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

/// Why a snapshot was not made, received or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operating system reports an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It is not as it was written.
    #[error(
        "{}: damaged at byte {offset}: {what}. Move this member's data elsewhere and add the node \
         again, so that it gets a copy from the others",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// It was written by a newer release.
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

impl SnapshotError {
    /// Whether there is no space left: freeing some and trying again may help.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, SnapshotError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
        let path = path.to_owned();
        move |source| SnapshotError::Io {
            action,
            path,
            source,
        }
    }

    pub(super) fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> SnapshotError {
        SnapshotError::Damaged {
            path: path.to_owned(),
            offset,
            what: what.into(),
        }
    }
}
