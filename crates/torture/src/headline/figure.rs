//! The headline figures: their requests and their servers.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cluster::Topology;
use serde_json::{Value, json};

use super::comparison::{Observation, Side, Sides, median, turns};
use super::load::{Load, Request, Sample, Stop};
use super::preload::{BALANCE, KEYS_IN_REQUEST, preload};
use super::subject::{Running, Setting, Subject};
use super::timed::Task;

use testkit::{Client, Reply};

/// Blocks of four slices in a round.
const BLOCKS: u32 = 12;
/// The length of a slice: short, so that other work on the machine affects both sides alike.
const SLICE: Duration = Duration::from_millis(30);
/// How long each server is warmed up in a round.
const WARM_UP: Duration = Duration::from_millis(150);
/// A headline figure.
#[derive(Debug)]
pub struct Figure {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// `true` if more is better.
    pub higher: bool,
    /// How it is measured, in one line.
    pub measures: &'static str,
    pub(super) kind: FigureKind,
}

/// The kind of a figure.
#[derive(Debug)]
pub(super) enum FigureKind {
    /// Servers answer requests.
    Served(Served),
    /// A command runs to a point, and the time is taken.
    Timed(Task),
}

/// Requests to servers.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) setting: Setting,
    pub(super) connections: usize,
    pub(super) request: Request,
    /// The number of keys before the requests.
    pub(super) keys: u32,
}

const fn served(setting: Setting, connections: usize, request: Request, keys: u32) -> FigureKind {
    FigureKind::Served(Served {
        setting,
        connections,
        request,
        keys,
    })
}

/// All figures. Logs lie in memory, so that the variation of a device does not affect them.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "get",
        unit: "requests/s",
        higher: true,
        measures: "GET without pipelining, 50 connections, --ephemeral, 100,000 keys of 100 B",
        kind: served(
            Setting::Ephemeral,
            50,
            Request::Get { pipeline: 1 },
            100_000,
        ),
    },
    Figure {
        name: "get-pipelined",
        unit: "requests/s",
        higher: true,
        measures: "GET, pipeline 16, 16 connections, --ephemeral, 100,000 keys of 100 B",
        kind: served(
            Setting::Ephemeral,
            16,
            Request::Get { pipeline: 16 },
            100_000,
        ),
    },
    Figure {
        name: "set",
        unit: "requests/s",
        higher: true,
        measures: "SET without pipelining, 50 connections, --durability group, 100,000 keys of 100 B",
        kind: served(Setting::Group, 50, Request::Set { pipeline: 1 }, 100_000),
    },
    Figure {
        name: "set-pipelined",
        unit: "requests/s",
        higher: true,
        measures: "SET, pipeline 16, 16 connections, --durability group, 100,000 keys of 100 B",
        kind: served(Setting::Group, 16, Request::Set { pipeline: 16 }, 100_000),
    },
    Figure {
        name: "transfer",
        unit: "transactions/s",
        higher: true,
        measures: "MULTI, DECRBY, INCRBY, EXEC over 10,000 accounts, 16 connections, --durability group",
        kind: served(Setting::Group, 16, Request::Transfer, 10_000),
    },
    Figure {
        name: "cluster-mset",
        unit: "transactions/s",
        higher: true,
        measures: "MSET of two keys of two nodes, 16 connections to both, --durability group",
        kind: served(Setting::Cluster, 16, Request::MsetOfTwoNodes, 20_000),
    },
    Figure {
        name: "atomic-mget",
        unit: "transactions/s",
        higher: true,
        measures: "MGET of eight read-atomic keys of two nodes, 16 connections to both, --ephemeral",
        kind: served(Setting::ReadAtomic, 16, Request::Mget { keys: 8 }, 20_000),
    },
    Figure {
        name: "replicated-set",
        unit: "requests/s",
        higher: true,
        measures: "SET at the leader of three replicas, 50 connections",
        kind: served(
            Setting::Replicated,
            50,
            Request::Set { pipeline: 1 },
            20_000,
        ),
    },
    Figure {
        name: "proxy-get",
        unit: "requests/s",
        higher: true,
        measures: "GET through kumiki proxy, which aggregates, before one node, 96 connections",
        kind: served(Setting::Proxy, 96, Request::Get { pipeline: 1 }, 100_000),
    },
    Figure {
        name: "lock",
        unit: "turns/s",
        higher: true,
        measures: "LOCK.ACQUIRE and LOCK.RELEASE, the proxy's own locks in memory, 32 connections",
        kind: served(Setting::Proxy, 32, Request::Lock, 0),
    },
    Figure {
        name: "recovery",
        unit: "ms",
        higher: false,
        measures: "kumiki serve over the log of a killed server, 400,000 writes of 100 B, until PING is answered",
        kind: FigureKind::Timed(Task::Recovery),
    },
    Figure {
        name: "pages-check",
        unit: "ms",
        higher: false,
        measures: "kumiki pages check over TPC-H's lineitem at scale factor 0.2: every page read and verified",
        kind: FigureKind::Timed(Task::PagesCheck),
    },
];

