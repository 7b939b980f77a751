//! Where fragments run.

use arrow_array::RecordBatch;
use pages::task::TaskError;

use crate::task::FragmentTask;

/// The result, batch by batch, with the schema of the fragment's output. Taking a batch waits until it is
/// there. After an error the iterator ends, and the batches before it are of no use.
pub type ResultBatches = Box<dyn Iterator<Item = Result<RecordBatch, TaskError>> + Send>;

/// Where fragments run: on this machine or on a storage node. A task runs on one thread.
pub trait Site: Send + Sync {
    /// Runs a task.
    fn run(&self, task: &FragmentTask) -> ResultBatches;
}
