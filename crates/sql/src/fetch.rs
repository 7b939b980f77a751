//! A task's batches as a stream.
//!
//! Sites' iterators block: on pages, on the network. So each task has a thread of its own, which hands
//! batches over through a bounded channel; DataFusion's runtime never waits for a page. Dropping the
//! stream closes the channel, and the thread ends. Until then it shares the query's held resources.
//!
//! **When a node is lost.** A task that has handed nothing over begins anew on the next replica. A task
//! that has handed something over ends with an error: it cannot be taken back, and another replica yields
//! rows in another order. The results of aggregates and limits are mostly short; as long as there is
//! another replica they are handed over only after the last batch, so that the task can begin anew at any
//! point. If they are longer than [`KEPT_BYTES`], the kept batches are handed over then, and the rest as
//! they come: a replica is not worth a memory full of results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, RecordOutput};
use futures::Stream;
use operators::{Cancellation, FragmentTask, FragmentWork, Site, TaskError};
use tokio::sync::mpsc;

use crate::query_resources::QueryResources;

/// Batches that wait to be taken, for each task.
const AHEAD: usize = 4;
/// The most bytes of batches that a task keeps so that it can begin anew if its node is lost.
const KEPT_BYTES: usize = 64 << 20;

/// A site that may run a task.
#[derive(Clone)]
pub(crate) struct Candidate {
    /// The store's name.
    pub(crate) name: String,
    /// The site.
    pub(crate) site: Arc<dyn Site>,
}

/// The counts of a task's thread.
pub(crate) struct TaskMetrics {
    pub(crate) baseline: BaselineMetrics,
    /// Replicas that were lost.
    pub(crate) lost: Count,
}

/// Runs a task at the first of these sites that is not lost.
pub(crate) fn fetch(
    candidates: Vec<Candidate>,
    task: FragmentTask,
    metrics: TaskMetrics,
    resources: Option<Arc<QueryResources>>,
) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send {
    let run = TaskRun {
        candidates,
        task,
        metrics,
        kept_bytes: KEPT_BYTES,
        _resources: resources,
    };
    // The thread begins when the first batch is requested, and no earlier.
    futures::stream::unfold(State::New(Box::new(run)), |state| async move {
        let mut batches = match state {
            State::New(run) => match run.begin() {
                Ok(batches) => batches,
                Err(error) => return Some((Err(error), State::Ended)),
            },
            State::Running(batches) => batches,
            State::Ended => return None,
        };
        match batches.recv().await? {
            Ok(batch) => Some((Ok(batch), State::Running(batches))),
            Err(error) => Some((Err(error), State::Ended)),
        }
    })
}

type Receiver = mpsc::Receiver<Result<RecordBatch, DataFusionError>>;
type Sender = mpsc::Sender<Result<RecordBatch, DataFusionError>>;

enum State {
    New(Box<TaskRun>),
    Running(Receiver),
    Ended,
}

struct TaskRun {
    candidates: Vec<Candidate>,
    task: FragmentTask,
    metrics: TaskMetrics,
    /// See [`KEPT_BYTES`].
    kept_bytes: usize,
    _resources: Option<Arc<QueryResources>>,
}

/// The result of an attempt to run a task at one site.
enum Attempt {
    /// The task has completed, or no more batches are wanted.
    Complete,
    /// The node was lost, and nothing was handed over: another site may run the task.
    Lost(TaskError),
}

