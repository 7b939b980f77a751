//! Measures service times: transactions of known shapes on real servers, and the processor time
//! that client, coordinator and participants use for them.
//!
//! A shape says how many keys are of which server. The first server has most of them, so that it
//! coordinates: the costs of the coordinator and of the others are distinguished by the process
//! that used the time. But a server that coordinates everything is busy, and does many things at
//! once for the price of fewer. So shapes are measured once more with rotating roles, and all
//! service times are scaled to what servers, and the client, use then.

use std::collections::HashMap;
use std::time::Duration;

use client::Client;
use cluster::slot::{self, SLOTS};
use fastrand::Rng;
use parking_lot::Mutex;

use crate::driver::{Completions, DONE, DrivePlan, LoadSchedule, WindowEdge};
use crate::error::RunError;
use crate::machine;
use crate::run_context::{RunContext, StorageMedium};
use crate::simulation::costs::{Cost, Line, ServiceTimes};
use crate::stamp::Stamp;
use crate::systems::{AtomicityProtocol, ClusterShape, KumikiCluster};

const NODES: usize = 4;
const THREADS: u32 = 8;
const KEYS: u64 = 1000;
const VALUE: usize = 1024;
/// Processor times of other processes are counted in hundredths of a second.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(1000);

/// Keys of each server.
type KeysPerServer = [usize; NODES];

/// Transactions of one server alone, …
const SINGLE: [KeysPerServer; 2] = [[1, 0, 0, 0], [8, 0, 0, 0]];
/// … of several, …
const SEVERAL: [KeysPerServer; 5] = [
    [2, 1, 0, 0],
    [3, 2, 2, 1],
    [6, 1, 0, 0],
    [6, 5, 0, 0],
    [5, 4, 4, 4],
];
/// … and those with rotating roles.
const ROUND: [KeysPerServer; 4] = [[2, 1, 1, 0], [1, 1, 1, 1], [2, 2, 0, 0], [4, 3, 2, 2]];

/// Service times that were measured; each way once.
#[derive(Default)]
pub(super) struct Calibrations(Mutex<HashMap<AtomicityProtocol, ServiceTimes>>);

impl Calibrations {
    /// Returns those of a way, which are measured on the first call.
    pub(super) fn of(
        &self,
        protocol: AtomicityProtocol,
        context: &RunContext<'_>,
    ) -> Result<ServiceTimes, RunError> {
        let mut known = self.0.lock();
        if let Some(costs) = known.get(&protocol) {
            return Ok(*costs);
        }
        let costs = measure(protocol, context)?;
        known.insert(protocol, costs);
        Ok(costs)
    }
}

/// The costs of a transaction of a shape, in nanoseconds.
struct TransactionCosts {
    keys: KeysPerServer,
    client: f64,
    servers: Vec<f64>,
}

fn measure(
    protocol: AtomicityProtocol,
    context: &RunContext<'_>,
) -> Result<ServiceTimes, RunError> {
    let binary = context.unrecorded_server()?;
    let dir = context.directory(StorageMedium::Memory)?;
    let shape = ClusterShape {
        threads: Some(1),
        ..ClusterShape::partitions(NODES)
    };
    let mut servers = KumikiCluster::new(binary, dir.path(), shape)?;
    servers.start()?;
    let client = servers.connect(client::Reads::Direct)?;
    let all: Vec<u64> = (0..KEYS).collect();
    let filled = protocol.load_all(&client, &all, VALUE);
    filled.map_err(|error| RunError::failed("loading")(&error))?;
    let mut lists = vec![Vec::new(); NODES];
    for key in all {
        let slot = slot::of(&protocol.key(key));
        lists[usize::from(slot) * NODES / usize::from(SLOTS)].push(key);
    }
    let bench = ShapeBench {
        protocol,
        context,
        servers: &servers,
        client: &client,
        lists: &lists,
    };
    Ok(ServiceTimes {
        read: bench.cost(false)?,
        write: bench.cost(true)?,
    })
}

struct ShapeBench<'b> {
    protocol: AtomicityProtocol,
    context: &'b RunContext<'b>,
    servers: &'b KumikiCluster,
    client: &'b Client,
    /// The keys of each server.
    lists: &'b [Vec<u64>],
}

