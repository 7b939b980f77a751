//! The machine of a measurement: the load on its cores, and its properties.
//!
//! *Foreign* load is everything that runs on the machine besides the servers, the benchmark and
//! this program, in cores: 1.0 is one busy core. Time that the hypervisor gave to other machines
//! counts as foreign too, because it is as harmful.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use serde::Serialize;

use xtask::build;
use xtask::interrupt;
use xtask::process;

/// The servers' core.
pub const SERVER_CORE: &str = "0";
/// The client's core.
pub const CLIENT_CORE: &str = "1";

/// The window before a run in which the machine must be quiet.
const WINDOW: Duration = Duration::from_millis(400);
/// The most foreign load in that window.
const QUIET: f64 = 0.08;
/// How long to wait for a quiet window.
const PATIENCE: Duration = Duration::from_secs(300);

/// A reading of the processors' clocks, in seconds since an arbitrary moment.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    /// All busy time, of all cores.
    busy: f64,
    /// Busy time of this process and of its children that ended.
    own: f64,
    /// Busy time of each server.
    servers: Vec<f64>,
}

/// The use of the processors between two readings.
#[derive(Clone, Debug)]
pub struct Usage {
    /// Elapsed time.
    pub wall: f64,
    /// Foreign load, in cores.
    pub foreign: f64,
    /// Processor seconds of each server.
    pub servers: Vec<f64>,
    /// Processor seconds of this process and of its children that ended, the benchmark among them.
    pub own: f64,
}

/// The processes that belong to the measurement.
#[derive(Clone, Debug)]
pub struct Meter {
    servers: Vec<Pid>,
}

impl Meter {
    /// Creates a meter for these servers, this process and its children.
    #[must_use]
    pub fn new(servers: &[Pid]) -> Meter {
        Meter {
            servers: servers.to_vec(),
        }
    }

    /// Reads the clocks.
    ///
    /// # Errors
    /// Returns an error if /proc cannot be read, as when a server has ended.
    pub fn read(&self) -> Result<Reading> {
        let own = ticks("self")?;
        let servers: Result<Vec<_>> = self
            .servers
            .iter()
            .map(|pid| Ok(ticks(&pid.as_raw_pid().to_string())?[..2].iter().sum()))
            .collect();
        Ok(Reading {
            at: Instant::now(),
            busy: busy()?,
            own: own.iter().sum(),
            servers: servers?,
        })
    }

    /// Returns the usage since `before`.
    ///
    /// # Errors
    /// As [`Meter::read`].
    pub fn since(&self, before: &Reading) -> Result<Usage> {
        let now = self.read()?;
        let wall = (now.at - before.at).as_secs_f64();
        let pairs = now.servers.iter().zip(&before.servers);
        let servers: Vec<f64> = pairs.map(|(now, before)| now - before).collect();
        let own = now.own - before.own;
        let known = own + servers.iter().sum::<f64>();
        let foreign = ((now.busy - before.busy - known) / wall).max(0.0);
        Ok(Usage {
            wall,
            foreign,
            servers,
            own,
        })
    }

    /// Waits for a quiet window.
    ///
    /// # Errors
    /// Returns an error if there is none for five minutes.
    pub fn wait_quiet(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut told = false;
        loop {
            interrupt::check()?;
            let before = self.read()?;
            thread::sleep(WINDOW);
            let foreign = self.since(&before)?.foreign;
            if foreign < QUIET {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "the machine is not quiet: others use {foreign:.2} cores (--noisy measures anyway)"
                );
            }
            if !told {
                println!("bench: waiting for a quiet machine (others use {foreign:.2} cores)");
                told = true;
            }
        }
    }
}

/// Returns user and system time of a process, then of its children that ended, in seconds.
fn ticks(process: &str) -> Result<[f64; 4]> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The second field, the name in parentheses, may contain blanks; the needed fields are 14 to
    // 17.
    let (_, rest) = text.rsplit_once(')').context("no name in /proc stat")?;
    let fields: Vec<&str> = rest.split_whitespace().skip(11).take(4).collect();
    let mut seconds = [0.0; 4];
    for (second, field) in seconds.iter_mut().zip(&fields) {
        *second = field.parse::<f64>()? / clock_hz();
    }
    Ok(seconds)
}

/// Returns the busy time of all cores: everything but idling and waiting for disks.
fn busy() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal
    let [user, nice, system, _, _, irq, softirq, steal, ..] = fields[..] else {
        bail!("/proc/stat has {} columns", fields.len());
    };
    Ok((user + nice + system + irq + softirq + steal) / clock_hz())
}

fn clock_hz() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The origin of a result.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The commit that was built, with `+` when the tree had changes.
    pub commit: String,
    /// Kernel and architecture.
    pub system: String,
    /// The processor's name.
    pub processor: String,
    /// The number of cores.
    pub cores: usize,
    /// The peer's version.
    pub redis: String,
}

impl Host {
    /// Describes this machine and this tree. A value that cannot be found out is `unknown`.
    #[must_use]
    pub fn here() -> Host {
        let ask = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            let text = process::output(program, command.args(args).current_dir(build::root()));
            text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
        };
        let changes = ask("git", &["status", "--porcelain"]);
        let mark = if changes.is_empty() { "" } else { "+" };
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
        Host {
            commit: ask("git", &["rev-parse", "--short=12", "HEAD"]) + mark,
            system: ask("uname", &["-srm"]),
            processor: model.unwrap_or("unknown").trim().to_owned(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            redis: ask("redis-server", &["--version"]),
        }
    }
}
