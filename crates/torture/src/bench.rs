//! Kumiki compared with Debian's redis-server, in one run, by redis-benchmark.
//!
//! One core is the servers', another the client's. Both servers run through the whole of a mode and
//! hold the same keys; one works while the other idles, and they take turns, so that both run under
//! the same conditions. A run counts only if the machine was quiet before and during it.

pub mod cell;
pub mod cluster;
pub mod machine;
pub mod replicas;
pub mod report;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::bench::cell::{Cell, Load, Mode, Test};
use crate::bench::machine::{Host, Meter, SERVER_CORE};
use crate::bench::report::{Point, Repetition, Report, header};
use crate::server::{Program, Server};
use testkit::{Client, Reply};
use xtask::interrupt;

/// The most foreign load during a run that counts.
const TOLERATED: f64 = 0.15;
/// Runs that do not count after which a cell is given up.
const WASTE: usize = 10;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys in each store.
    pub keys: u64,
    /// Runs that count, of each server in each cell.
    pub repetitions: usize,
    /// The approximate seconds of a run.
    pub seconds: f64,
    /// Measure on a machine that is not quiet.
    pub noisy: bool,
    /// The directory for the JSON file.
    pub out: PathBuf,
    /// Only these modes; empty: both.
    pub modes: Vec<Mode>,
}

/// Runs the comparison of the server `binary` with redis-server, prints the table and writes the file.
///
/// # Errors
/// Returns an error if a server or the benchmark fails, a store has wrong contents, or the machine
/// does not become quiet. Missed targets are no error: they are reported.
pub fn run(binary: &Path, options: &Options) -> Result<()> {
    let mut points = Vec::new();
    println!("{}", header());
    for mode in [Mode::Ephemeral, Mode::Durable] {
        if options.modes.is_empty() || options.modes.contains(&mode) {
            points.extend(run_mode(binary, mode, options)?);
        }
    }
    let missed = points.iter().filter(|p| !p.met()).count();
    println!(
        "aim: least ratio of rates; c: and no more server CPU; load: the client's share of its core"
    );
    println!(
        "bench: {} of {} cells met their aim",
        points.len() - missed,
        points.len()
    );
    let report = Report {
        host: Host::here(),
        keys: options.keys,
        repetitions: options.repetitions,
        seconds: options.seconds,
        points,
    };
    println!(
        "bench: every repetition is in {}",
        report.write(&options.out)?.display()
    );
    Ok(())
}

/// The two servers of a mode.
struct Pair {
    kumiki: Server,
    redis: Server,
    meter: Meter,
    _dir: TempDir,
}

/// One of the two servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Kumiki,
    Redis,
}

fn run_mode(binary: &Path, mode: Mode, options: &Options) -> Result<Vec<Point>> {
    let mut pair = Pair::start(binary, mode)?;
    let mut points = Vec::new();
    for size in [3, 100] {
        for side in [Side::Kumiki, Side::Redis] {
            preload(pair.server(side), options.keys, size)?;
        }
        for cell in cells(mode, size) {
            let point = pair.measure(cell, options)?;
            println!("{}", point.line());
            points.push(point);
        }
        for side in [Side::Kumiki, Side::Redis] {
            check(pair.server(side), options.keys, size)?;
        }
    }
    pair.kumiki.stop()?;
    pair.redis.kill()?;
    Ok(points)
}

fn cells(mode: Mode, size: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for test in [Test::Get, Test::Set] {
        for pipeline in [1, 16] {
            let load = Load {
                test,
                size,
                pipeline,
                clients: 50,
            };
            cells.push(Cell { mode, load });
        }
    }
    if mode == Mode::Durable {
        let load = Load {
            test: Test::Set,
            size,
            pipeline: 1,
            clients: 1,
        };
        cells.push(Cell { mode, load });
    }
    cells
}

impl Pair {
    fn start(binary: &Path, mode: Mode) -> Result<Pair> {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let (ours, theirs) = match mode {
            Mode::Ephemeral => (words(&["--ephemeral"]), words(&["--appendonly", "no"])),
            Mode::Durable => (
                words(&["--durability", "group"]),
                // A rewrite of the log during a run would put the peer at a disadvantage.
                words(&[
                    "--appendonly",
                    "yes",
                    "--appendfsync",
                    "always",
                    "--auto-aof-rewrite-percentage",
                    "0",
                ]),
            ),
        };
        let dir = TempDir::with_prefix("kumiki-bench-")?;
        let wrapper = words(&["taskset", "-c", SERVER_CORE]);
        let ours = Program::kumiki(binary.to_owned(), ours);
        let mut kumiki = ours.start(&dir.path().join("kumiki"), &wrapper)?;
        kumiki.wait_ready()?;
        let theirs = Program::Redis { args: theirs };
        let mut redis = theirs.start(&dir.path().join("redis"), &wrapper)?;
        redis.wait_ready()?;
        let meter = Meter::new(&[kumiki.pid(), redis.pid()]);
        Ok(Pair {
            kumiki,
            redis,
            meter,
            _dir: dir,
        })
    }

