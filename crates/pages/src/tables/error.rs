//! What may be wrong with tables on disk.

use std::io;
use std::path::{Path, PathBuf};

use disk::LockError;

use crate::row::BadForm;
use crate::segment::RowsError;

/// Why a table, or a directory of tables, is not what one wants.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// A directory is used by someone else.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The operating system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The directories do not belong together.
    #[error("{0}")]
    Directories(String),
    /// A table is damaged.
    #[error("table {name} is damaged: {what}; load it again, or remove it")]
    Damaged {
        /// Which table, or which file.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// There is no such table.
    #[error("there is no table {name:?}; {}", known(tables))]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        tables: Vec<String>,
    },
    /// There is one of that name.
    #[error("there is a table {0} already: replace it, or append to it")]
    Exists(String),
    /// No table can have that name.
    #[error("{0:?} is no name for a table: use letters, digits and _, at most 63")]
    BadName(String),
    /// Columns cannot lie in pages so.
    #[error(transparent)]
    Form(#[from] BadForm),
    /// What is asked for makes no sense for this table.
    #[error("{0}")]
    Options(String),
    /// Rows do not become pages.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The tables were opened for reading alone.
    #[error("the tables were opened for reading alone")]
    ReadOnly,
    /// A change failed in such a way that nobody knows whether it was made.
    #[error("{0}; nobody knows whether the change was made: open the tables again")]
    Doubtful(Box<TablesError>),
    /// An earlier change failed in such a way that nobody knows what is on the disk.
    #[error("an earlier change of the tables failed ({0}): open them again")]
    Failed(String),
}

impl TablesError {
    /// Returns what the error means of a change that was begun.
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

/// Adds to an error of the system what was to be done with what.
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
