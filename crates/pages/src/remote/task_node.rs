//! A storage node as a node that runs tasks.

use std::iter;
use std::sync::Arc;

use bytes::Bytes;

use super::remote_node::RemoteNode;
use super::task_stream::TaskStream;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::table::Table;
use crate::task::{TaskError, TaskNode};

impl TaskNode for RemoteNode {
    type Results = iter::Map<TaskStream, fn(Result<Bytes, Error>) -> Result<Bytes, TaskError>>;

    fn run_task(
        &self,
        table: &Arc<Table>,
        task: &[u8],
        wanted: &Cancellation,
    ) -> Result<Self::Results, TaskError> {
        let stream = self.run(table, task)?.until_cancelled(wanted);
        Ok(stream.map(|batch| batch.map_err(TaskError::from)))
    }
}

impl From<Error> for TaskError {
    fn from(error: Error) -> TaskError {
        let text = error.to_string();
        match error {
            Error::Lost(_) | Error::Busy(_) => TaskError::Lost(text),
            Error::ResultsNotTaken(_) => TaskError::ResultsNotTaken(text),
            Error::Page(_) => TaskError::Remote(text),
            Error::Value(_) => TaskError::Value(text),
            Error::Unwanted(_) => TaskError::Unwanted,
            // Tasks change nothing, so a node cannot be in doubt of one.
            _ => TaskError::Refused(text),
        }
    }
}
