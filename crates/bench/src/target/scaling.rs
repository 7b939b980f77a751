//! Transactions over many partitions, simulated with service times that are measured here.
//!
//! A job is one of two kinds. If the partitions are *real*, as many server processes with a thread
//! each are driven, like a [`ClusterJob`], and the same is simulated on one machine with as many
//! processors as this one has: this shows the quality of the simulation. Otherwise there are only
//! simulated partitions, each on a machine of its own.

mod calibration;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::keys::Distribution;
use crate::run_context::RunContext;
use crate::sample::{Check, RunSample};
use crate::simulation::{self, Machines, SimulationConfig};
use crate::systems::{AtomicityProtocol, ClusterTransport};
use crate::target::cluster::{self, ClusterJob};

use calibration::Calibrations;

/// The time for which a message is under way between machines: a network within one building.
const BETWEEN_MACHINES: Duration = Duration::from_micros(25);
/// The same within one machine; its processor time is in the service times.
const WITHIN_A_MACHINE: Duration = Duration::from_micros(2);

/// Transactions over many partitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleJob {
    /// The way by which transactions are atomic.
    #[serde(rename = "way")]
    pub protocol: AtomicityProtocol,
    /// Partitions, each on a server with one thread.
    pub partitions: usize,
    /// `true` if real ones are measured beside the simulated ones.
    pub real: bool,
    /// Clients of each partition; of real ones, of all.
    pub clients: usize,
    /// Keys in all.
    pub keys: u64,
    /// How they are drawn.
    pub draws: Distribution,
    /// Keys in a transaction.
    pub width: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Share of transactions that read, from 0 to 1.
    pub reads: f64,
    /// Simulated transactions.
    pub transactions: usize,
}

pub(super) fn run(job: &ScaleJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let measured = context
        .round_state
        .get::<Calibrations>()
        .of(job.protocol, context)?;
    let mut sample = match job.real {
        // Simulated clients run RAMP's reads by themselves.
        true => cluster::run_with(&job.cluster(), client::Reads::Direct, context)?,
        false => RunSample::default(),
    };
    let (machines, clients, delay) = match job.real {
        true => (
            Machines::Shared(context.scale.cores),
            job.clients,
            WITHIN_A_MACHINE,
        ),
        false => (
            Machines::Apart,
            job.clients * job.partitions,
            BETWEEN_MACHINES,
        ),
    };
    let config = SimulationConfig {
        protocol: job.protocol,
        partitions: job.partitions,
        clients,
        keys: job.keys,
        draws: job.draws,
        width: job.width,
        value: job.value,
        reads: job.reads,
        machines,
        delay,
        costs: measured,
        transactions: job.transactions,
        seed: context.seed,
        plant: context.plant,
    };
    let simulated = simulation::run(&config);
    let check = simulated.clone().map(drop);
    let what = "no simulated read is fractured";
    sample.checks.push(Check::new(what, check));
    let Ok(simulated) = simulated else {
        return Ok(sample);
    };
    let values = &mut sample.values;
    if let (true, Some(real)) = (job.real, values.get("throughput")) {
        let ratio = simulated.throughput / real;
        values.set("simulated", simulated.throughput);
        values.set("of-real", ratio);
        values.set("off", (ratio - 1.0).abs());
    } else if !job.real {
        let each = simulated.throughput / job.partitions as f64;
        values.set("throughput", simulated.throughput);
        values.set("per-partition", each);
        values.set("latency", simulated.latency.as_secs_f64() * 1e3);
        if let Some(share) = simulated.one_round {
            values.set("one-round", share);
        }
    }
    values.set("simulated-cpu", simulated.service.as_secs_f64() * 1e6);
    values.set("messages", simulated.messages);
    values.set("bytes", simulated.bytes);
    Ok(sample)
}

impl ScaleJob {
    fn cluster(&self) -> ClusterJob {
        ClusterJob {
            nodes: self.partitions,
            server_threads: Some(1),
            threads: self.clients,
            protocol: self.protocol,
            keys: self.keys,
            draws: self.draws,
            width: self.width,
            value: self.value,
            reads: self.reads,
            log: None,
            transport: ClusterTransport::Tcp,
        }
    }
}