    fn server(&self, side: Side) -> &Server {
        match side {
            Side::Kumiki => &self.kumiki,
            Side::Redis => &self.redis,
        }
    }

    fn measure(&mut self, cell: Cell, options: &Options) -> Result<Point> {
        let mut point = Point {
            cell,
            target: cell.target(),
            kumiki: Vec::new(),
            redis: Vec::new(),
        };
        let kumiki = self.calibrate(cell, Side::Kumiki, options)?;
        let redis = self.calibrate(cell, Side::Redis, options)?;
        for turn in 0..options.repetitions {
            let mut sides = [Side::Kumiki, Side::Redis];
            sides.rotate_left(turn % 2);
            for side in sides {
                let (requests, list) = match side {
                    Side::Kumiki => (kumiki, &mut point.kumiki),
                    Side::Redis => (redis, &mut point.redis),
                };
                self.measure_until_kept(cell, side, requests, options, list)?;
            }
        }
        Ok(point)
    }

    fn calibrate(&self, cell: Cell, side: Side, options: &Options) -> Result<u64> {
        let addr = self.server(side).addr();
        calibrate(cell.load, addr, options.keys, options.seconds, true)
    }

    fn measure_until_kept(
        &self,
        cell: Cell,
        side: Side,
        requests: u64,
        options: &Options,
        list: &mut Vec<Repetition>,
    ) -> Result<()> {
        let addr = self.server(side).addr();
        for _ in 0..WASTE {
            interrupt::check()?;
            if !options.noisy {
                self.meter.wait_quiet()?;
            }
            let before = self.meter.read()?;
            let sample = cell.load.measure(addr, options.keys, requests, true)?;
            let usage = self.meter.since(&before)?;
            let kept = options.noisy || usage.foreign < TOLERATED;
            list.push(Repetition {
                sample,
                requests,
                server_cpu_us: usage.servers[side as usize] * 1e6 / requests as f64,
                client_load: usage.own / usage.wall,
                foreign_load: usage.foreign,
                kept,
            });
            if kept {
                return Ok(());
            }
        }
        bail!("others kept using the machine in {WASTE} runs (--noisy counts them)")
    }
}

/// Returns the number of requests that take about `seconds`. The run warms both ends up, too.
fn calibrate(
    load: Load,
    addr: SocketAddr,
    keys: u64,
    seconds: f64,
    is_pinned: bool,
) -> Result<u64> {
    let requests = if load.clients == 1 {
        500
    } else {
        20_000 * u64::from(load.pipeline)
    };
    let sample = load.measure(addr, keys, requests, is_pinned)?;
    Ok(((sample.rate * seconds) as u64).max(1000))
}

/// Writes the keys that redis-benchmark uses, 200 in an MSET, a few of these under way.
fn preload(server: &Server, keys: u64, size: usize) -> Result<()> {
    let mut client = server.connect()?;
    let value = vec![b'x'; size];
    let mut open = 0;
    for first in (0..keys).step_by(200) {
        let mut args = vec![b"MSET".to_vec()];
        for key in first..(first + 200).min(keys) {
            args.extend([benchmark_key(key), value.clone()]);
        }
        client.push(&args);
        client.flush()?;
        open += 1;
        if open == 16 {
            expect_ok(&mut client, open)?;
            open = 0;
        }
    }
    expect_ok(&mut client, open)
}

fn expect_ok(client: &mut Client, replies: usize) -> Result<()> {
    for _ in 0..replies {
        let reply = client.try_reply()?;
        if reply != Reply::Status("OK".into()) {
            bail!("MSET was answered with {reply:?}");
        }
    }
    Ok(())
}

fn benchmark_key(key: u64) -> Vec<u8> {
    format!("key:{key:012}").into_bytes()
}

/// Checks that after the runs both stores hold every key, with values of the right size; otherwise
/// the figures compare different work.
fn check(server: &Server, keys: u64, size: usize) -> Result<()> {
    let mut client = server.connect()?;
    let count = client.expect(&["DBSIZE"])?;
    if count != Reply::Int(keys as i64) {
        bail!(
            "the store at {} has {count:?} keys instead of {keys}",
            server.addr()
        );
    }
    for key in (0..keys).step_by((keys as usize / 500).max(1)) {
        let key = benchmark_key(key);
        let len = client
            .expect(&[b"STRLEN".as_slice(), &key])
            .context("STRLEN")?;
        if len != Reply::Int(size as i64) {
            bail!("a value has {len:?} bytes instead of {size}");
        }
    }
    Ok(())
}
