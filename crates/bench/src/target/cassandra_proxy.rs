//! Requests to real Cassandra nodes, directly and through the proxy before them, by turns.
//!
//! A run has both ways, in pairs: results that are compared were measured side by side, on the same
//! nodes.

mod job;
mod paced;
mod system;
mod ycsb;

pub use job::{CassandraJob, CassandraLoad};

use crate::error::RunError;
use crate::run_context::RunContext;
use crate::sample::{Check, RunSample};

pub(super) fn run(job: &CassandraJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let system = system::CassandraSystem::start(job, context)?;
    let mut sample = RunSample::default();
    let measured = match job.load {
        CassandraLoad::Paced {
            version,
            rate,
            warm_up,
        } => {
            let plan = paced::PacedLoad {
                version: system::version(version)?,
                rate,
                warm_up,
                clients: job.clients,
            };
            paced::measure(&plan, &system, context, &mut sample)
        }
        CassandraLoad::Ycsb {
            version,
            records,
            pairs,
            seconds,
        } => {
            let plan = ycsb::YcsbPlan {
                version,
                records,
                seconds,
                clients: job.clients,
            };
            ycsb::measure(&plan, pairs, &system, context, &mut sample)
        }
    };
    let outcome = match measured {
        Err(wrong @ RunError::Failed(_)) => Err(wrong),
        other => Ok(other?),
    };
    let check = Check::new("every answer is right", outcome);
    sample.checks.push(check);
    Ok(sample)
}
