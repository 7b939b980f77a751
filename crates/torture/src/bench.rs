//! Kumiki compared with Debian's redis-server, in one run, by redis-benchmark.
//!
//! One core is the servers', another the client's. Both servers run through the whole of a mode and
//! hold the same keys; one works while the others idle, and they take turns, so that all run under
//! the same conditions. A run counts only if the machine was quiet before and during it. Without a log and
//! without pipelining a third server sends back what it receives ([`echo`]): the floor that the kernel sets.

pub mod cell;
pub mod cluster;
pub mod collections;
pub mod echo;
pub mod hostile;
pub mod machine;
pub mod publish;
pub mod replicas;
pub mod report;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::bench::cell::{Asked, BenchCell, BenchLoad, BenchMode, Test};
use crate::bench::machine::{Host, Meter, SERVER_CORE};
use crate::bench::report::{BenchPoint, BenchReport, Repetition, header};
use crate::server::{Program, ServerUnderTest};
use crate::status::ReportedStatus;
use testkit::tls::CertificateAuthority;
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
    /// Only these modes; empty: all.
    pub modes: Vec<BenchMode>,
    /// How Kumiki and the echo wait for their connections: `auto`, `epoll` or `uring`.
    pub io: String,
}

/// How long nodes may take to elect a leader.
const ELECTED: Duration = Duration::from_secs(20);
/// The interval at which the nodes are asked.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes in a value.
const VALUE: usize = 100;

