//! Reads by the owner itself, when they are started.
//!
//! For files that lie in memory (`/dev/shm`), where there is no device to wait for and where
//! handing a read over costs a good part of the read itself. With other files the owner waits for
//! each read in its turn.

use super::read_job::{ReadJob, ReadOutcome};
use super::threaded_reads::ReadThreads;

/// See the [module](self).
pub(super) struct InlineReads;

impl ReadThreads for InlineReads {
    fn publish(&mut self, jobs: &mut Vec<ReadJob>, outcomes: &mut Vec<ReadOutcome>) {
        outcomes.extend(jobs.drain(..).map(|job| job.run()));
    }

    fn stop(&mut self) {}
}
