//! Reads and writes of a replicated partition compared with those of one node, by redis-benchmark, in one run.
//!
//! | side | servers |
//! |---|---|
//! | one node | `kumiki serve` with a log |
//! | read index | three nodes that hold one partition; the leader is asked |
//! | lease | the same with `--lease-reads` |
//!
//! All servers run all the time and hold the same keys; one side works while the others idle, and
//! they take turns. No process is pinned to a processor: servers and client share all of them, so
//! that the processor time of followers reduces the measured rates.

mod point;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use serde::Serialize;
use tempfile::TempDir;

use self::point::{Point, Run, SIDES, Side, header};
use super::cell::{Asked, BenchLoad, Test};
use super::machine::{Host, Meter};
use super::{TOLERATED, WASTE, calibrate, check, leader, preload};
use crate::cluster::ClusterNodes;
use crate::server::{Program, ServerUnderTest};
use xtask::interrupt;

/// Nodes that hold the partition.
const NODES: u16 = 3;
/// Bytes in a value.
const SIZE: usize = 64;
/// Clients.
const CLIENTS: u32 = 50;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys in each store.
    pub keys: u64,
    /// Runs that count, of each side with each load.
    pub repetitions: usize,
    /// The approximate seconds of a run.
    pub seconds: f64,
    /// Measure on a machine that is not quiet.
    pub noisy: bool,
    /// `--io` of the servers.
    pub io: String,
    /// The directory for the JSON file.
    pub out: PathBuf,
}

#[derive(Serialize)]
struct Report {
    host: Host,
    io: String,
    keys: u64,
    repetitions: usize,
    seconds: f64,
    points: Vec<Point>,
}

/// Runs the comparison with the server `binary`, prints the table and writes the file.
///
/// # Errors
/// Returns an error if a server or the benchmark fails, a store has wrong contents, or the machine
/// does not become quiet. A missed aim is no error: it is reported.
pub fn run(binary: &Path, options: &Options) -> Result<()> {
    let dir = TempDir::with_prefix("kumiki-bench-")?;
    let mut bench = Bench::start(binary, dir.path(), options)?;
    for side in SIDES {
        let asked = bench.asked(side)?;
        preload(bench.server(side, asked), options.keys, SIZE)?;
    }
    println!("{}", header());
    let mut points = Vec::new();
    for test in [Test::Get, Test::Set] {
        for pipeline in [1, 16] {
            let load = BenchLoad {
                test,
                size: SIZE,
                pipeline,
                clients: CLIENTS,
            };
            let point = bench.measure(load)?;
            print!("{}", point.lines());
            points.push(point);
        }
    }
    for side in SIDES {
        let asked = bench.asked(side)?;
        check(bench.server(side, asked), options.keys, SIZE)?;
    }
    bench.stop()?;
    println!(
        "of one: the median over the turns of the rate relative to one node's; client: its share of a core. \
         Servers and client share {} cores",
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    let report = Report {
        host: Host::here(),
        io: options.io.clone(),
        keys: options.keys,
        repetitions: options.repetitions,
        seconds: options.seconds,
        points,
    };
    fs::create_dir_all(&options.out)?;
    let path = options.out.join("bench-replicas.json");
    fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("bench: every run is in {}", path.display());
    Ok(())
}

struct Bench<'a> {
    one: ServerUnderTest,
    read_index: ClusterNodes,
    lease: ClusterNodes,
    meter: Meter,
    options: &'a Options,
}

impl<'a> Bench<'a> {
    fn start(binary: &Path, dir: &Path, options: &'a Options) -> Result<Bench<'a>> {
        let program = Program::kumiki(binary.to_owned(), vec!["--io".into(), options.io.clone()]);
        let mut one = program.start(&dir.join("one"), &vec![])?;
        one.wait_ready()?;
        let replicas = |program: &Program, name: &str| {
            let mut nodes =
                ClusterNodes::replicated_anywhere(program, &dir.join(name), NODES, NODES)?;
            nodes.start_all()?;
            nodes.wait_together()?;
            anyhow::Ok(nodes)
        };
        let mut read_index = replicas(&program, "read-index")?;
        let mut lease = replicas(&program.with(&["--lease-reads"]), "lease")?;
        let mut pids = vec![one.pid()];
        pids.extend(processes(&mut read_index));
        pids.extend(processes(&mut lease));
        Ok(Bench {
            one,
            read_index,
            lease,
            meter: Meter::new(&pids),
            options,
        })
    }

    fn stop(mut self) -> Result<()> {
        self.one.stop()?;
        self.read_index.stop()?;
        self.lease.stop()
    }

    fn nodes(&mut self, side: Side) -> Option<&mut ClusterNodes> {
        match side {
            Side::OneNode => None,
            Side::ReadIndex => Some(&mut self.read_index),
            Side::Lease => Some(&mut self.lease),
        }
    }

    fn server(&mut self, side: Side, asked: usize) -> &ServerUnderTest {
        match side {
            Side::OneNode => &self.one,
            _ => self
                .nodes(side)
                .and_then(|nodes| nodes.server(asked))
                .expect("it was started"),
        }
    }

    /// Returns one of the side's servers as redis-benchmark asks it.
    fn by_benchmark(&mut self, side: Side, asked: usize) -> Asked<'static> {
        Asked {
            addr: self.server(side, asked).addr(),
            authority: None,
            keys: self.options.keys,
            is_pinned: false,
        }
    }

    /// Returns which of the side's servers is asked: the leader.
    fn asked(&mut self, side: Side) -> Result<usize> {
        let Some(nodes) = self.nodes(side) else {
            return Ok(0);
        };
        leader(&nodes.addresses())
    }

    fn measure(&mut self, load: BenchLoad) -> Result<Point> {
        let mut requests = [0; SIDES.len()];
        for side in SIDES {
            let asked = self.asked(side)?;
            let asked = self.by_benchmark(side, asked);
            requests[side as usize] = calibrate(load, &asked, self.options.seconds)?;
        }
        let mut runs: [Vec<Run>; SIDES.len()] = Default::default();
        for turn in 0..self.options.repetitions {
            let mut sides = SIDES;
            sides.rotate_left(turn % SIDES.len());
            for side in sides {
                runs[side as usize].push(self.measure_once(load, side, requests[side as usize])?);
            }
        }
        let [one_node, read_index, lease] = runs;
        Ok(Point {
            load,
            one_node,
            read_index,
            lease,
        })
    }

    /// Makes a run that counts: on a quiet machine, and with one leader from its beginning to its
    /// end.
    fn measure_once(&mut self, load: BenchLoad, side: Side, requests: u64) -> Result<Run> {
        for _ in 0..WASTE {
            interrupt::check()?;
            if !self.options.noisy {
                self.meter.wait_quiet()?;
            }
            let asked = self.asked(side)?;
            let by_benchmark = self.by_benchmark(side, asked);
            let before = self.meter.read()?;
            let sample = load.measure(&by_benchmark, requests);
            let usage = self.meter.since(&before)?;
            if self.asked(side)? == asked && (self.options.noisy || usage.foreign < TOLERATED) {
                return Ok(Run::new(sample?, requests, &usage, side, asked));
            }
        }
        bail!("others kept using the machine, or leaders kept changing, in {WASTE} runs")
    }
}

fn processes(nodes: &mut ClusterNodes) -> Vec<Pid> {
    let all = 0..nodes.count();
    let server = |index| nodes.server(index).expect("it was started").pid();
    all.map(server).collect()
}
