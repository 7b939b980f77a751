//! A task that a node runs, as the caller that waits for its results sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::session::{TableHandle, TaskEvent};
use super::session_pool::{PooledSession, SessionPool};
use crate::cancellation::Cancellation;
use crate::error::Error;

/// How long one turn of a waiting reader sleeps.
const TURN: Duration = Duration::from_millis(100);
/// Batches that may come before they are taken.
const CREDIT: u32 = 4;

/// A task's results, in the order in which the task has made them. Dropping it cancels the task.
pub struct TaskStream {
    pool: Arc<SessionPool>,
    /// The session; `None` when the task is over.
    pooled: Option<PooledSession>,
    task: u32,
    cancellation: Cancellation,
}

impl std::fmt::Debug for TaskStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TaskStream").field(&self.task).finish()
    }
}

impl TaskStream {
    pub(super) fn new(
        pool: Arc<SessionPool>,
        mut pooled: PooledSession,
        open: &TableHandle,
        task: &[u8],
    ) -> Result<TaskStream, Error> {
        let task = pooled.session.run(open, CREDIT, task)?;
        // The task is sent before the caller waits for it.
        pooled.session.turn(Duration::ZERO)?;
        let pooled = Some(pooled);
        let cancellation = Cancellation::default();
        Ok(TaskStream {
            pool,
            pooled,
            task,
            cancellation,
        })
    }

    /// Cancels the task, and ends with [`Error::Unwanted`], when it is cancelled.
    #[must_use]
    pub fn until_cancelled(mut self, cancellation: &Cancellation) -> TaskStream {
        self.cancellation = cancellation.clone();
        self
    }

    /// Waits for the next event, and lets the node send another batch for one that was taken.
    fn event(&mut self) -> Result<TaskEvent, Error> {
        let Some(pooled) = &mut self.pooled else {
            return Ok(TaskEvent::Finished);
        };
        let patience = self.pool.options.session.patience;
        let begun = Instant::now();
        loop {
            if let Some(event) = pooled.session.next_event(self.task) {
                if matches!(event, TaskEvent::Batch(_)) {
                    pooled.session.give_credit(self.task, 1)?;
                }
                return Ok(event);
            }
            if self.cancellation.is_cancelled() {
                let text = "no reader waits for a task's results any more".to_owned();
                return Err(Error::Unwanted(text));
            }
            // A task may take long and say nothing; but its node reports that it is under way.
            let next_event = pooled.session.last_heard(self.task).unwrap_or(begun);
            if next_event.max(begun).elapsed() > patience {
                let address = pooled.session.address();
                let text =
                    format!("storage node {address}: nothing was heard of a task in {patience:?}");
                return Err(Error::Lost(text));
            }
            pooled.session.turn(TURN)?;
        }
    }
}

impl Iterator for TaskStream {
    type Item = Result<Bytes, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pooled.as_ref()?;
        match self.event() {
            Ok(TaskEvent::Batch(batch)) => Some(Ok(batch)),
            Ok(TaskEvent::Finished) => {
                if let Some(pooled) = self.pooled.take() {
                    self.pool.give_back(pooled);
                }
                None
            }
            Ok(TaskEvent::Failed(error)) => {
                // The session is as good as before.
                if let Some(pooled) = self.pooled.take() {
                    self.pool.give_back(pooled);
                }
                Some(Err(error))
            }
            Err(error @ Error::Unwanted(_)) => {
                self.cancel();
                Some(Err(error))
            }
            Err(error) => {
                self.pooled = None;
                Some(Err(error))
            }
        }
    }
}

impl TaskStream {
    fn cancel(&mut self) {
        if let Some(mut pooled) = self.pooled.take()
            && pooled.session.cancel(self.task).is_ok()
            && pooled.session.turn(Duration::ZERO).is_ok()
        {
            self.pool.give_back(pooled);
        }
    }
}

impl Drop for TaskStream {
    fn drop(&mut self) {
        self.cancel();
    }
}