impl ShapeBench<'_> {
    /// Returns the service times of reads, or of writes.
    fn cost(&self, writes: bool) -> Result<Cost, RunError> {
        let spent =
            |shapes: &[KeysPerServer], round: bool| -> Result<Vec<TransactionCosts>, RunError> {
                let shapes = shapes.iter();
                shapes
                    .map(|keys| self.spent(*keys, writes, round))
                    .collect()
            };
        let (single, several) = (spent(&SINGLE, false)?, spent(&SEVERAL, false)?);
        let round = spent(&ROUND, true)?;
        let asks_all = self.protocol != AtomicityProtocol::S2pl && !writes;
        let all = || single.iter().chain(&several);
        let client: Vec<_> = all().map(|one| one.of_client(asks_all)).collect();
        let coordinator: Vec<_> = several
            .iter()
            .map(TransactionCosts::of_coordinator)
            .collect();
        let only: Vec<_> = single.iter().map(|one| one.of_server(0)).collect();
        let first = if asks_all { 0 } else { 1 };
        let others = several.iter().flat_map(|one| {
            let asked = (first..NODES).filter(|&at| one.keys[at] > 0);
            asked.map(|at| one.of_server(at))
        });
        let mut participants: Vec<_> = others.collect();
        if asks_all {
            participants.extend(&only);
        }
        let cost = Cost {
            client: Line::fit(&client),
            coordinator: match asks_all {
                true => Line::default(),
                false => Line::fit(&coordinator),
            },
            participant: Line::fit(&participants),
            single: Line::fit(&only),
        };
        let [client, servers] = scales(&cost, &round, asks_all);
        Ok(Cost {
            client: cost.client.times(client),
            coordinator: cost.coordinator.times(servers),
            participant: cost.participant.times(servers),
            single: cost.single,
        })
    }

    /// Drives transactions of one shape.
    fn spent(
        &self,
        keys: KeysPerServer,
        writes: bool,
        round: bool,
    ) -> Result<TransactionCosts, RunError> {
        let drivers = (1..=THREADS).map(|writer| ShapeClient {
            bench: self,
            keys,
            writes,
            round,
            rng: Rng::with_seed(u64::from(writer)),
            stamp: Stamp {
                writer,
                sequence: 1,
            },
        });
        let time = self.context.scale.time * 2;
        let plan = DrivePlan {
            pace: LoadSchedule::Closed,
            warm_up: self.context.scale.warm_up / 2,
            time: time.clamp(SHORTEST, LONGEST),
        };
        let mut used = [Vec::new(), Vec::new()];
        let at = |moment| {
            let mut all = self.servers.cpu_of_each();
            all.push(machine::own_cpu());
            used[usize::from(moment == WindowEdge::End)] = all;
        };
        let (stop, completions) = (self.context.stop, Completions::default());
        let driven = crate::driver::drive(drivers.collect(), &completions, plan, stop, at);
        let transactions = driven?.0.transactions.max(1) as f64;
        let [before, after] = used;
        let spent = after.iter().zip(&before);
        let mut spent: Vec<f64> = spent.map(|(b, a)| (b - a) * 1e9 / transactions).collect();
        let client = spent.pop().expect("the client's was noted last");
        Ok(TransactionCosts {
            keys,
            client,
            servers: spent,
        })
    }
}

/// Returns the factors by which client and servers use more time than computed when roles rotate.
fn scales(cost: &Cost, round: &[TransactionCosts], asks_all: bool) -> [f64; 2] {
    let (mut used, mut computed) = ([0.0; 2], [0.0; 2]);
    for one in round {
        let others = if asks_all { 0 } else { 1 };
        let others = one.keys[others..].iter().filter(|&&keys| keys > 0);
        let others = others.map(|&keys| cost.participant.of([1, keys, 0, 0]));
        used[0] += one.client;
        used[1] += one.servers.iter().sum::<f64>();
        computed[0] += cost.client.of(one.of_client(asks_all).0);
        computed[1] += cost.coordinator.of(one.of_coordinator().0) + others.sum::<f64>();
    }
    let scale = |at: usize| match computed[at] > 0.0 && used[at] > 0.0 {
        true => used[at] / computed[at],
        false => 1.0,
    };
    [scale(0), scale(1)]
}

/// The terms of a [`Line`], and their value.
type LineSample = ([usize; 4], f64);

impl TransactionCosts {
    fn of_client(&self, asks_all: bool) -> LineSample {
        let servers = self.keys.iter().filter(|&&keys| keys > 0).count();
        let asked = if asks_all { servers } else { 1 };
        ([1, asked, self.keys.iter().sum(), 0], self.client)
    }

    fn of_coordinator(&self) -> LineSample {
        let [own, others @ ..] = self.keys;
        let count = others.iter().filter(|&&keys| keys > 0).count();
        let far = others.iter().sum();
        ([1, count, own, far], self.servers[0])
    }

    fn of_server(&self, at: usize) -> LineSample {
        ([1, self.keys[at], 0, 0], self.servers[at])
    }
}

/// One thread of the client.
struct ShapeClient<'b> {
    bench: &'b ShapeBench<'b>,
    keys: KeysPerServer,
    writes: bool,
    /// `true` if another server has the first one's part each time.
    round: bool,
    rng: Rng,
    stamp: Stamp,
}

impl crate::driver::BlockingClient for ShapeClient<'_> {
    fn run(&mut self) -> Result<u64, RunError> {
        let mut keys = Vec::new();
        let first = if self.round {
            self.rng.usize(..NODES)
        } else {
            0
        };
        let lists = self.bench.lists.iter().cycle().skip(first);
        for (list, count) in lists.zip(self.keys) {
            let some = self.rng.choose_multiple(list.iter().copied(), count);
            keys.extend(some);
        }
        let (protocol, client) = (self.bench.protocol, self.bench.client);
        if self.writes {
            self.stamp.sequence += 1;
            protocol.write(client, &keys, self.stamp, VALUE)?;
        } else {
            protocol.read(client, &keys, VALUE)?;
        }
        Ok(DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), RunError> {
        Ok(())
    }
}
