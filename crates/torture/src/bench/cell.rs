//! One cell of the comparison: the requests, the measurement, and the aim.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::machine::CLIENT_CORE;
use xtask::process;

/// How both servers keep data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BenchMode {
    /// Not at all: `--ephemeral`; `save ""`, `appendonly no`.
    Ephemeral,
    /// Not at all, and connections are encrypted.
    Tls,
    /// Before the reply: `--durability group`; `appendfsync always`.
    Durable,
}

/// The requests of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Test {
    /// `GET` of a random key that exists.
    Get,
    /// `SET` of a random key.
    Set,
}

/// The work of redis-benchmark.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BenchLoad {
    /// The requests.
    pub test: Test,
    /// Bytes in a value.
    pub size: usize,
    /// Requests that a client sends ahead of their replies.
    pub pipeline: u32,
    /// Clients.
    pub clients: u32,
}

/// One cell.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BenchCell {
    /// How data is kept.
    pub mode: BenchMode,
    /// The requests.
    #[serde(flatten)]
    pub load: BenchLoad,
}

/// The results of redis-benchmark.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Requests a second.
    pub rate: f64,
    /// Median latency in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile in milliseconds.
    pub p99_ms: f64,
    /// The longest one in milliseconds.
    pub max_ms: f64,
}

/// An aim of a cell: how Kumiki should compare.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellAim {
    /// Its rate by the peer's is at least this.
    Rate(f64),
    /// Its processor time for a request, by the peer's, is at most this.
    Cpu(f64),
    /// Its processor time for a request, by that of the server that only sends back, is at most this.
    CpuByEcho(f64),
}

/// The server that redis-benchmark asks.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The authority of its certificate, if it is asked over TLS.
    pub authority: Option<&'a Path>,
    /// Keys in its store.
    pub keys: u64,
    /// redis-benchmark runs on the client's core alone.
    pub is_pinned: bool,
}

impl fmt::Display for BenchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BenchMode::Ephemeral => "ephemeral",
            BenchMode::Tls => "tls",
            BenchMode::Durable => "durable",
        })
    }
}

impl BenchCell {
    /// Returns the aims. Without pipelining and without a log the client's core is the limit, so that rates say
    /// little there.
    #[must_use]
    pub fn aims(&self) -> Vec<CellAim> {
        match (self.mode, self.load.test, self.load.pipeline) {
            (BenchMode::Ephemeral, Test::Get, 1) => {
                vec![CellAim::Cpu(0.7), CellAim::CpuByEcho(1.2)]
            }
            (BenchMode::Ephemeral, Test::Set, 1) => {
                vec![CellAim::Cpu(0.8), CellAim::CpuByEcho(1.2)]
            }
            (BenchMode::Ephemeral, Test::Get, _) => vec![CellAim::Rate(2.5)],
            (BenchMode::Ephemeral, Test::Set, _) => vec![CellAim::Rate(2.0)],
            (BenchMode::Tls, _, 1) => vec![CellAim::Cpu(0.8)],
            (BenchMode::Durable, Test::Set, 1) if self.load.clients > 1 => vec![CellAim::Rate(1.4)],
            _ => Vec::new(),
        }
    }

    /// Returns `true` if the server that only sends back is measured, too.
    #[must_use]
    pub fn has_echo(&self) -> bool {
        let by_echo = |aim: &CellAim| matches!(aim, CellAim::CpuByEcho(_));
        self.aims().iter().any(by_echo)
    }
}

impl Test {
    /// Returns the command's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Test::Get => "GET",
            Test::Set => "SET",
        }
    }
}

impl BenchLoad {
    /// Runs redis-benchmark for `requests` requests.
    ///
    /// # Errors
    /// Returns an error if it fails, as it does when the server answers with an error.
    pub fn measure(&self, asked: &Asked<'_>, requests: u64) -> Result<Sample> {
        let (test, size) = (self.test.name(), self.size.to_string());
        asked.benchmark(
            self.clients,
            self.pipeline,
            requests,
            &["-d", &size, "-t", test],
        )
    }
}

impl Asked<'_> {
    /// Runs redis-benchmark for `requests` requests of `clients` clients, with `args` added: its test, or a
    /// command in whose words `__rand_int__` is a random number below the number of keys.
    ///
    /// # Errors
    /// As [`BenchLoad::measure`].
    pub fn benchmark(
        &self,
        clients: u32,
        pipeline: u32,
        requests: u64,
        args: &[&str],
    ) -> Result<Sample> {
        let mut command = Command::new("redis-benchmark");
        if self.is_pinned {
            command = Command::new("taskset");
            command.args(["-c", CLIENT_CORE, "redis-benchmark"]);
        }
        command.arg("--csv");
        let (host, port) = (self.addr.ip().to_string(), self.addr.port().to_string());
        command.args(["-h", &host, "-p", &port]);
        if let Some(authority) = self.authority {
            command.arg("--tls").arg("--cacert").arg(authority);
        }
        command.args(["-n", &requests.to_string(), "-r", &self.keys.to_string()]);
        command.args(["-c", &clients.to_string(), "-P", &pipeline.to_string()]);
        command.args(args).stderr(Stdio::inherit());
        let text = process::output("redis-benchmark", &mut command)?;
        parse(&text).with_context(|| format!("redis-benchmark said: {text}"))
    }
}

/// Parses the output. Its columns are: test, rps, and latencies: avg, min, p50, p95, p99, max.
fn parse(csv: &str) -> Option<Sample> {
    let line = csv
        .lines()
        .rfind(|line| line.starts_with('"') && !line.starts_with("\"test\""))?;
    let fields: Vec<f64> = line
        .split(',')
        .skip(1)
        .filter_map(|field| field.trim_matches('"').parse().ok())
        .collect();
    let [rate, _, _, p50_ms, _, p99_ms, max_ms] = fields[..] else {
        return None;
    };
    Some(Sample {
        rate,
        p50_ms,
        p99_ms,
        max_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_csv_of_redis_benchmark_is_read() {
        let text = concat!(
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",",
            "\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n",
            "\"SET\",\"1000.50\",\"0.31\",\"0.10\",\"0.25\",\"0.40\",\"0.75\",\"1.10\"\n",
        );
        let sample = parse(text).expect("a sample");
        assert_eq!(
            (sample.rate, sample.p50_ms, sample.p99_ms),
            (1000.5, 0.25, 0.75)
        );
        assert!(parse("ERROR").is_none());
    }
}
