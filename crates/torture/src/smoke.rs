//! Runs the README's first minute: serve, set, kill, serve again, get; and redis-benchmark.

use std::process::Command;

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::server::{Program, ServerUnderTest};
use xtask::process;

/// Some tests of redis-benchmark; the test `redis_benchmark` of crate `cli` runs all of them.
const TESTS: &str = "ping,set,get,incr,mset";

/// Runs it.
///
/// # Errors
/// Returns an error if anything differs from what the README says.
pub fn run(program: &Program) -> Result<()> {
    let dir = TempDir::with_prefix("kumiki-smoke-")?;
    let data = dir.path().join("data");
    let mut server = program.start(&data, &vec![])?;
    server.wait_ready()?;
    ask(&server, &["set", "a", "1"], "OK")?;
    ask(&server, &["get", "a"], "1")?;
    server.kill()?;
    let mut server = program.start(&data, &vec![])?;
    server.wait_ready()?;
    ask(&server, &["get", "a"], "1")?;
    let tail = server.log_tail();
    if !tail.contains(&server.addr().to_string()) || !tail.contains(&data.display().to_string()) {
        bail!("no line says the address and where data lies; {tail}");
    }
    benchmark(&server)?;
    server.stop()?;
    println!("smoke: set, killed, found again; redis-benchmark ran through");
    Ok(())
}

fn ask(server: &ServerUnderTest, args: &[&str], expected: &str) -> Result<()> {
    let mut command = Command::new("redis-cli");
    command
        .args(["-p", &server.addr().port().to_string()])
        .args(args);
    let answer = process::output("redis-cli", &mut command)?;
    if answer.trim_end() != expected {
        bail!(
            "{args:?} was answered with {:?} instead of {expected:?}",
            answer.trim_end()
        );
    }
    Ok(())
}

fn benchmark(server: &ServerUnderTest) -> Result<()> {
    let port = server.addr().port().to_string();
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port, "-q", "-t", TESTS, "-n", "20000", "-r", "10000"]);
    let text = process::output("redis-benchmark", &mut command)?;
    // Progress is overwritten in place; the last state of each line is the one that remains
    // visible.
    let lines = text
        .lines()
        .filter_map(|line| line.rsplit('\r').find(|part| !part.is_empty()));
    let results: Vec<&str> = lines
        .filter(|line| line.contains("requests per second"))
        .collect();
    for line in &results {
        println!("smoke: {}", line.trim());
    }
    if results.len() < TESTS.split(',').count() {
        bail!("redis-benchmark did not run through: {text}");
    }
    Ok(())
}
