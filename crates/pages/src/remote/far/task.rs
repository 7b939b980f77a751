//! A task that a node runs, as the caller that waits for its results sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Held, Inner, TURN};
use crate::Wanted;
use crate::remote::session::{Open, SessionError, TaskEvent};

/// Batches that may come before they are taken.
const CREDIT: u32 = 4;

/// A task's results, in the order in which the task has made them. Dropping it cancels the task.
pub struct TaskStream {
    inner: Arc<Inner>,
    /// The session; `None` when the task is over.
    held: Option<Held>,
    task: u32,
    wanted: Wanted,
}

impl std::fmt::Debug for TaskStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TaskStream").field(&self.task).finish()
    }
}

impl TaskStream {
    pub(super) fn new(
        inner: Arc<Inner>,
        mut held: Held,
        open: &Open,
        task: &[u8],
    ) -> Result<TaskStream, SessionError> {
        let task = held.session.run(open, CREDIT, task)?;
        // The task is sent before the caller waits for it.
        held.session.turn(Duration::ZERO)?;
        let held = Some(held);
        let wanted = Wanted::default();
        Ok(TaskStream {
            inner,
            held,
            task,
            wanted,
        })
    }

    /// Cancels the task, and ends with [`SessionError::Unwanted`], when it is no longer wanted.
    #[must_use]
    pub fn while_wanted(mut self, wanted: &Wanted) -> TaskStream {
        self.wanted = wanted.clone();
        self
    }

    /// Waits for the next event, and lets the node send another batch for one that was taken.
    fn event(&mut self) -> Result<TaskEvent, SessionError> {
        let Some(held) = &mut self.held else {
            return Ok(TaskEvent::Finished);
        };
        let patience = self.inner.options.session.patience;
        let begun = Instant::now();
        loop {
            if let Some(event) = held.session.heard(self.task) {
                if matches!(event, TaskEvent::Batch(_)) {
                    held.session.give_credit(self.task, 1)?;
                }
                return Ok(event);
            }
            if !self.wanted.is() {
                let text = "no reader waits for a task's results any more".to_owned();
                return Err(SessionError::Unwanted(text));
            }
            // A task may take long and say nothing; but its node reports that it is under way.
            let heard = held.session.heard_of(self.task).unwrap_or(begun);
            if heard.max(begun).elapsed() > patience {
                let address = held.session.address();
                let text =
                    format!("storage node {address}: nothing was heard of a task in {patience:?}");
                return Err(SessionError::Lost(text));
            }
            held.session.turn(TURN)?;
        }
    }
}

impl Iterator for TaskStream {
    type Item = Result<Bytes, SessionError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.held.as_ref()?;
        match self.event() {
            Ok(TaskEvent::Batch(batch)) => Some(Ok(batch)),
            Ok(TaskEvent::Finished) => {
                if let Some(held) = self.held.take() {
                    self.inner.give_back(held);
                }
                None
            }
            Ok(TaskEvent::Failed(error)) => {
                // The session is as good as before.
                if let Some(held) = self.held.take() {
                    self.inner.give_back(held);
                }
                Some(Err(error))
            }
            Err(error @ SessionError::Unwanted(_)) => {
                self.cancel();
                Some(Err(error))
            }
            Err(error) => {
                self.held = None;
                Some(Err(error))
            }
        }
    }
}

impl TaskStream {
    fn cancel(&mut self) {
        if let Some(mut held) = self.held.take()
            && held.session.cancel(self.task).is_ok()
            && held.session.turn(Duration::ZERO).is_ok()
        {
            self.inner.give_back(held);
        }
    }
}

impl Drop for TaskStream {
    fn drop(&mut self) {
        self.cancel();
    }
}
