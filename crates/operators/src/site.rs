//! Where fragments run.

use std::sync::Arc;

use arrow_array::RecordBatch;
use pages::{PageError, SegmentId, Table, Wanted};

use crate::fragment::Fragment;

/// Some of a segment's rows, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// Whose.
    pub segment: SegmentId,
    /// The first.
    pub from: u64,
    /// Behind the last.
    pub to: u64,
}

/// A fragment, and the rows over which it runs.
#[derive(Clone, Debug)]
pub struct Task {
    /// Whose rows.
    pub table: Arc<Table>,
    /// What is done.
    pub fragment: Arc<Fragment>,
    /// With which rows.
    pub rows: Vec<Rows>,
    /// Whether anybody still wants what comes out. It is asked for every vector of rows, so that a
    /// task that yields nothing for long ends early, too: with [`TaskError::Unwanted`].
    pub wanted: Wanted,
}

/// What comes out, batch by batch, with the schema of the fragment's output. Whoever takes a batch
/// waits until it is there. After an error the iterator ends; what came before is of no use then.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, TaskError>> + Send>;

/// Where fragments run: on this machine or on a storage node. A task runs on one thread.
pub trait Site: Send + Sync {
    /// Runs a task.
    fn run(&self, task: &Task) -> Batches;
}

impl From<PageError> for TaskError {
    /// A node that is gone loses its pages as it loses its tasks.
    fn from(error: PageError) -> TaskError {
        match error {
            PageError::Lost { .. } => TaskError::Lost(error.to_string()),
            _ => TaskError::Page(error),
        }
    }
}

/// Why a task did not come to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TaskError {
    /// A page is corrupt, or cannot be read.
    #[error(transparent)]
    Page(PageError),
    /// A page is corrupt, or cannot be read, at the node that ran the task.
    #[error("{0}")]
    Remote(String),
    /// A value cannot be computed: an overflow, a division by zero, a cast without a result.
    #[error("{0}")]
    Value(String),
    /// The node that ran it is gone; another one that has the pages may run it.
    #[error("{0}")]
    Lost(String),
    /// Nobody took what came out for so long that the node has ended the task: another one would do so, too.
    #[error("{0}")]
    Untaken(String),
    /// The node does not run it: it does not know the table's version, or the task makes no sense.
    #[error("{0}")]
    Refused(String),
    /// Whoever had it run wants nothing of it any more.
    #[error("a task has ended before its time: nobody wants what comes out of it any more")]
    Unwanted,
}

/// Whether a task is to go on.
///
/// # Errors
/// [`TaskError::Unwanted`] if not.
#[inline]
pub(crate) fn check_wanted(wanted: &Wanted) -> Result<(), TaskError> {
    wanted.is().then_some(()).ok_or(TaskError::Unwanted)
}
