//! Requests to real Cassandra nodes, directly and through the proxy before them, by turns.
//!
//! | load | clients | results |
//! |---|---|---|
//! | paced | on a schedule, over bare connections, with prepared statements | latency, beside a bare round trip |
//! | YCSB | YCSB's core with a Cassandra binding of ours over the Java driver: workload A, as fast as it goes | throughput, latency, processor time of the nodes |
//!
//! A run has both ways, in pairs: results that are compared were measured side by side, on the same
//! nodes.

mod paced;
mod system;
mod ycsb;

use serde::{Deserialize, Serialize};

use crate::sample::{Check, RunError, Sample};
use crate::target::Context;

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// On a schedule.
    Paced {
        /// The version of the protocol: 4 or 5.
        version: u8,
        /// Requests a second of all clients together.
        rate: f64,
        /// Requests before that, each way, that are not counted. Java compiles code that it has
        /// often run.
        warm_up: u64,
    },
    /// YCSB's workload A.
    Ycsb {
        /// The version of the protocol: 4 or 5.
        version: u8,
        /// Records of a kilobyte.
        records: u64,
        /// Pairs that are counted; one is run before.
        pairs: usize,
        /// How long each half of a pair takes, in seconds.
        seconds: u64,
    },
}

/// Requests to Cassandra.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeforeJob {
    /// The kind of requests.
    pub load: Load,
    /// Cassandra nodes, each with a copy of everything.
    pub nodes: u8,
    /// `true` if all nodes share one processor.
    pub pinned: bool,
    /// Connections of clients: to each node, or to the proxy.
    pub clients: usize,
}

pub(super) fn run(job: &BeforeJob, context: &Context<'_>) -> Result<Sample, RunError> {
    let system = system::System::start(job, context)?;
    let mut sample = Sample::default();
    let measured = match job.load {
        Load::Paced {
            version,
            rate,
            warm_up,
        } => {
            let plan = paced::Paced {
                version: system::version(version)?,
                rate,
                warm_up,
                clients: job.clients,
            };
            paced::measure(&plan, &system, context, &mut sample)
        }
        Load::Ycsb {
            version,
            records,
            pairs,
            seconds,
        } => {
            let plan = ycsb::Plan {
                version,
                records,
                seconds,
                clients: job.clients,
            };
            ycsb::measure(&plan, pairs, &system, context, &mut sample)
        }
    };
    let outcome = match measured {
        Err(RunError::Failed(what)) => Err(what),
        other => Ok(other?),
    };
    let check = Check::new("every answer is right", outcome);
    sample.checks.push(check);
    Ok(sample)
}
