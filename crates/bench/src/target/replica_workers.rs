//! Workers of a leader that execute at the same time before one log: real ones, and more of them simulated
//! with service times that are measured here.
//!
//! A job is one of two kinds. If the workers are *real*, a [`ReplicasJob`] is driven, and the same is
//! simulated on one machine with as many processors as this one has: this shows the quality of the
//! simulation. Otherwise there are only simulated workers and members, each with a processor of its own.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::replicas::{self, Consensus, ReplicasJob};
use crate::error::RunError;
use crate::run_context::RunContext;
use crate::sample::{Check, MetricValues, RunSample};
use crate::simulation::Machines;
use crate::simulation::costs::Line;
use crate::simulation::groups::{self, GroupConfig, GroupCosts};

/// The time for which a message is under way between machines: a network within one building.
const BETWEEN_MACHINES: Duration = Duration::from_micros(25);
/// The same within one machine; its processor time is in the service times.
const WITHIN_A_MACHINE: Duration = Duration::from_micros(2);
/// Clients of the runs in which service times are measured: groups of one, and larger ones.
const CALIBRATED: [usize; 3] = [1, 8, 64];
/// The number of groups by which measured sizes, which are no whole numbers, are multiplied.
const GROUPS: f64 = 1000.0;

/// Workers of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaWorkersJob {
    /// The members, the workers, the clients and their transactions.
    pub replicas: ReplicasJob,
    /// `true` if real ones are measured beside the simulated ones.
    pub real: bool,
    /// Simulated transactions.
    pub transactions: usize,
}

/// Service times that were measured; once for each number of transactions in a request.
#[derive(Default)]
struct GroupCalibrations(Mutex<HashMap<usize, (GroupCosts, Vec<Check>)>>);

pub(super) fn run(
    job: &ReplicaWorkersJob,
    context: &RunContext<'_>,
) -> Result<RunSample, RunError> {
    let known = context.round_state.get::<GroupCalibrations>();
    let (costs, checks) = known.of(&job.replicas, context)?;
    let mut sample = RunSample {
        checks,
        ..RunSample::default()
    };
    if job.real {
        let measured = replicas::run(&job.replicas, context)?;
        sample.checks.extend(measured.checks);
        sample.values = measured.values;
    }
    if sample.checks.iter().any(|check| check.failure.is_some()) {
        return Ok(sample);
    }
    let Consensus::Group(group) = job.replicas.consensus else {
        return Err("plain Raft does not execute before consensus".into());
    };
    let (machines, delay) = match job.real {
        true => (Machines::Shared(context.scale.cores), WITHIN_A_MACHINE),
        false => (Machines::Apart, BETWEEN_MACHINES),
    };
    let simulated = groups::run(&GroupConfig {
        members: job.replicas.nodes,
        workers: job.replicas.workers,
        clients: job.replicas.clients,
        group,
        machines,
        delay,
        costs,
        transactions: job.transactions,
    });
    let values = &mut sample.values;
    match values.get("throughput").filter(|_| job.real) {
        Some(real) => {
            let rate = simulated.throughput * job.replicas.bulk as f64;
            values.set("simulated", rate);
            values.set("of-real", rate / real);
            values.set("off", (rate / real - 1.0).abs());
        }
        None => {
            let rate = simulated.throughput * job.replicas.bulk as f64;
            values.set("throughput", rate);
            values.set("latency", simulated.latency.as_secs_f64() * 1e3);
            values.set("entries-per-group", simulated.entries_per_group);
        }
    }
    Ok(sample)
}

impl GroupCalibrations {
    /// Returns the service times of such transactions, which are measured on the first call, and the checks of
    /// those runs.
    fn of(
        &self,
        job: &ReplicasJob,
        context: &RunContext<'_>,
    ) -> Result<(GroupCosts, Vec<Check>), RunError> {
        let mut known = self.0.lock();
        if let Some(measured) = known.get(&job.bulk) {
            return Ok(measured.clone());
        }
        let measured = measure(job, context)?;
        known.insert(job.bulk, measured.clone());
        Ok(measured)
    }
}

fn measure(
    job: &ReplicasJob,
    context: &RunContext<'_>,
) -> Result<(GroupCosts, Vec<Check>), RunError> {
    let mut checks = Vec::new();
    let (mut leader, mut follower) = (Vec::new(), Vec::new());
    let mut worker = 0.0;
    for clients in CALIBRATED {
        let shape = ReplicasJob {
            clients,
            workers: 1,
            ..*job
        };
        let sample = replicas::run(&shape, context)?;
        checks.extend(sample.checks);
        let Some(size) = sample.values.get("entries-per-group") else {
            break;
        };
        // A request is one transaction here, as it is one entry.
        let nanoseconds = |metric| of_request(&sample.values, metric, job.bulk);
        let terms = [GROUPS as usize, (size * GROUPS) as usize, 0, 0];
        leader.push((terms, nanoseconds("leader-cpu") * size * GROUPS));
        follower.push((terms, nanoseconds("follower-cpu") * size * GROUPS));
        // That of many clients: a worker that simulations keep busy is one that has much to do.
        worker = nanoseconds("worker-cpu");
    }
    let costs = GroupCosts {
        worker,
        leader: Line::fit(&leader),
        follower: Line::fit(&follower),
    };
    Ok((costs, checks))
}

/// Returns the processor time of a request of `bulk` transactions, in nanoseconds.
fn of_request(values: &MetricValues, metric: &str, bulk: usize) -> f64 {
    values.get(metric).unwrap_or_default() * 1e3 * bulk as f64
}
