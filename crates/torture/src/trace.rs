//! The system-call trace: on the real server, the sync ends before the reply is sent.
//!
//! A kill cannot show that, because the page cache outlives the process. So `strace` watches the
//! server while clients set keys, one at a time each, and [`order`] compares the trace with the
//! order that durability demands.

pub mod order;
pub mod strace;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use tempfile::TempDir;

use crate::server::{Program, ServerUnderTest};
use crate::trace::order::ClientKeys;
use xtask::peers;

/// Clients at once: several, so that they wait for syncs that other clients caused.
const CLIENTS: usize = 4;
/// Writes of each client.
const WRITES: usize = 100;
/// Settings of the log under which Kumiki is traced.
const SETTINGS: &[&[&str]] = &[&[], &["--loggers", "2", "--epoch-time", "1ms"]];
/// The calls that [`order`] needs, by strace's names; others are not traced.
const CALLS: &str = "trace=openat,write,pwrite64,writev,pwritev,pwritev2,fdatasync,fsync,\
                     sendto,sendmsg,io_uring_enter,msync";

/// Traces `program` under each of the settings and returns what is wrong with the order of its
/// calls.
///
/// # Errors
/// Returns an error if the server cannot be traced at all.
pub fn run(program: &Program) -> Result<Vec<String>> {
    if !peers::has("strace") {
        bail!("strace is missing; `cargo xtask peers` installs it");
    }
    let mut complaints = Vec::new();
    match program {
        Program::Kumiki { .. } => {
            for settings in SETTINGS {
                complaints.extend(run_one(&program.with(settings), true)?);
            }
        }
        _ => complaints.extend(run_one(program, false)?),
    }
    for complaint in complaints.iter().take(5) {
        println!("  {complaint}");
    }
    Ok(complaints)
}

fn run_one(program: &Program, directories: bool) -> Result<Vec<String>> {
    let dir = TempDir::with_prefix("kumiki-trace-")?;
    // The trace shows paths without links.
    let root = fs::canonicalize(dir.path())?;
    let (data, trace) = (root.join("data"), root.join("trace.txt"));
    let mut server = program.start(&data, &wrapper(&trace))?;
    server.wait_ready()?;
    let clients = set_keys(&server)?;
    server.stop()?;
    let text = wait_for_end(&trace, server.pid())?;
    let calls = strace::parse(&text);
    // With the slash, so that the server's output beside the directory is not mistaken for its log.
    let data = format!("{}/", data.display());
    let demand = order::Demand {
        data: &data,
        clients: &clients,
        directories,
    };
    let complaints = order::check(&calls, &demand);
    println!(
        "trace: {} replies to {CLIENTS} clients, {} system calls, {} replies too early",
        CLIENTS * WRITES,
        calls.len(),
        complaints.len()
    );
    Ok(complaints)
}

/// Returns the wrapper. With `-D` the tracer is the grandchild, so that our child is the server
/// itself.
fn wrapper(trace: &Path) -> Vec<String> {
    let trace = trace.display().to_string();
    [
        "strace", "-D", "-f", "-yy", "-s", "65536", "-e", CALLS, "-o", &trace, "--",
    ]
    .map(String::from)
    .to_vec()
}

fn set_keys(server: &ServerUnderTest) -> Result<Vec<ClientKeys>> {
    let set = |number: usize| -> Result<ClientKeys> {
        let mut client = server.connect()?;
        let keys: Vec<String> = (0..WRITES)
            .map(|i| format!("trace-{number}-{i:06}-end"))
            .collect();
        for key in &keys {
            client.expect(&["SET", key, "value"])?;
        }
        Ok(ClientKeys {
            addr: client.local_addr()?,
            keys,
        })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || set(n))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client panicked"))
            .collect()
    })
}

/// Waits for the last line of the trace, which the tracer writes after the server's end. Returns
/// the trace.
fn wait_for_end(trace: &Path, pid: Pid) -> Result<String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = fs::read(trace).context("strace wrote no trace; is tracing allowed here?")?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let ended = |line: &str| {
            line.starts_with(&format!("{} ", pid.as_raw_pid())) && line.contains("+++ ")
        };
        if text.lines().rev().take(20).any(ended) {
            return Ok(text);
        }
        if Instant::now() > deadline {
            bail!("the trace does not end with the server's end");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Turns complaints into an error.
///
/// # Errors
/// Returns an error if there is one.
pub fn require_clean(complaints: &[String]) -> Result<()> {
    if !complaints.is_empty() {
        bail!("{} replies were sent before their sync", complaints.len());
    }
    Ok(())
}

/// Checks that the planted bug was found; otherwise the trace is read wrongly.
///
/// # Errors
/// Returns an error if it was not found.
pub fn require_early(complaints: &[String]) -> Result<()> {
    if !complaints.iter().any(|c| c.contains("no sync of")) {
        bail!("the planted bug was not found in the trace");
    }
    println!("trace: the planted bug was found");
    Ok(())
}
