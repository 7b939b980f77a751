//! Reads by the owner itself, when they are started.
//!
//! For files that lie in memory (`/dev/shm`), where there is no device to wait for and where
//! handing a read over costs a good part of the read itself. With other files the owner waits for
//! each read in its turn.

use super::job::{Job, Outcome};
use super::threads::Team;

/// See the [module](self).
pub(super) struct OwnerAlone;

impl Team for OwnerAlone {
    fn publish(&mut self, jobs: &mut Vec<Job>, outcomes: &mut Vec<Outcome>) {
        outcomes.extend(jobs.drain(..).map(|job| job.run()));
    }

    fn stop(&mut self) {}
}
