//! The error of this crate, on disks and at storage nodes alike.
//!
//! | what went wrong | error | [class](ErrorClass) |
//! |---|---|---|
//! | one page | [`PageError`](crate::PageError), which names the page | see there |
//! | a table, a load, a directory, a node | [`Error`] | [`Error::class`] |
//!
//! A failure of a node travels as a class and a text (module `protocol`); the reader makes the same error of
//! it, whose text then names the node.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use base::codec::Malformed;
use disk::LockError;

use crate::row::BadForm;
use crate::segment::{GroupsError, RowsError};

/// What the caller may do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// Ask again later; another node may do it now.
    Retry,
    /// Ask another node that has the same table.
    OtherNode,
    /// Load the table again, or read a replica: what was written is damaged, or cannot be read.
    Damaged,
    /// Ask for something else: the request is not possible here.
    Caller,
    /// Find out whether a change was made before it is requested again.
    Doubtful,
    /// See to the machine: its disks, or its system, fail.
    System,
}

/// An error of a table, of a load, of a directory of tables, or of a storage node. The text of a node's error
/// names the node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// Columns cannot be grouped so.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The options are invalid, for this table or on this machine.
    #[error("{0}")]
    Options(String),
    /// Rows cannot be stored in pages.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The tables were opened for reading only.
    #[error("the tables were opened for reading alone")]
    ReadOnly,
    /// An earlier change failed in such a way that the state of the disk is unknown.
    #[error("an earlier change of the tables failed ({0}): open them again")]
    Failed(String),
    /// It is unknown whether a requested change was made.
    #[error(
        "{0}; it is unknown whether the change was made: open the tables again, or see with 'kumiki pages ls'"
    )]
    Doubtful(String),
    /// The load was asked to stop.
    #[error("stopped")]
    Stopped,
    /// A node cannot be reached, or the link has gone down. Another node that has the pages may be asked.
    #[error("{0}")]
    Lost(String),
    /// A node has too much to do, or is ending. Another node, or the same one later, may do it.
    #[error("{0}")]
    Busy(String),
    /// A node has ended a task whose results were not taken for long. The node works as before, and another
    /// node would wait in vain, too.
    #[error("{0}")]
    ResultsNotTaken(String),
    /// A node does not support the request, or does not have the table.
    #[error("{0}")]
    Refused(String),
    /// A node's peer has sent a message that is not in the protocol's format.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A page is corrupt, or cannot be read.
    #[error("{0}")]
    Page(String),
    /// A value cannot be computed.
    #[error("{0}")]
    Value(String),
    /// The caller no longer wants the answer.
    #[error("{0}")]
    Unwanted(String),
    /// One of several storage nodes has failed, or is lost; nothing has changed on any of them.
    #[error("storage node {node}: {why}")]
    Replica {
        /// The node.
        node: String,
        /// Its error.
        why: String,
        /// The class of its error.
        class: ErrorClass,
    },
    /// Several storage nodes have different versions of a table.
    #[error("{0}")]
    Different(String),
    /// Some of several storage nodes have made a change, or may have, and others have not.
    #[error(transparent)]
    Partial(#[from] Box<PartialChange>),
}

/// Some storage nodes have made a change, or may have, and others have not.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}: {}: {remedy}", listed(done, doubtful, failed))]
pub struct PartialChange {
    /// The operation, such as `making version 3 of table t`.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// Addresses of the nodes on which it is done.
    pub done: Vec<String>,
    /// Addresses of the nodes for which the outcome is unknown, and the reason.
    pub doubtful: Vec<(String, String)>,
    /// Addresses of the nodes on which it is not done, and their errors.
    pub failed: Vec<(String, String)>,
}

impl Error {
    /// Makes the error of a request that is not possible here.
    pub(crate) fn refused(why: impl Display) -> Error {
        Error::Refused(why.to_string())
    }

    /// Returns what the caller may do.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Busy(_) | Error::Lock(_) => ErrorClass::Retry,
            Error::Lost(_) => ErrorClass::OtherNode,
            Error::Damaged { .. } | Error::Page(_) | Error::Different(_) => ErrorClass::Damaged,
            Error::Doubtful(_) | Error::Partial(_) => ErrorClass::Doubtful,
            Error::Io { .. } | Error::Failed(_) => ErrorClass::System,
            Error::Replica { class, .. } => *class,
            Error::Directories(_)
            | Error::Unknown { .. }
            | Error::Exists(_)
            | Error::BadName(_)
            | Error::Form(_)
            | Error::Groups(_)
            | Error::Options(_)
            | Error::Rows(_)
            | Error::ReadOnly
            | Error::Stopped
            | Error::ResultsNotTaken(_)
            | Error::Refused(_)
            | Error::Malformed(_)
            | Error::Value(_)
            | Error::Unwanted(_) => ErrorClass::Caller,
        }
    }

    /// Returns the error of a node once more, for another thread that waits for the same answer.
    pub(crate) fn copied(&self) -> Error {
        let text = self.to_string();
        match self {
            Error::Lost(_) => Error::Lost(text),
            Error::Busy(_) => Error::Busy(text),
            Error::Page(_) => Error::Page(text),
            _ => Error::Refused(text),
        }
    }

    /// Converts the error of a change that was begun on this machine: it is unknown whether it was made.
    pub(crate) fn of_begun_change(self) -> Error {
        Error::Doubtful(self.to_string())
    }

    /// Converts an error after a node was asked for a change: if the node is lost, it is unknown whether it
    /// had made the change before.
    pub(crate) fn of_requested_change(self) -> Error {
        match self {
            Error::Lost(why) => Error::Doubtful(why),
            known => known,
        }
    }
}

fn known(tables: &[String]) -> String {
    match tables {
        [] => "there are none: load one".to_owned(),
        some => format!("there are: {}", some.join(", ")),
    }
}

fn listed(done: &[String], doubtful: &[(String, String)], failed: &[(String, String)]) -> String {
    let each = |nodes: &[(String, String)]| {
        let nodes = nodes.iter().map(|(node, why)| format!("{node} ({why})"));
        nodes.collect::<Vec<_>>().join(", ")
    };
    let all = [
        ("done on ", done.join(", ")),
        ("it is unknown whether it is done on ", each(doubtful)),
        ("not done on ", each(failed)),
    ];
    let all = all.iter().filter(|(_, nodes)| !nodes.is_empty());
    let all = all.map(|(what, nodes)| format!("{what}{nodes}"));
    all.collect::<Vec<_>>().join("; ")
}

/// Adds the operation and the path to an error of the system.
pub(crate) trait At<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            what,
            path: path.to_owned(),
            source,
        })
    }
}
