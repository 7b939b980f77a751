//! What runs tasks: the part of a query that runs beside the pages.

use std::sync::Arc;

use super::storage::OpenTable;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::task::WorkTimes;

/// Runs tasks.
pub trait TaskRunner: Send + Sync {
    /// Runs a task over a table, and gives its results to `out`. As long as it has no results it asks
    /// regularly whether they are [wanted](Output::cancellation), and ends when they are not.
    ///
    /// # Errors
    /// Returns why the task did not complete.
    fn run(&self, table: &Arc<OpenTable>, task: &[u8], out: &mut dyn Output) -> Result<(), Error>;

    /// Returns the recent costs of tasks, for readers that choose where to run theirs.
    fn times(&self) -> WorkTimes {
        WorkTimes::default()
    }
}

/// The receiver of a task's results.
pub trait Output {
    /// Takes a batch, and waits for room for it. Returns `false` if no more batches are wanted.
    fn batch(&mut self, batch: Vec<u8>) -> bool;

    /// Returns what tells whether more results are wanted.
    fn cancellation(&self) -> Cancellation;
}

/// A worker that runs no tasks.
#[derive(Clone, Copy, Debug)]
pub struct NoWorker;

impl TaskRunner for NoWorker {
    fn run(&self, _: &Arc<OpenTable>, _: &[u8], _: &mut dyn Output) -> Result<(), Error> {
        let text = "this node gives pages away and runs no operators";
        Err(Error::Refused(text.to_owned()))
    }
}
