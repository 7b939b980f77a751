//! One list to which many clients push: its rate on three replicas, and the longest wait of a client.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::aim::Aim;
use super::content::CLIENTS;
use super::options::Options;
use crate::bench::cell::{Asked, Sample};
use crate::bench::leader;
use crate::bench::report::median;
use crate::cluster::ClusterNodes;
use crate::server::Program;

/// The clients of the measurement of waits.
const WAITING: u32 = 64;
/// The keys: one for all clients, or about one for each.
const KEYS: [&str; 2] = ["list", "list:__rand_int__"];
/// The longest wait of a client, by the median.
const LONGEST_WAIT: Aim = Aim::AtMost(50.0);

/// Prints the rate of pushes to one list of three replicas, by that of pushes to many, and the waits.
pub(super) fn on_replicas(binary: &Path, options: &Options) -> Result<()> {
    let dir = TempDir::with_prefix("kumiki-bench-")?;
    let args = vec!["--io".to_owned(), options.io.clone()];
    let program = Program::kumiki(binary.to_owned(), args);
    let mut nodes = ClusterNodes::replicated_anywhere(&program, dir.path(), 3, 3)?;
    nodes.start_all()?;
    nodes.wait_together()?;
    let addr = nodes.addresses()[leader(&nodes.addresses())?];
    let samples = push(addr, CLIENTS, options)?;
    let [one, many] = samples.map(|samples| median(rates(&samples)));
    println!(
        "\nLPUSH by {CLIENTS} clients on three replicas: one key {one:.0}/s, {CLIENTS} keys {many:.0}/s, ratio \
         {:.2} ({})",
        one / many,
        Aim::AtLeast(0.5).of(one / many)
    );
    print_waits("three replicas", &push(addr, WAITING, options)?);
    nodes.stop()
}

/// Prints the waits of clients that push to one list of a server with one thread, and with two.
pub(super) fn on_one_node(binary: &Path, options: &Options) -> Result<()> {
    for threads in ["1", "2"] {
        for durability in ["--ephemeral", "--durability=group"] {
            let dir = TempDir::with_prefix("kumiki-bench-")?;
            let args = ["--io", &options.io, "--threads", threads, durability];
            let args = args.map(str::to_owned).to_vec();
            let program = Program::kumiki(binary.to_owned(), args);
            let mut server = program.start(&dir.path().join("data"), &Vec::new())?;
            server.wait_ready()?;
            let samples = push(server.addr(), WAITING, options)?;
            print_waits(&format!("{threads} threads, {durability}"), &samples);
            server.stop()?;
        }
    }
    Ok(())
}

/// Pushes to one key, and to as many as there are clients, by turns.
fn push(addr: SocketAddr, clients: u32, options: &Options) -> Result<[Vec<Sample>; 2]> {
    let asked = Asked {
        addr,
        authority: None,
        keys: u64::from(clients),
        is_pinned: false,
    };
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds {
        for (key, samples) in KEYS.into_iter().zip(&mut samples) {
            let requests = options.requests / 40;
            let sample = asked.benchmark(clients, 1, requests, &["LPUSH", key, "value"]);
            samples.push(sample.with_context(|| format!("{clients} clients push to {key}"))?);
        }
    }
    Ok(samples)
}

fn rates(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.rate).collect()
}

/// Prints the longest wait by the median one, of each run the quotient and of these the median.
fn print_waits(server: &str, samples: &[Vec<Sample>; 2]) {
    let quotient = |samples: &[Sample]| {
        let of_runs = samples.iter().map(|sample| sample.max_ms / sample.p50_ms);
        median(of_runs.collect())
    };
    let [one, many] = samples.each_ref().map(|samples| quotient(samples));
    let of_one = median(samples[0].iter().map(|sample| sample.p50_ms).collect());
    println!(
        "the longest wait of {WAITING} clients by the median ({server}): one list {one:.1} ({}), {WAITING} lists \
         {many:.1}; median {of_one:.2} ms",
        LONGEST_WAIT.of(one)
    );
}
