//! The site that has another node run tasks beside its pages.
//!
//! Tasks are encoded by [`codec::encode_task`], and results as
//! [blocks](pages::block).

use std::iter;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use pages::block;
use pages::task::{TaskError, TaskNode};

use crate::codec;
use crate::site::{ResultBatches, Site};
use crate::task::{FragmentTask, refused};

/// Has a node run tasks beside its pages.
#[derive(Clone, Debug)]
pub struct RemoteSite<N> {
    node: N,
}

impl<N: TaskNode> RemoteSite<N> {
    /// Makes a site that runs tasks on this node.
    #[must_use]
    pub fn new(node: N) -> RemoteSite<N> {
        RemoteSite { node }
    }

    fn begin(&self, task: &FragmentTask) -> Result<N::Results, TaskError> {
        let bytes = codec::encode_task(task)?;
        self.node.run_task(&task.table, &bytes, &task.wanted)
    }
}

impl<N: TaskNode> Site for RemoteSite<N> {
    fn run(&self, task: &FragmentTask) -> ResultBatches {
        match self.begin(task) {
            Ok(stream) => Box::new(DecodedBatches {
                stream: Some(stream),
                schema: Arc::clone(&task.fragment.output),
            }),
            Err(error) => Box::new(iter::once(Err(error))),
        }
    }
}

/// A task's results, decoded as they come.
struct DecodedBatches<S> {
    /// `None` after an error: batches after a missing one would look like a complete result.
    stream: Option<S>,
    schema: SchemaRef,
}

impl<S: Iterator<Item = Result<Bytes, TaskError>>> Iterator for DecodedBatches<S> {
    type Item = Result<RecordBatch, TaskError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.stream.as_mut()?.next()?;
        let batch = batch.and_then(|bytes| {
            // A node that sends an invalid batch is not asked again.
            block::decode(bytes, &self.schema).map_err(refused)
        });
        if batch.is_err() {
            self.stream = None;
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    #[test]
    fn after_what_is_no_batch_nothing_comes() {
        let rows = 8192;
        let numbers: ArrayRef = Arc::new((0..rows).collect::<Int64Array>());
        let texts = (0..rows).map(|n| format!("{n:04000}"));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap();
        let mut bytes = Vec::new();
        block::encode(&batch, &mut bytes).unwrap();
        let mut torn = bytes.clone();
        torn[0] ^= 1;
        let sent = [bytes.clone(), torn, bytes].map(|bytes| Ok(bytes.into()));
        let mut results = DecodedBatches {
            stream: Some(sent.into_iter()),
            schema: batch.schema(),
        };
        assert_eq!(results.next().unwrap().unwrap(), batch);
        let error = results.next().unwrap().unwrap_err();
        assert!(matches!(error, TaskError::Refused(_)), "{error}");
        assert!(results.next().is_none(), "it goes on behind a gap");
    }
}
