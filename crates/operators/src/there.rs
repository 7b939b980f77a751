//! The site that has a storage node run tasks, and the operators that the node runs them with.
//!
//! A task travels as the number of bytes of its rows (`u32`), its [rows](crate::codec::encode_rows), and
//! its [fragment](crate::codec::encode). Results travel as [blocks](pages::block).

use std::iter;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use pages::block;
use pages::node::{OpenTable, Output, Worker};
use pages::remote::{RemoteNode, TaskStream, WorkTimes};
use pages::{Cancellation, Error, PageError, Source, Table};

use crate::codec;
use crate::fragment::Fragment;
use crate::here::Here;
use crate::measure::WorkCosts;
use crate::site::{Batches, Site, Task, TaskError};

/// About the most bytes of a batch that travels, unless it has a single row.
const BATCH_BYTES: usize = 4 << 20;

/// Has a storage node run tasks beside its pages.
#[derive(Clone, Debug)]
pub struct There {
    node: RemoteNode,
}

impl There {
    /// Makes a site that runs tasks on this node.
    #[must_use]
    pub fn new(node: RemoteNode) -> There {
        There { node }
    }

    fn begin(&self, task: &Task) -> Result<TaskStream, TaskError> {
        let bytes = encode(task)?;
        let stream = self.node.run(&task.table, &bytes)?;
        Ok(stream.until_cancelled(&task.wanted))
    }
}

impl Site for There {
    fn run(&self, task: &Task) -> Batches {
        match self.begin(task) {
            Ok(stream) => Box::new(Results {
                stream: Some(stream),
                schema: Arc::clone(&task.fragment.output),
            }),
            Err(error) => Box::new(iter::once(Err(error))),
        }
    }
}

/// Returns a task as bytes.
fn encode(task: &Task) -> Result<Vec<u8>, TaskError> {
    let rows = codec::encode_rows(&task.rows);
    let fragment = codec::encode(&task.fragment);
    let fragment = fragment.map_err(|error| TaskError::Refused(error.to_string()))?;
    let len = u32::try_from(rows.len());
    let len = len.map_err(|_| TaskError::Refused("a task over too many ranges of rows".into()))?;
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend(rows);
    bytes.extend(fragment);
    Ok(bytes)
}

/// Returns the task of a table from bytes, which may be anything.
fn decode(table: &Arc<Table>, bytes: &[u8], wanted: Cancellation) -> Result<Task, String> {
    let (len, rest) = bytes.split_first_chunk().ok_or("a task without rows")?;
    let len = u32::from_le_bytes(*len) as usize;
    let (rows, fragment) = rest.split_at_checked(len).ok_or("a task that is cut off")?;
    let rows = codec::decode_rows(rows).map_err(|error| error.to_string())?;
    let fragment: Fragment = codec::decode(fragment).map_err(|error| error.to_string())?;
    fragment
        .check_table(table)
        .map_err(|error| error.to_string())?;
    Ok(Task {
        table: Arc::clone(table),
        fragment: Arc::new(fragment),
        rows,
        wanted,
    })
}

/// A task's results, as they come.
struct Results<S> {
    /// `None` after an error: batches after a missing one would look like a complete result.
    stream: Option<S>,
    schema: SchemaRef,
}

impl<S: Iterator<Item = Result<Bytes, Error>>> Iterator for Results<S> {
    type Item = Result<RecordBatch, TaskError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.stream.as_mut()?.next()?;
        let batch = batch.map_err(TaskError::from).and_then(|bytes| {
            // A node that sends an invalid batch is not asked again.
            block::decode(bytes, &self.schema)
                .map_err(|error| TaskError::Refused(error.to_string()))
        });
        if batch.is_err() {
            self.stream = None;
        }
        Some(batch)
    }
}

impl From<Error> for TaskError {
    fn from(error: Error) -> TaskError {
        let text = error.to_string();
        match error {
            Error::Lost(_) | Error::Busy(_) => TaskError::Lost(text),
            Error::Untaken(_) => TaskError::Untaken(text),
            Error::Page(_) => TaskError::Remote(text),
            Error::Value(_) => TaskError::Value(text),
            Error::Unwanted(_) => TaskError::Unwanted,
            // Tasks change nothing, so a node cannot be in doubt of one.
            _ => TaskError::Refused(text),
        }
    }
}

/// Runs operators over a storage node's own pages.
pub struct Operators {
    here: Here,
    costs: Arc<WorkCosts>,
}

impl Operators {
    /// Makes operators over pages from this source.
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> Operators {
        let costs = Arc::new(WorkCosts::default());
        Operators {
            here: Here::new(source).measured(&costs),
            costs,
        }
    }
}

impl Worker for Operators {
    fn run(&self, table: &Arc<OpenTable>, task: &[u8], out: &mut dyn Output) -> Result<(), Error> {
        let table = table.table.as_ref();
        let table = table.ok_or_else(|| Error::Refused("a file has no rows".to_owned()))?;
        let task = decode(table, task, out.cancellation()).map_err(Error::Refused)?;
        for batch in self.here.run(&task) {
            for part in block::parts(batch.map_err(outcome)?, BATCH_BYTES) {
                let mut bytes = Vec::new();
                let encoded = block::encode(&part, &mut bytes);
                encoded.map_err(|error| Error::Refused(error.to_string()))?;
                if !out.batch(bytes) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn times(&self) -> WorkTimes {
        self.costs.times()
    }
}

fn outcome(error: TaskError) -> Error {
    let text = error.to_string();
    match error {
        // A reader that hears it without having ended the task may have another node run it.
        TaskError::Unwanted => Error::Busy(text),
        TaskError::Page(PageError::Lost { .. }) | TaskError::Lost(_) => Error::Busy(text),
        TaskError::Page(_) | TaskError::Remote(_) => Error::Page(text),
        TaskError::Untaken(_) => Error::Untaken(text),
        TaskError::Value(_) => Error::Value(text),
        TaskError::Refused(_) => Error::Refused(text),
    }
}

#[cfg(test)]
mod tests;
