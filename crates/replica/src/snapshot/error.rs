//! Errors of snapshots.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a snapshot was not made, received or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operating system reports an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The partition is closed: nothing is written any more.
    #[error("the partition is closed")]
    Closed,
    /// The snapshot differs from what was written.
    #[error(
        "{}: damaged at byte {offset}: {what}. Move this member's data elsewhere and add the node \
         again, so that it gets a copy from the others",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the damage.
        offset: u64,
        /// The kind of damage.
        what: String,
    },
    /// The snapshot was written by a newer release.
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
    /// Returns `true` if the disk has no space: freeing some and trying again may help.
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