impl Figure {
    /// Returns the description for `cargo xtask pairs`.
    pub(super) fn describe(&self) -> Value {
        json!({
            "name": self.name,
            "unit": self.unit,
            "higher": self.higher,
            "measures": self.measures,
        })
    }
}

/// One binary's servers with their load.
pub(super) struct Driven {
    pub(super) running: Running,
    load: Load,
}

impl Driven {
    /// Sends requests until the stop.
    pub(super) fn drive(&mut self, stop: Stop) -> Result<Sample> {
        self.load.run(stop)
    }
}

impl Served {
    /// Starts the servers with their keys, and connects to them.
    pub(super) fn start(&self, subject: &Subject, dir: &Path, keys: u32) -> Result<Driven> {
        let running = subject.start(self.setting, dir)?;
        let keys = keys.min(self.keys);
        let pools = match self.request {
            Request::MsetOfTwoNodes => keys_of_nodes(&dir.join("cluster.toml"), keys)?,
            _ => vec![(0..keys).collect()],
        };
        preload(running.addresses()[0], self.request, keys)?;
        let load = Load::connect(running.addresses(), self.connections, self.request, pools)?;
        Ok(Driven { running, load })
    }

    /// Checks that the servers have the expected values.
    pub(super) fn check(&self, driven: &Driven, keys: u32) -> Result<()> {
        let keys = keys.min(self.keys);
        let mut client = Client::try_connect(driven.running.addresses()[0])?;
        if self.request == Request::Transfer {
            let sum = balances(&mut client, keys)?;
            ensure!(
                sum == BALANCE * i64::from(keys),
                "the accounts hold {sum} together, which is not what they held at first"
            );
        } else if matches!(self.setting, Setting::Ephemeral | Setting::Group) {
            let count = client.expect(&["DBSIZE"])?;
            ensure!(
                count == Reply::Int(keys.into()),
                "the store has {count:?} keys instead of {keys}"
            );
        }
        Ok(())
    }

    pub(super) fn observe(
        &self,
        round: u32,
        subjects: &Sides<Subject>,
        dir: &Path,
    ) -> Result<Observation> {
        let start = |subject: &Subject, name: &str| self.start(subject, &dir.join(name), u32::MAX);
        // The first server that starts gets other memory; so the order changes from round to round.
        let mut driven = match turns(round)[0] {
            Side::Old => {
                let old = start(&subjects.old, "old").context("old")?;
                let new = start(&subjects.new, "new").context("new")?;
                Sides { old, new }
            }
            Side::New => {
                let new = start(&subjects.new, "new").context("new")?;
                let old = start(&subjects.old, "old").context("old")?;
                Sides { old, new }
            }
        };
        for side in [Side::Old, Side::New] {
            driven.of(side).drive(Stop::After(WARM_UP))?;
        }
        let mut rates = Sides::<Vec<f64>>::default();
        let mut work = Sides::<(f64, u64)>::default();
        let mut logs = Vec::new();
        for block in 0..BLOCKS {
            let mut log = Sides::<f64>::default();
            for side in turns(round + block) {
                let one = driven.of(side);
                let before = one.running.processor_time()?;
                let sample = one.drive(Stop::After(SLICE))?;
                let rate = sample.operations as f64 / sample.seconds;
                let (seconds, operations) = work.of(side);
                *seconds += one.running.processor_time()? - before;
                *operations += sample.operations;
                *log.of(side) += rate.ln() / 2.0;
                rates.of(side).push(rate);
            }
            logs.push(log.new - log.old);
        }
        self.check(&driven.old, u32::MAX).context("old")?;
        self.check(&driven.new, u32::MAX).context("new")?;
        let cost = |(seconds, operations): (f64, u64)| seconds * 1e6 / operations as f64;
        Ok(Observation {
            value: Sides {
                old: median(rates.old),
                new: median(rates.new),
            },
            ratio: median(logs).exp(),
            cpu_us: Some(Sides {
                old: cost(work.old),
                new: cost(work.new),
            }),
        })
    }
}

/// Returns the sum of all accounts.
fn balances(client: &mut Client, keys: u32) -> Result<i64> {
    let all: Vec<u32> = (0..keys).collect();
    let mut sum = 0;
    for chunk in all.chunks(KEYS_IN_REQUEST) {
        let mut line = vec![b"MGET".to_vec()];
        line.extend(chunk.iter().map(|key| super::load::key(*key)));
        let Reply::Array(found) = client.expect(&line)? else {
            anyhow::bail!("MGET is not answered with an array");
        };
        for one in found {
            let Reply::Bulk(text) = one else {
                anyhow::bail!("an account is missing");
            };
            sum += String::from_utf8_lossy(&text).parse::<i64>()?;
        }
    }
    Ok(sum)
}

/// Returns the numbers of the keys below `keys`, by the node that has them.
fn keys_of_nodes(file: &Path, keys: u32) -> Result<Vec<Vec<u32>>> {
    let topology = Topology::load(file)?;
    let mut pools = vec![Vec::new(); topology.nodes().len()];
    for number in 0..keys {
        let partition = topology.partition_of(&super::load::key(number));
        pools[usize::from(topology.node_of(partition).0) - 1].push(number);
    }
    Ok(pools)
}
