//! One cell of the comparison: the requests, the measurement, and the aim.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::machine::CLIENT_CORE;
use xtask::process;

/// How both servers keep data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Not at all: `--ephemeral`; `save ""`, `appendonly no`.
    Ephemeral,
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
pub struct Load {
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
pub struct Cell {
    /// How data is kept.
    pub mode: Mode,
    /// The requests.
    #[serde(flatten)]
    pub load: Load,
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
}

impl Cell {
    /// Returns the least ratio of our rate to the peer's.
    ///
    /// Reads wait for no sync on either side, so that they have the same target in both modes.
    #[must_use]
    pub fn target(&self) -> f64 {
        match (self.mode, self.load.test, self.load.pipeline) {
            _ if self.load.clients == 1 => 1.0,
            (Mode::Durable, Test::Set, _) => 1.5,
            (_, _, 1) => 1.0,
            _ => 1.3,
        }
    }

    /// Returns `true` if the server may use no more processor time per request than the peer: if
    /// the client's core is the limit, the rate alone says little.
    #[must_use]
    pub fn compares_cpu(&self) -> bool {
        self.mode == Mode::Ephemeral && self.load.pipeline == 1
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

impl Load {
    /// Runs redis-benchmark for `requests` requests, pinned to the client's core if requested.
    ///
    /// # Errors
    /// Returns an error if it fails, as it does when the server answers with an error.
    pub fn measure(
        &self,
        addr: SocketAddr,
        keys: u64,
        requests: u64,
        is_pinned: bool,
    ) -> Result<Sample> {
        let mut command = Command::new("redis-benchmark");
        if is_pinned {
            command = Command::new("taskset");
            command.args(["-c", CLIENT_CORE, "redis-benchmark"]);
        }
        command.arg("--csv");
        command.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()]);
        command.args(["-t", self.test.name()]);
        command.args(["-n", &requests.to_string(), "-r", &keys.to_string()]);
        command.args([
            "-c",
            &self.clients.to_string(),
            "-P",
            &self.pipeline.to_string(),
        ]);
        command
            .args(["-d", &self.size.to_string()])
            .stderr(Stdio::inherit());
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
    let [rate, _, _, p50_ms, _, p99_ms, _] = fields[..] else {
        return None;
    };
    Some(Sample {
        rate,
        p50_ms,
        p99_ms,
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