/// Runs the comparison of the server `binary` with redis-server, prints the table and writes the file.
///
/// # Errors
/// Returns an error if a server or the benchmark fails, a store has wrong contents, or the machine
/// does not become quiet. Missed aims are no error: they are reported.
pub fn run(binary: &Path, options: &Options) -> Result<()> {
    let mut points = Vec::new();
    println!("{}", header());
    for mode in [BenchMode::Ephemeral, BenchMode::Tls, BenchMode::Durable] {
        if options.modes.is_empty() || options.modes.contains(&mode) {
            points.extend(run_mode(binary, mode, options)?);
        }
    }
    let aims = || {
        points
            .iter()
            .flat_map(|point| point.aims.iter().map(move |&aim| (point, aim)))
    };
    println!(
        "ratio: Kumiki's by that of the server on the left; load: the client's share of its core"
    );
    println!(
        "bench: {} of {} aims are met",
        aims().filter(|(point, aim)| point.meets(*aim)).count(),
        aims().count()
    );
    let report = BenchReport {
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

/// The servers of a mode.
struct Servers {
    /// In the order of [`Side`]; the echo is the last.
    all: Vec<ServerUnderTest>,
    /// Where they are asked.
    addrs: Vec<SocketAddr>,
    /// The authority of their certificates, if they are asked over TLS.
    authority: Option<CertificateAuthority>,
    meter: Meter,
    _dir: TempDir,
}

/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Kumiki,
    Redis,
    Echo,
}

/// The two that hold keys.
const STORES: [Side; 2] = [Side::Kumiki, Side::Redis];

fn run_mode(binary: &Path, mode: BenchMode, options: &Options) -> Result<Vec<BenchPoint>> {
    let mut servers = Servers::start(binary, mode, &options.io)?;
    for side in STORES {
        preload(servers.server(side), options.keys, VALUE)?;
    }
    let mut points = Vec::new();
    for cell in cells(mode) {
        let point = servers.measure(cell, options)?;
        println!("{}", point.line());
        points.push(point);
    }
    for side in STORES {
        check(servers.server(side), options.keys, VALUE)?;
    }
    let [kumiki, others @ ..] = &mut servers.all[..] else {
        unreachable!("every mode has servers");
    };
    kumiki.stop()?;
    others
        .iter_mut()
        .try_for_each(|server| server.kill().map(drop))?;
    Ok(points)
}

fn cells(mode: BenchMode) -> Vec<BenchCell> {
    let (tests, pipelines): (&[Test], &[u32]) = match mode {
        BenchMode::Ephemeral => (&[Test::Get, Test::Set], &[1, 16]),
        BenchMode::Tls => (&[Test::Get, Test::Set], &[1, 16]),
        // Reads wait for no sync.
        BenchMode::Durable => (&[Test::Set], &[1, 16]),
    };
    let load = |&test: &Test, pipeline, clients| BenchLoad {
        test,
        size: VALUE,
        pipeline,
        clients,
    };
    let pairs = tests
        .iter()
        .flat_map(|test| pipelines.iter().map(move |&pipeline| (test, pipeline)));
    let mut loads: Vec<BenchLoad> = pairs
        .map(|(test, pipeline)| load(test, pipeline, 50))
        .collect();
    if mode == BenchMode::Durable {
        loads.push(load(&Test::Set, 1, 1));
    }
    loads
        .into_iter()
        .map(|load| BenchCell { mode, load })
        .collect()
}

impl Servers {
    fn start(binary: &Path, mode: BenchMode, io: &str) -> Result<Servers> {
        let mut ours = vec!["--io".to_owned(), io.to_owned()];
        let mut theirs = Vec::new();
        let mut add = |our: &[&str], their: &[&str]| {
            ours.extend(our.iter().map(|&word| word.to_owned()));
            theirs.extend(their.iter().map(|&word| word.to_owned()));
        };
        let tls = (mode == BenchMode::Tls).then(|| CertificateAuthority::new("bench"));
        let (mut tls_ports, mut addrs) = ([None; 2], Vec::new());
        match mode {
            BenchMode::Ephemeral | BenchMode::Tls => add(&["--ephemeral"], &["--appendonly", "no"]),
            // A rewrite of the log during a run would put the peer at a disadvantage.
            BenchMode::Durable => add(
                &["--durability", "group"],
                &[
                    "--appendonly",
                    "yes",
                    "--appendfsync",
                    "always",
                    "--auto-aof-rewrite-percentage",
                    "0",
                ],
            ),
        }
        if let Some(authority) = &tls {
            let (cert, key) = authority.sign("server", |_| {});
            let name = |file: &Path| file.display().to_string();
            let (cert, key, ca) = (name(&cert), name(&key), name(&authority.ca()));
            let free = [testkit::free_address()?, testkit::free_address()?];
            let ports = free.map(|addr| addr.port().to_string());
            tls_ports = free.map(Some);
            add(
                &[
                    "--tls-port",
                    &ports[0],
                    "--tls-cert",
                    &cert,
                    "--tls-key",
                    &key,
                ],
                &[
                    "--tls-port",
                    &ports[1],
                    "--tls-cert-file",
                    &cert,
                    "--tls-key-file",
                    &key,
                ],
            );
            add(
                &[],
                &["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"],
            );
        }
        let dir = TempDir::with_prefix("kumiki-bench-")?;
        let wrapper: Vec<String> = ["taskset", "-c", SERVER_CORE].map(String::from).into();
        let mut programs = vec![
            Program::kumiki(binary.to_owned(), ours),
            Program::Redis { args: theirs },
        ];
        if mode == BenchMode::Ephemeral {
            programs.push(Program::Echo { io: io.to_owned() });
        }
        let mut all = Vec::new();
        for program in programs {
            let mut server = program.start(&dir.path().join(program.name()), &wrapper)?;
            server.wait_ready()?;
            let encrypted = tls_ports.get(all.len()).copied().flatten();
            addrs.push(encrypted.unwrap_or(server.addr()));
            all.push(server);
        }
        let pids: Vec<_> = all.iter().map(ServerUnderTest::pid).collect();
        Ok(Servers {
            all,
            addrs,
            authority: tls,
            meter: Meter::new(&pids),
            _dir: dir,
        })
    }

    fn server(&self, side: Side) -> &ServerUnderTest {
        &self.all[side as usize]
    }

    fn measure(&mut self, cell: BenchCell, options: &Options) -> Result<BenchPoint> {
        let mut point = BenchPoint {
            cell,
            aims: cell.aims(),
            kumiki: Vec::new(),
            redis: Vec::new(),
            echo: Vec::new(),
        };
        let sides: &[Side] = match cell.has_echo() {
            true => &[Side::Kumiki, Side::Redis, Side::Echo],
            false => &STORES,
        };
        let mut requests = Vec::new();
        for &side in sides {
            requests.push(self.with_authority(side, options, |asked| {
                calibrate(cell.load, asked, options.seconds)
            })?);
        }
        for turn in 0..options.repetitions {
            for number in 0..sides.len() {
                let side = sides[(turn + number) % sides.len()];
                let list = match side {
                    Side::Kumiki => &mut point.kumiki,
                    Side::Redis => &mut point.redis,
                    Side::Echo => &mut point.echo,
                };
                self.measure_until_kept(cell, side, requests[side as usize], options, list)?;
            }
        }
        Ok(point)
    }

    /// Calls `measure` with the address of a server, as redis-benchmark needs it.
    fn with_authority<R>(
        &self,
        side: Side,
        options: &Options,
        measure: impl FnOnce(&Asked<'_>) -> R,
    ) -> R {
        let authority = self.authority.as_ref().map(CertificateAuthority::ca);
        measure(&Asked {
            addr: self.addrs[side as usize],
            authority: authority.as_deref(),
            keys: options.keys,
            is_pinned: true,
        })
    }

    fn measure_until_kept(
        &self,
        cell: BenchCell,
        side: Side,
        requests: u64,
        options: &Options,
        list: &mut Vec<Repetition>,
    ) -> Result<()> {
        for _ in 0..WASTE {
            interrupt::check()?;
            if !options.noisy {
                self.meter.wait_quiet()?;
            }
            let before = self.meter.read()?;
            let sample =
                self.with_authority(side, options, |asked| cell.load.measure(asked, requests))?;
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

/// Waits for a leader of the partition that the nodes at `addresses` hold. Returns which of them it is.
fn leader(addresses: &[SocketAddr]) -> Result<usize> {
    let leads = |address: &SocketAddr| {
        ReportedStatus::of(*address).is_ok_and(|status| status.role == "leader")
    };
    let deadline = Instant::now() + ELECTED;
    loop {
        interrupt::check()?;
        if let Some(leader) = addresses.iter().position(leads) {
            return Ok(leader);
        }
        if Instant::now() > deadline {
            bail!("no node leads after {ELECTED:?}");
        }
        thread::sleep(LOOK);
    }
}

/// Returns the number of requests that take about `seconds`. The run warms both ends up, too.
fn calibrate(load: BenchLoad, asked: &Asked<'_>, seconds: f64) -> Result<u64> {
    let requests = if load.clients == 1 {
        500
    } else {
        20_000 * u64::from(load.pipeline)
    };
    let sample = load.measure(asked, requests)?;
    Ok(((sample.rate * seconds) as u64).max(1000))
}

/// Writes the keys that redis-benchmark uses, 200 in an MSET, a few of these under way.
fn preload(server: &ServerUnderTest, keys: u64, size: usize) -> Result<()> {
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
fn check(server: &ServerUnderTest, keys: u64, size: usize) -> Result<()> {
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
