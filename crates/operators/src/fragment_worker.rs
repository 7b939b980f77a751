//! The operators of a storage node: they run the tasks of its readers beside its pages.

use std::sync::Arc;

use pages::block;
use pages::node::{Opened, Outcome, Output, Worker};
use pages::task::{TaskError, WorkTimes};
use pages::{PageError, Source};

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

impl Worker for FragmentWorker {
    fn run(&self, table: &Arc<Opened>, task: &[u8], out: &mut dyn Output) -> Result<(), Outcome> {
        let table = table.table.as_ref();
        let table = table.ok_or_else(|| Outcome::Refused("a file has no rows".to_owned()))?;
        let task = codec::decode_task(table, task, out.wanted()).map_err(outcome)?;
        for batch in self.site.run(&task) {
            for part in block::parts(batch.map_err(outcome)?, BATCH_BYTES) {
                let mut bytes = Vec::new();
                let encoded = block::encode(&part, &mut bytes);
                encoded.map_err(|error| Outcome::Refused(error.to_string()))?;
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

fn outcome(error: TaskError) -> Outcome {
    let text = error.to_string();
    match error {
        // A reader that hears it without having ended the task may have another node run it.
        TaskError::Unwanted => Outcome::Busy(text),
        TaskError::Page(PageError::Lost { .. }) | TaskError::Lost(_) => Outcome::Busy(text),
        TaskError::Page(_) | TaskError::Remote(_) => Outcome::Page(text),
        TaskError::Untaken(_) => Outcome::Untaken(text),
        TaskError::Value(_) => Outcome::Value(text),
        TaskError::Refused(_) => Outcome::Refused(text),
    }
}

#[cfg(test)]
mod tests;
