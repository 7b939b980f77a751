//! Tasks: work that is done beside pages, as the code that has it done sees it.
//!
//! This says nothing of links and messages. A [storage node](crate::remote) is one kind of [`TaskNode`].

use std::sync::Arc;

use bytes::Bytes;

use crate::cancellation::Cancellation;
use crate::page::PageError;
use crate::table::Table;

/// A node that runs tasks beside its pages.
pub trait TaskNode: Send + Sync {
    /// The results of a task, in the order in which the task makes them. The iterator ends when the task
    /// is complete, or after an error. Dropping it cancels the task.
    type Results: Iterator<Item = Result<Bytes, TaskError>> + Send + 'static;

    /// Begins a task over a table. It is cancelled when its results are no longer `wanted`.
    ///
    /// # Errors
    /// Returns an error if the node cannot be reached, or does not take the task.
    fn run_task(
        &self,
        table: &Arc<Table>,
        task: &[u8],
        wanted: &Cancellation,
    ) -> Result<Self::Results, TaskError>;
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
    ResultsNotTaken(String),
    /// The node does not run it: it does not know the table's version, or the task is invalid.
    #[error("{0}")]
    Refused(String),
    /// The caller no longer wants the result.
    #[error("a task has ended before its time: its results are not wanted any more")]
    Unwanted,
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

/// The costs of operators beside pages for a thread, in picoseconds; 0 where too little was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkTimes {
    /// The processor's time for an operation on a row.
    pub operation_ps: u64,
    /// The processor's time for a page: to ask for it and to verify it.
    pub page_ps: u64,
    /// The time for a page, waiting included.
    pub wait_ps: u64,
}
