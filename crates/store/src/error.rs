//! The errors of opening and closing a store. Messages name the file and say what to do.

use std::path::PathBuf;

/// The reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be made.
    #[error("cannot create the data directory {}: {source}", dir.display())]
    Create {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The data directory is in use.
    #[error(transparent)]
    Lock(#[from] disk::LockError),
    /// The contents of the directory cannot be recovered.
    #[error("cannot recover the data directory {}: {source}", dir.display())]
    Recover {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: journal::RecoverError,
    },
    /// An entry of the log cannot be understood, or the version on which it builds is missing.
    #[error(
        "cannot recover the data directory {}: {reason}; the log is damaged, or was written by \
         another version of the program: open it with that version, or restore it from a backup",
        dir.display()
    )]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// The entry, and the reason.
        reason: engine::RestoreError,
    },
    /// The log cannot be written.
    #[error(transparent)]
    Start(#[from] journal::StartError),
    /// An option is out of range.
    #[error("{0}")]
    Option(String),
}

/// The reason why a store was not closed cleanly.
#[derive(Debug, thiserror::Error)]
#[error("closing the database: {0}")]
pub struct CloseError(#[from] pub(crate) journal::JournalFailure);
