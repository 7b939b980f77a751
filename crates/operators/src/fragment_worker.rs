//! The operators of a storage node: they run the tasks of its readers beside its pages.

use std::sync::Arc;

use pages::block;
use pages::node::{OpenTable, Output, TaskRunner};
use pages::task::{TaskError, WorkTimes};
use pages::{Error, PageError, Source};

use crate::codec;
use crate::local_site::LocalSite;
use crate::site::Site;
use crate::work_costs::WorkCosts;

/// About the most bytes of a batch that travels, unless it has a single row.
const BATCH_BYTES: usize = 4 << 20;

/// Runs fragments over a storage node's own pages.
pub struct FragmentWorker {
    site: LocalSite,
    costs: Arc<WorkCosts>,
}

impl FragmentWorker {
    /// Makes a worker over pages from this source.
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> FragmentWorker {
        let costs = Arc::new(WorkCosts::default());
        FragmentWorker {
            site: LocalSite::new(source).measured(&costs),
            costs,
        }
    }
}

impl TaskRunner for FragmentWorker {
    fn run(&self, table: &Arc<OpenTable>, task: &[u8], out: &mut dyn Output) -> Result<(), Error> {
        let table = table.table.as_ref();
        let table = table.ok_or_else(|| Error::Refused("a file has no rows".to_owned()))?;
        let task = codec::decode_task(table, task, out.cancellation()).map_err(error_of)?;
        for batch in self.site.run(&task) {
            for part in block::parts(batch.map_err(error_of)?, BATCH_BYTES) {
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

fn error_of(error: TaskError) -> Error {
    let text = error.to_string();
    match error {
        // A reader that hears it without having ended the task may have another node run it.
        TaskError::Unwanted => Error::Busy(text),
        TaskError::Page(PageError::Lost { .. }) | TaskError::Lost(_) => Error::Busy(text),
        TaskError::Page(_) | TaskError::Remote(_) => Error::Page(text),
        TaskError::ResultsNotTaken(_) => Error::ResultsNotTaken(text),
        TaskError::Value(_) => Error::Value(text),
        TaskError::Refused(_) => Error::Refused(text),
    }
}

#[cfg(test)]
mod tests;
