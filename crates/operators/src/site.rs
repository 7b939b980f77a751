//! Where fragments run.

use std::sync::Arc;

use arrow_array::RecordBatch;
use pages::{Cancellation, PageError, SegmentId, Table};

use crate::fragment::Fragment;

/// Consecutive rows of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// The segment.
    pub segment: SegmentId,
    /// The first row.
    pub from: u64,
    /// The row after the last.
    pub to: u64,
}

/// A fragment, and the rows over which it runs.
#[derive(Clone, Debug)]
pub struct Task {
    /// The table.
    pub table: Arc<Table>,
    /// The work.
    pub fragment: Arc<Fragment>,
    /// The rows.
    pub rows: Vec<Rows>,
    /// Answers whether the result is still wanted. It is asked for every vector of rows, so that a task that
    /// yields nothing for long ends early, too: with [`TaskError::Unwanted`].
    pub wanted: Cancellation,
}

/// The result, batch by batch, with the schema of the fragment's output. Taking a batch waits until it is
/// there. After an error the iterator ends, and the batches before it are of no use.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, TaskError>> + Send>;

/// Where fragments run: on this machine or on a storage node. A task runs on one thread.
pub trait Site: Send + Sync {
    /// Runs a task.
    fn run(&self, task: &Task) -> Batches;
}

impl From<PageError> for TaskError {
    /// Converts the error. A node that is lost loses its pages and its tasks alike.
    fn from(error: PageError) -> TaskError {
        match error {
            PageError::Lost { .. } => TaskError::Lost(error.to_string()),
            _ => TaskError::Page(error),
        }
    }
}

/// Why a task did not complete.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TaskError {
    /// A page is corrupt, or cannot be read.
    #[error(transparent)]
    Page(PageError),
    /// A page is corrupt, or cannot be read, on the node that ran the task.
    #[error("{0}")]
    Remote(String),
    /// A value cannot be computed: an overflow, a division by zero, a cast without a result.
    #[error("{0}")]
    Value(String),
    /// The node that ran it is lost; another node that has the pages may run it.
    #[error("{0}")]
    Lost(String),
    /// The result was not taken for so long that the node has ended the task. Another node would do so, too.
    #[error("{0}")]
    Untaken(String),
    /// The node does not run it: it does not know the table's version, or the task is invalid.
    #[error("{0}")]
    Refused(String),
    /// The caller no longer wants the result.
    #[error("a task has ended before its time: its results are not wanted any more")]
    Unwanted,
}

/// Checks that a task is still wanted.
///
/// # Errors
/// Returns [`TaskError::Unwanted`] if it is not.
#[inline]
pub(crate) fn check_wanted(wanted: &Cancellation) -> Result<(), TaskError> {
    match wanted.is_cancelled() {
        true => Err(TaskError::Unwanted),
        false => Ok(()),
    }
}
