//! Taking and releasing locks, by one client with one connection.
//!
//! | keeper | who decides | to be had by |
//! |---|---|---|
//! | `memory` | a proxy, in its memory | RESP |
//! | `durable` | a proxy, in a store of its own on the disk | RESP |
//! | `replicated` | a proxy, in three Kumiki nodes with logs on the disk | RESP |
//! | `cql` | a proxy before one Cassandra node, in its memory | CQL |
//! | `lwt` | Cassandra nodes, each of which has everything | CQL |
//!
//! A run consists of slices, by turns: bare round trips over loopback, a proxy that keeps locks in
//! memory, and the keeper that is measured. So results that are compared were measured side by
//! side.

mod desk;
mod keepers;
mod turns;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::awake::Awake;
use crate::driver::Client;
use crate::latency::Latencies;
use crate::sample::{Check, RunError, Sample, Values};
use crate::target::Context;
use crate::target::bare::Bare;
use cassandra::Paxos;
use desk::{Desk, Lwt, Resp};
use keepers::Started;
use turns::{Took, Turns};

/// Slices of each kind in one run.
const SLICES: u64 = 8;
/// Turns of a proxy that are not counted.
const WARM_UP: u64 = 500;
/// Bytes of a request and of a reply on the bare connection: as long as those of `LOCK.ACQUIRE`.
const REQUEST: usize = 72;
const REPLY: usize = 36;

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeper {
    /// The proxy's memory.
    Memory,
    /// The proxy's own store.
    Durable,
    /// Three Kumiki nodes.
    Replicated,
    /// The proxy's memory, used like Cassandra.
    Cql,
    /// Cassandra.
    Lwt {
        /// How many nodes.
        nodes: u8,
        /// How they agree.
        paxos: Paxos,
    },
}

impl Keeper {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Keeper::Memory => "memory",
            Keeper::Durable => "durable",
            Keeper::Replicated => "replicated",
            Keeper::Cql => "cql",
            Keeper::Lwt { .. } => "lwt",
        }
    }
}

/// Locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksJob {
    /// The keeper of the locks.
    pub keeper: Keeper,
    /// How often one is taken and given back.
    pub turns: u64,
    /// The number of turns before that, which do not count. Java compiles code that it has often
    /// run.
    pub warm_up: u64,
}

pub(super) fn run(job: &LocksJob, context: &Context<'_>) -> Result<Sample, RunError> {
    let memory = keepers::start(Keeper::Memory, context)?;
    let started = match job.keeper {
        Keeper::Memory => None,
        other => Some(keepers::start(other, context)?),
    };
    // A thread that waits for the disk waits longer on a processor that sleeps.
    let awake = Awake::default();
    let mut sample = Sample::default();
    let measured = measure(job, context, &memory, started.as_ref(), &mut sample);
    drop(awake);
    let outcome = match measured {
        Err(RunError::Failed(what)) => Err(what),
        other => Ok(other?),
    };
    sample
        .checks
        .push(Check::new("every answer is right", outcome));
    Ok(sample)
}

fn measure(
    job: &LocksJob,
    context: &Context<'_>,
    memory: &Started,
    started: Option<&Started>,
    sample: &mut Sample,
) -> Result<(), RunError> {
    let failed = RunError::failed("connecting");
    let mut beside = Resp::connect(memory.address()).map(|desk| Turns::new(desk, false));
    let beside = beside.as_mut().map_err(|error| failed(error))?;
    let started = started.unwrap_or(memory);
    let address = started.address();
    match job.keeper {
        Keeper::Memory | Keeper::Durable | Keeper::Replicated => {
            let desk = Resp::connect(address).map_err(|error| failed(&error))?;
            slices(job, context, desk, beside, sample)
        }
        Keeper::Cql | Keeper::Lwt { .. } => {
            let desk = Lwt::connect(address).map_err(|error| failed(&error))?;
            slices(job, context, desk, beside, sample)
        }
    }
}

/// Measures bare round trips, the table in memory, and the keeper's, by turns.
fn slices<D: Desk>(
    job: &LocksJob,
    context: &Context<'_>,
    desk: D,
    beside: &mut Turns<Resp>,
    sample: &mut Sample,
) -> Result<(), RunError> {
    let mut own = Turns::new(desk, context.plant);
    let mut bare =
        Bare::new(REQUEST, REPLY).map_err(|error| RunError::failed("echoing")(&error))?;
    let is_memory = job.keeper == Keeper::Memory;
    let mut took = Slices::default();
    let ended = RunError::Failed;
    beside.run(WARM_UP, &mut Took::default()).map_err(ended)?;
    warm_up(job, context, &mut own)?;
    let turns = job.turns.div_ceil(SLICES);
    for _ in 0..SLICES {
        stop_if_asked(context)?;
        for _ in 0..turns {
            let begun = Instant::now();
            bare.run().map_err(ended)?;
            took.bare.record(begun.elapsed());
        }
        if !is_memory {
            beside.run(turns, &mut took.memory).map_err(ended)?;
        }
        own.run(turns, &mut took.own).map_err(ended)?;
    }
    took.tell(&mut sample.values);
    Ok(())
}

/// The times of all slices of a kind.
#[derive(Default)]
struct Slices {
    bare: Latencies,
    /// The times of the proxy beside it; empty if that is the keeper.
    memory: Took,
    own: Took,
}

impl Slices {
    fn tell(&self, values: &mut Values) {
        let Took { acquire, release } = &self.own;
        acquire.tell(values);
        values.set("latency-min", acquire.quantile_ms(0.0));
        values.set("release-p50", release.quantile_ms(0.5));
        values.set("release", release.mean_ms());
        values.set("release-p99", release.quantile_ms(0.99));
        values.set("round-trip", self.bare.quantile_ms(0.5));
        // Quotients by zero are no numbers, and are left out.
        let of =
            |own: &Latencies, memory: &Latencies| own.quantile_ms(0.5) / memory.quantile_ms(0.5);
        values.set("of-memory", of(acquire, &self.memory.acquire));
        values.set("release-of-memory", of(release, &self.memory.release));
    }
}

fn warm_up<D: Desk>(
    job: &LocksJob,
    context: &Context<'_>,
    own: &mut Turns<D>,
) -> Result<(), RunError> {
    let mut left = job.warm_up;
    while left > 0 {
        stop_if_asked(context)?;
        let some = left.min(100);
        own.run(some, &mut Took::default())
            .map_err(RunError::Failed)?;
        left -= some;
    }
    Ok(())
}

fn stop_if_asked(context: &Context<'_>) -> Result<(), RunError> {
    match context.stop.load(std::sync::atomic::Ordering::Relaxed) {
        true => Err(RunError::Interrupted),
        false => Ok(()),
    }
}
