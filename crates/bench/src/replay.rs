//! The page accesses of a real query, recorded to be replayed (paper 4, section 4.4.5).
//!
//! TPC-H's third query is executed as a classic row store does it, by index-nested-loop joins over
//! pages of 16 KiB (`index_join`): all customers are read; for those of a segment, their orders through
//! an index; for each order that is early enough, its lineitems, which lie in the order of their
//! orders. Its answer is compared with that of a plain computation over the rows (`plain_computation`). Each
//! page that the joins request is an access of the [`PageTrace`], whether it was requested before or
//! not: no cache has influenced it.
//!
//! In a trace the tables' files follow one another:
//!
//! | blocks | of |
//! |---|---|
//! | the first | customer |
//! | then | the index of orders by customer |
//! | then | orders |
//! | the last | lineitem |
//!
//! A replay reads at each access's offset: as many bytes as its unit has, from the beginning of the
//! unit that has the offset. So it has as many reads as the trace has accesses, with any unit.

mod index_join;
mod plain_computation;
mod shipping_priority;
mod stored_tables;

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

pub use stored_tables::PAGE;

use crate::error::RunError;
use crate::parameters::Effort;
use crate::run_context::{RunContext, StorageMedium};

/// The file's length is a multiple of this, the largest unit.
const WHOLE: u64 = 128 << 10;

/// The page accesses of a query.
#[derive(Clone, Debug)]
pub struct PageTrace {
    /// Blocks of [`PAGE`] bytes, in the order in which they were requested.
    pub accesses: Vec<u32>,
    /// Blocks of all tables.
    pub blocks: u32,
    /// An error if the query's answer was not that of the plain computation.
    pub answer: Result<(), RunError>,
}

impl PageTrace {
    /// Returns the offset of an access.
    #[must_use]
    pub fn offset(&self, access: usize) -> u64 {
        u64::from(self.accesses[access]) * PAGE as u64
    }

    /// Returns the length in bytes of the file that it is replayed on.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (u64::from(self.blocks) * PAGE as u64).next_multiple_of(WHOLE)
    }

    /// Returns the number of different units of so many bytes that a replay reads.
    #[must_use]
    pub fn touched(&self, unit: usize) -> usize {
        let units = |access| self.offset(access) / unit as u64;
        (0..self.accesses.len())
            .map(units)
            .collect::<HashSet<_>>()
            .len()
    }
}

/// The trace that all points of an experiment replay.
#[derive(Default)]
pub(crate) struct RecordedTrace(Mutex<Option<Arc<PageTrace>>>);

impl RecordedTrace {
    /// Returns the trace, which is recorded on the first call.
    pub(crate) fn get(&self, context: &RunContext<'_>) -> Result<Arc<PageTrace>, RunError> {
        let mut recorded = self.0.lock();
        if let Some(trace) = &*recorded {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(record(context)?);
        *recorded = Some(Arc::clone(&trace));
        Ok(trace)
    }
}

/// Loads the tables, executes the query, and compares its answer.
fn record(context: &RunContext<'_>) -> Result<PageTrace, RunError> {
    let factor = match context.scale.effort {
        Effort::Tiny => 0.002,
        Effort::Quick => 0.1,
        Effort::Full => 1.0,
    };
    let dir = context.directory(StorageMedium::Disk)?;
    let failed = |error: RunError| RunError::failed("executing a query to be replayed")(&error);
    let mut tables = stored_tables::load(dir.path(), factor).map_err(failed)?;
    let answer = index_join::execute(&mut tables).map_err(failed)?;
    let compared = match plain_computation::answer(factor) {
        right if right.is_empty() => Err(RunError::Failed("no order fits the query".to_owned())),
        right if right == answer => Ok(()),
        right => Err(RunError::Failed(format!(
            "the query gives {} orders, which are not the {} that there are",
            answer.len(),
            right.len()
        ))),
    };
    Ok(PageTrace {
        accesses: tables.accesses,
        blocks: tables.blocks,
        answer: compared,
    })
}
