//! Errors of tables on disk.

use std::io;
use std::path::{Path, PathBuf};

use disk::LockError;

use crate::row::BadForm;
use crate::segment::RowsError;

/// An error of a table, or of a directory of tables.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// A directory is used by another process.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The operating system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The directories do not belong together.
    #[error("{0}")]
    Directories(String),
    /// A table is damaged.
    #[error("table {name} is damaged: {what}; load it again, or remove it")]
    Damaged {
        /// The table, or the file.
        name: String,
        /// The damage.
        what: String,
    },
    /// There is no such table.
    #[error("there is no table {name:?}; {}", known(tables))]
    Unknown {
        /// The name.
        name: String,
        /// The tables that exist.
        tables: Vec<String>,
    },
    /// There is a table of that name.
    #[error("there is a table {0} already: replace it, or append to it")]
    Exists(String),
    /// No table can have that name.
    #[error("{0:?} is no name for a table: use letters, digits and _, at most 63")]
    BadName(String),
    /// Columns cannot be stored in pages in this form.
    #[error(transparent)]
    Form(#[from] BadForm),
    /// The options are invalid for this table.
    #[error("{0}")]
    Options(String),
    /// Rows cannot be stored in pages.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The tables were opened for reading only.
    #[error("the tables were opened for reading alone")]
    ReadOnly,
    /// A change failed in such a way that it is unknown whether it was made.
    #[error("{0}; it is unknown whether the change was made: open the tables again")]
    Doubtful(Box<TablesError>),
    /// An earlier change failed in such a way that the state of the disk is unknown.
    #[error("an earlier change of the tables failed ({0}): open them again")]
    Failed(String),
}

impl TablesError {
    /// Converts the error of a change that was begun.
    pub(super) fn of_change(self) -> TablesError {
        TablesError::Doubtful(Box::new(self))
    }
}

fn known(tables: &[String]) -> String {
    match tables {
        [] => "there are none: load one".to_owned(),
        some => format!("there are: {}", some.join(", ")),
    }
}

/// Adds the operation and the path to an error of the system.
pub(crate) trait At<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, TablesError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, TablesError> {
        self.map_err(|source| TablesError::Io {
            what,
            path: path.to_owned(),
            source,
        })
    }
}
