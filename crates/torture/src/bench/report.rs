//! The result of a comparison: every repetition, medians, a table and a JSON file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::cell::{BenchCell, CellAim, Sample};
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
pub struct BenchPoint {
    /// The cell.
    #[serde(flatten)]
    pub cell: BenchCell,
    /// The aims.
    pub aims: Vec<CellAim>,
    /// Kumiki's.
    pub kumiki: Vec<Repetition>,
    /// The peer's.
    pub redis: Vec<Repetition>,
    /// Of the server that only sends back; none where it is not measured.
    pub echo: Vec<Repetition>,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// The machine.
    pub host: Host,
    /// Keys in each store.
    pub keys: u64,
    /// Runs of each server in each cell.
    pub repetitions: usize,
    /// The approximate seconds of a run.
    pub seconds: f64,
    /// The cells.
    pub points: Vec<BenchPoint>,
}

impl BenchPoint {
    /// Returns the medians of Kumiki, the peer and the echo; not a number where nothing was measured.
    fn medians(&self, field: impl Fn(&Repetition) -> f64) -> [f64; 3] {
        [&self.kumiki, &self.redis, &self.echo]
            .map(|all| median(all.iter().filter(|r| r.kept).map(&field).collect()))
    }

    /// Returns the value of which an aim speaks.
    #[must_use]
    pub fn value(&self, aim: CellAim) -> f64 {
        let [rate, peer_rate, _] = self.medians(|r| r.sample.rate);
        let [cpu, peer_cpu, echo_cpu] = self.medians(|r| r.server_cpu_us);
        match aim {
            CellAim::Rate(_) => rate / peer_rate,
            CellAim::Cpu(_) => cpu / peer_cpu,
            CellAim::CpuByEcho(_) => cpu / echo_cpu,
        }
    }

    /// Returns `true` if an aim is met.
    #[must_use]
    pub fn meets(&self, aim: CellAim) -> bool {
        match aim {
            CellAim::Rate(least) => self.value(aim) >= least,
            CellAim::Cpu(most) | CellAim::CpuByEcho(most) => self.value(aim) <= most,
        }
    }

    /// Returns a line of the table.
    #[must_use]
    pub fn line(&self) -> String {
        let [rate, peer_rate, _] = self.medians(|r| r.sample.rate);
        let [cpu, peer_cpu, echo_cpu] = self.medians(|r| r.server_cpu_us);
        let [p99, peer_p99, _] = self.medians(|r| r.sample.p99_ms);
        let [client, ..] = self.medians(|r| r.client_load);
        let load = self.cell.load;
        let by_echo = if self.echo.is_empty() {
            format!("{:>13}", "")
        } else {
            format!("{echo_cpu:>7.2} {:>5.2}", cpu / echo_cpu)
        };
        let aims = self.aims.iter().map(|&aim| {
            let met = if self.meets(aim) { "met" } else { "missed" };
            match aim {
                CellAim::Rate(least) => format!("rate >= {least:.2} {met}"),
                CellAim::Cpu(most) => format!("CPU <= {most:.2} {met}"),
                CellAim::CpuByEcho(most) => format!("by echo <= {most:.2} {met}"),
            }
        });
        format!(
            "{:<9} {:<3} {:>3} {:>3} | {rate:>9.0} {peer_rate:>9.0} {:>5.2} | {cpu:>6.2} {peer_cpu:>6.2} {:>5.2} \
             {by_echo} | {p99:>7.3} {peer_p99:>7.3} | {client:>4.2} | {}",
            self.cell.mode,
            load.test.name(),
            load.clients,
            load.pipeline,
            rate / peer_rate,
            cpu / peer_cpu,
            aims.collect::<Vec<_>>().join(", "),
        )
    }
}

/// Returns the header of the table.
#[must_use]
pub fn header() -> String {
    format!(
        "{:<22} | {:^25} | {:^34} | {:^15} |      |\n\
         {:<9} {:<3} {:>3} {:>3} | {:>9} {:>9} {:>5} | {:>6} {:>6} {:>5} {:>7} {:>5} | {:>7} {:>7} | {:>4} | aims",
        "",
        "requests a second",
        "server's CPU, µs a request",
        "p99, ms",
        "mode",
        "op",
        "c",
        "P",
        "kumiki",
        "redis",
        "ratio",
        "kumiki",
        "redis",
        "ratio",
        "echo",
        "ratio",
        "kumiki",
        "redis",
        "load",
    )
}

impl BenchReport {
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