impl TaskRun {
    fn begin(self: Box<TaskRun>) -> Result<Receiver, DataFusionError> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let thread = std::thread::Builder::new().name("scan".to_owned());
        thread
            .spawn(move || self.run_whole(&sender))
            .map_err(|error| {
                DataFusionError::Execution(format!("no thread for a scan: {error}"))
            })?;
        Ok(receiver)
    }

    /// Runs the task, and reports a panic: a channel that is closed early looks like one whose batches are
    /// all there.
    fn run_whole(&self, sender: &Sender) {
        let run = AssertUnwindSafe(|| self.run(sender));
        if catch_unwind(run).is_err() {
            let table = &self.task.table.name;
            let error = DataFusionError::Execution(format!(
                "table {table}: a scan panicked, and the log says where: this is an error of the program"
            ));
            drop(sender.blocking_send(Err(error)));
        }
    }

    fn run(&self, sender: &Sender) {
        let mut last = None;
        for (place, candidate) in self.candidates.iter().enumerate() {
            let others = self.candidates.len() - place - 1;
            match self.run_at(candidate, others > 0, sender) {
                Ok(Attempt::Complete) => return,
                Ok(Attempt::Lost(error)) => {
                    tracing::warn!("{} is lost to a scan: {error}", candidate.name);
                    self.metrics.lost.add(1);
                    last = Some(error);
                }
                Err(error) => {
                    drop(sender.blocking_send(Err(error)));
                    return;
                }
            }
        }
        let table = &self.task.table.name;
        let error = last.map_or_else(
            || DataFusionError::Execution(format!("no node can run a scan of table {table}")),
            |error| failed(table, &error),
        );
        drop(sender.blocking_send(Err(error)));
    }

    /// Runs the task at one site; `others` is `true` if there are further ones.
    fn run_at(
        &self,
        candidate: &Candidate,
        others: bool,
        sender: &Sender,
    ) -> Result<Attempt, DataFusionError> {
        let failed = |error| failed(&self.task.table.name, &error);
        let mut keeps = others && is_short(&self.task.fragment.work);
        let (mut kept, mut bytes) = (Vec::new(), RecordBatchMemoryCounter::new());
        let mut handed_over = false;
        // The question holds a sender of its own, so it must not outlive this call.
        let asked = sender.clone();
        let task = FragmentTask {
            wanted: Cancellation::new(move || asked.is_closed()),
            ..self.task.clone()
        };
        let mut batches = candidate.site.run(&task);
        loop {
            let begun = Instant::now();
            let next = batches.next();
            let time = self.metrics.baseline.elapsed_compute();
            time.add_duration(begun.elapsed());
            match next {
                None => break,
                Some(Err(error @ TaskError::Lost(_))) if !handed_over => {
                    return Ok(Attempt::Lost(error));
                }
                Some(Err(error)) => return Err(failed(error)),
                Some(Ok(batch)) if keeps => {
                    bytes.count_batch(&batch);
                    kept.push(batch);
                    if bytes.memory_usage() > self.kept_bytes {
                        (keeps, handed_over) = (false, true);
                        if self.hand_over_all(&mut kept, sender).is_err() {
                            return Ok(Attempt::Complete);
                        }
                    }
                }
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => {
                    handed_over = true;
                    if self.hand_over(batch, sender).is_err() {
                        return Ok(Attempt::Complete);
                    }
                }
            }
        }
        // It makes no difference any more whether the batches are wanted.
        let _ = self.hand_over_all(&mut kept, sender);
        Ok(Attempt::Complete)
    }

    /// Hands the kept batches over. Returns the errors of [`TaskRun::hand_over`].
    fn hand_over_all(&self, kept: &mut Vec<RecordBatch>, sender: &Sender) -> Result<(), ()> {
        kept.drain(..)
            .try_for_each(|batch| self.hand_over(batch, sender))
    }

    /// Hands a batch over. Returns an error if the receiver is gone.
    fn hand_over(&self, batch: RecordBatch, sender: &Sender) -> Result<(), ()> {
        let batch = batch.record_output(&self.metrics.baseline);
        sender.blocking_send(Ok(batch)).map_err(drop)
    }
}

/// Returns `true` if a task mostly yields so little that it can be kept until its end.
fn is_short(work: &FragmentWork) -> bool {
    match work {
        FragmentWork::Aggregate { .. } => true,
        FragmentWork::Rows { limit, .. } => limit.is_some_and(|limit| limit <= 65_536),
    }
}

/// Converts an error to that which the client gets.
fn failed(table: &str, error: &TaskError) -> DataFusionError {
    match error {
        // The words are those of DataFusion's own errors of evaluation. They name no table, as the query
        // is at fault.
        TaskError::Value(what) => DataFusionError::Execution(what.clone()),
        TaskError::Page(_) | TaskError::Remote(_) => DataFusionError::Execution(format!(
            "table {table}: {error}; 'kumiki pages check' says what is damaged"
        )),
        TaskError::Lost(what) => DataFusionError::Execution(format!(
            "table {table}: a storage node was lost in the middle of the query, and no other one \
             can go on from there: {what}; ask again"
        )),
        TaskError::ResultsNotTaken(what) => DataFusionError::Execution(format!(
            "table {table}: {what}: ask again and take the rows faster, or let the scan run here \
             (SET kumiki.placement = 'remote-local')"
        )),
        TaskError::Refused(what) => DataFusionError::Execution(format!(
            "table {table}: a storage node refused its part of the query: {what}"
        )),
        TaskError::Unwanted => DataFusionError::Execution(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
