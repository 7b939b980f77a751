//! Why a store cannot be opened or closed. Messages name the file and say what to do.

use std::path::PathBuf;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be made.
    #[error("cannot create the data directory {}: {source}", dir.display())]
    Create {
        /// The directory.
        dir: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The data directory is in use.
    #[error(transparent)]
    Lock(#[from] disk::LockError),
    /// What the directory holds cannot be recovered.
    #[error("cannot recover the data directory {}: {source}", dir.display())]
    Recover {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: journal::RecoverError,
    },
    /// An entry of the log cannot be understood, or lacks what it builds on.
    #[error(
        "cannot recover the data directory {}: {reason}; the log is damaged, or was written by \
         another version of the program: open it with that version, or restore it from a backup",
        dir.display()
    )]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// Which, and why.
        reason: String,
    },
    /// The log cannot be written.
    #[error(transparent)]
    Start(#[from] journal::StartError),
    /// An option is out of range.
    #[error("{0}")]
    Option(String),
}

/// Why a store was not closed cleanly.
#[derive(Debug, thiserror::Error)]
#[error("closing the database: {0}")]
pub struct CloseError(#[from] pub(crate) journal::Failed);
