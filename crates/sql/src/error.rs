//! The error of this crate, but for DataFusion's own, which statements have.

use pages::ErrorClass;

/// Why tables are not available, or a request is not possible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The error of a store: a directory of tables, or a storage node.
    #[error(transparent)]
    Pages(#[from] pages::Error),
    /// A table is damaged.
    #[error("it is damaged: {0}; load it again, or remove it")]
    Damaged(String),
    /// The error of looking a table up in all stores.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The request is not possible, or a file has other contents than it should; the text says what to do.
    #[error("{0}")]
    Invalid(String),
    /// The system refuses.
    #[error("{0}")]
    System(String),
    /// The error of a file that is loaded.
    #[error("{file}: {source}")]
    File {
        /// The file's path.
        file: String,
        /// What is wrong.
        source: Box<Error>,
    },
}

impl Error {
    /// Returns what the caller may do.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Pages(error) => error.class(),
            Error::Damaged(_) => ErrorClass::Damaged,
            Error::Catalogue(CatalogueError::Ambiguous { .. }) | Error::Invalid(_) => {
                ErrorClass::Caller
            }
            Error::Catalogue(_) => ErrorClass::Retry,
            Error::System(_) => ErrorClass::System,
            Error::File { source, .. } => source.class(),
        }
    }
}

impl From<String> for Error {
    /// Makes the error of a request that is not possible.
    fn from(what: String) -> Error {
        Error::Invalid(what)
    }
}

impl From<&str> for Error {
    /// Makes the error of a request that is not possible.
    fn from(what: &str) -> Error {
        Error::Invalid(what.to_owned())
    }
}

/// Why a table is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CatalogueError {
    /// Stores have different tables of one name.
    #[error(
        "there are different tables named {name}, in {first} and in {second}: rename one of them, \
         or leave one of the two places out"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// A store that has one.
        first: String,
        /// A store that has another one.
        second: String,
    },
    /// No store has the table, and some cannot be asked.
    #[error("{store} cannot be asked for table {name}: {why}")]
    Unavailable {
        /// The name.
        name: String,
        /// One of the stores that cannot be asked.
        store: String,
        /// The error of the store, or of the system.
        why: String,
    },
    /// None of the stores can be asked.
    #[error("{store} cannot be asked for its tables: {why}")]
    Away {
        /// One of the stores.
        store: String,
        /// The error of the store, or of the system.
        why: String,
    },
    /// A newer version was seen before, and some stores cannot be asked.
    #[error(
        "table {name} is there in version {found}, of {seen} that was read before, and {store} cannot be \
         asked: {why}; ask again when it is back, or begin anew to read the older version"
    )]
    Older {
        /// The name.
        name: String,
        /// The newest version that is available.
        found: u64,
        /// The newest version that was found before.
        seen: u64,
        /// One of the stores that cannot be asked.
        store: String,
        /// The error of the store, or of the system.
        why: String,
    },
}
