//! A storage node as a node that runs tasks.

use std::iter;
use std::sync::Arc;

use bytes::Bytes;

use super::far::{Far, TaskStream};
use super::session::SessionError;
use crate::table::Table;
use crate::task::{TaskError, TaskNode};
use crate::wanted::Wanted;

impl TaskNode for Far {
    type Results =
        iter::Map<TaskStream, fn(Result<Bytes, SessionError>) -> Result<Bytes, TaskError>>;

    fn run_task(
        &self,
        table: &Arc<Table>,
        task: &[u8],
        wanted: &Wanted,
    ) -> Result<Self::Results, TaskError> {
        let stream = self.run(table, task)?.while_wanted(wanted);
        Ok(stream.map(|batch| batch.map_err(TaskError::from)))
    }
}

impl From<SessionError> for TaskError {
    fn from(error: SessionError) -> TaskError {
        let text = error.to_string();
        match error {
            SessionError::Lost(_) | SessionError::Busy(_) => TaskError::Lost(text),
            SessionError::Untaken(_) => TaskError::Untaken(text),
            // Tasks change nothing, so a node cannot be in doubt of one.
            SessionError::Refused(_) | SessionError::Doubtful(_) => TaskError::Refused(text),
            SessionError::Page(_) => TaskError::Remote(text),
            SessionError::Value(_) => TaskError::Value(text),
            SessionError::Unwanted(_) => TaskError::Unwanted,
        }
    }
}
