//! `cargo xtask redis-suite`: Redis's own test suite, against `kumiki serve --ephemeral`.
//!
//! A unit, which is a file of the suite, has a server of its own. The suite leaves out what it cannot test with
//! a server that it has not started itself. `left_out.txt` beside this module lists what
//! else is left out, with reasons. A run fails if a test fails that is not in the list, and if one succeeds
//! that is.

mod left_out;
mod unit;

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::Guarded;
use crate::{build, interrupt};

use left_out::LeftOut;
use unit::UnitReport;

/// The units that are run, in the order of the suite.
const UNITS: &[&str] = &[
    "auth",
    "protocol",
    "dump",
    "keyspace",
    "scan",
    "info",
    "type/string",
    "type/incr",
    "type/stream",
    "type/stream-cgroups",
    "type/hash",
    "type/set",
    "type/zset",
    "type/list",
    "type/list-2",
    "type/list-3",
    "expire",
    "other",
    "multi",
    "quit",
    "latency-monitor",
    "tracking",
    "pubsub",
    "pubsubshard",
    "slowlog",
    "scripting",
    "functions",
    "introspection",
    "introspection-2",
    "bitops",
    "bitfield",
    "hyperloglog",
    "sort",
    "geo",
];

/// The tests that are left out, with reasons.
const LIST: &str = include_str!("redis_suite/left_out.txt");
/// The longest time of a unit, in seconds.
const LONGEST: &str = "1200";
/// The longest time without a result, in seconds; the suite gives up after it.
const SILENCE: &str = "300";
/// Encodings and digests are not compared; an exception fails its test alone.
const OPTIONS: [&str; 3] = ["--ignore-encoding", "--ignore-digest", "--durable"];

/// Options of the command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Only these units, such as `type/string`; all of them if none is given.
    pub units: Vec<String>,
    /// The server that is judged; by default it is built.
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
}

/// Returns the folder of the suite.
fn folder() -> PathBuf {
    build::root().join("target/peers/redis-suite")
}

/// Returns `true` if the suite is installed.
pub(crate) fn is_installed() -> bool {
    folder().join("tests").is_dir()
}

/// Runs units and prints a table of their results.
///
/// # Errors
/// Returns an error if the suite is not installed, or if a unit's results are not those that the list expects.
pub fn run(options: &Options) -> Result<()> {
    if !is_installed() {
        bail!("the suite is not installed: cargo xtask peers redis");
    }
    let units: Vec<&str> = match options.units.as_slice() {
        [] => UNITS.to_vec(),
        units => units.iter().map(String::as_str).collect(),
    };
    if let Some(unit) = units.iter().find(|unit| !UNITS.contains(unit)) {
        bail!("there is no unit {unit}; there are: {}", UNITS.join(", "));
    }
    let binary = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => build::kumiki(false)?,
    };
    let list = LeftOut::parse(LIST)?;
    let mut table = vec![format!("{:<16} passed  failed  left out  seconds", "unit")];
    let mut faults = Vec::new();
    for unit in units {
        println!("redis-suite: {unit}");
        let begun = Instant::now();
        let (output, end) = run_unit(&binary, unit, &list)?;
        let report = UnitReport::parse(&output);
        let mut found = report.faults(list.tests(unit));
        found.extend(end.map(|status| format!("the server has ended: {status}")));
        table.push(format!(
            "{unit:<16} {:>6}  {:>6}  {:>8}  {:>7.1}",
            report.passed(),
            found.len(),
            report.left_out(list.tests(unit)),
            begun.elapsed().as_secs_f64()
        ));
        faults.extend(found.into_iter().map(|fault| format!("{unit}: {fault}")));
    }
    println!("\n{}", table.join("\n"));
    if !faults.is_empty() {
        bail!("{} faults:\n{}", faults.len(), faults.join("\n"));
    }
    Ok(())
}

/// Runs a unit against a server of its own. Returns the suite's output, and the status of a server that has ended.
fn run_unit(binary: &Path, unit: &str, list: &LeftOut) -> Result<(String, Option<ExitStatus>)> {
    let logs = build::target_dir()?.join("redis-suite");
    fs::create_dir_all(&logs)?;
    let log = |kind: &str| logs.join(format!("{}.{kind}", unit.replace('/', "-")));
    let (address, mut server) = start_server(binary, &log("server"))?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LONGEST, "tclsh", "tests/test_helper.tcl"]);
    command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--single", &format!("unit/{unit}"), "--timeout", SILENCE]);
    command.args(OPTIONS).arg("--tags").arg(list.tags());
    for test in list.tests(unit).iter().filter(|test| !test.runs) {
        command.args(["--skiptest", &test.name]);
    }
    command.stdout(File::create(log("output"))?);
    let mut judge = Guarded::spawn("tclsh", command.current_dir(folder()))?;
    // Its status says the same as its output.
    judge.wait()?;
    let output = fs::read_to_string(log("output")).context("the output of the suite")?;
    Ok((output, server.exited()?))
}

/// Starts a server, and returns its address once it accepts connections. It has one thread, as Redis: with
/// several, a client that has closed its connection counts as a subscriber until its own thread sees that.
fn start_server(binary: &Path, log: &Path) -> Result<(SocketAddr, Guarded)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new(binary);
    command.args(["serve", "--ephemeral", "--threads", "1"]);
    command.args(["--listen", &address.to_string()]);
    let log_file = File::create(log)?;
    command.stdout(log_file.try_clone()?).stderr(log_file);
    let mut server = Guarded::spawn("kumiki", &mut command)?;
    while TcpStream::connect(address).is_err() {
        if let Some(status) = server.exited()? {
            bail!("the server has ended ({status}); see {}", log.display());
        }
        interrupt::check()?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok((address, server))
}
