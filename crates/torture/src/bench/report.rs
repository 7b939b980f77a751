//! The result of a comparison: every repetition, medians, a table and a JSON file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::cell::{Cell, Mode, Sample};
use crate::bench::machine::Host;

/// One run of redis-benchmark against one server.
#[derive(Clone, Debug, Serialize)]
pub struct Repetition {
    /// The results of redis-benchmark.
    #[serde(flatten)]
    pub sample: Sample,
    /// Requests sent.
    pub requests: u64,
    /// Microseconds of the server's processor time for a request.
    pub server_cpu_us: f64,
    /// Share of its core that the client used: near 1 it is the limit, not the server.
    pub client_load: f64,
    /// The load of other processes, in cores.
    pub foreign_load: f64,
    /// `true` if the machine was quiet enough for the run to count.
    pub kept: bool,
}

/// A cell with all its repetitions, ours and the peer's.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// The least ratio that is aimed at.
    pub target: f64,
    /// Ours.
    pub kumiki: Vec<Repetition>,
    /// The peer's.
    pub redis: Vec<Repetition>,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub host: Host,
    /// Keys in each store.
    pub keys: u64,
    /// Runs of each server in each cell.
    pub repetitions: usize,
    /// The approximate seconds of a run.
    pub seconds: f64,
    /// The cells.
    pub points: Vec<Point>,
}

impl Point {
    fn medians(&self, field: impl Fn(&Repetition) -> f64) -> (f64, f64) {
        let of = |all: &[Repetition]| median(all.iter().filter(|r| r.kept).map(&field).collect());
        (of(&self.kumiki), of(&self.redis))
    }

    /// Returns our rate divided by the peer's, medians of both.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let (ours, theirs) = self.medians(|r| r.sample.rate);
        ours / theirs
    }

    /// Returns our processor time for a request divided by the peer's.
    #[must_use]
    pub fn cpu_ratio(&self) -> f64 {
        let (ours, theirs) = self.medians(|r| r.server_cpu_us);
        ours / theirs
    }

    /// Returns `true` if the cell's aims are met. Below 2 % two medians are considered equal.
    #[must_use]
    pub fn met(&self) -> bool {
        let cpu = !self.cell.compares_cpu() || self.cpu_ratio() <= 1.02;
        cpu && self.ratio() >= self.target * 0.98
    }

    /// Returns a line of the table.
    #[must_use]
    pub fn line(&self) -> String {
        let (rate, redis_rate) = self.medians(|r| r.sample.rate);
        let (cpu, redis_cpu) = self.medians(|r| r.server_cpu_us);
        let (p50, redis_p50) = self.medians(|r| r.sample.p50_ms);
        let (p99, redis_p99) = self.medians(|r| r.sample.p99_ms);
        let (client, _) = self.medians(|r| r.client_load);
        let load = self.cell.load;
        let mode = if self.cell.mode == Mode::Ephemeral {
            "ephemeral"
        } else {
            "durable"
        };
        format!(
            "{mode:<9} {:<3} {:>5} {:>3} {:>3} | {rate:>9.0} {redis_rate:>9.0} {:>5.2} {:>4.1}{} | \
             {cpu:>6.2} {redis_cpu:>6.2} {:>5.2} | {p50:>6.3} {redis_p50:>6.3} {p99:>7.3} {redis_p99:>7.3} | \
             {client:>4.2} {}",
            load.test.name(),
            load.size,
            load.clients,
            load.pipeline,
            self.ratio(),
            self.target,
            if self.cell.compares_cpu() { "c" } else { " " },
            self.cpu_ratio(),
            if self.met() { "met" } else { "missed" },
        )
    }
}

/// Returns the header of the table.
#[must_use]
pub fn header() -> String {
    format!(
        "{:<9} {:<3} {:>5} {:>3} {:>3} | {:>9} {:>9} {:>5} {:>5} | {:>6} {:>6} {:>5} | {:>6} {:>6} {:>7} {:>7} | {:>4}\n\
         {:<25} | {:^31} | {:^19} | {:^29} |",
        "mode",
        "op",
        "bytes",
        "c",
        "P",
        "kumiki/s",
        "redis/s",
        "ratio",
        "aim",
        "kumiki",
        "redis",
        "ratio",
        "kumiki",
        "redis",
        "kumiki",
        "redis",
        "load",
        "",
        "requests",
        "server CPU, µs/op",
        "latency, ms: p50, then p99",
    )
}

impl Report {
    /// Writes `bench-redis.json` into `dir`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<PathBuf> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = dir.join("bench-redis.json");
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Returns the median.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => all[n / 2],
        n => f64::midpoint(all[n / 2 - 1], all[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }
}
