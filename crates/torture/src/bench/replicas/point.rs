//! Runs of one load against all sides, and their table.

use std::ops::Range;

use serde::Serialize;

use crate::bench::cell::{BenchLoad, Sample, Test};
use crate::bench::machine::Usage;
use crate::bench::report::median;

/// Returns the least rate of replicas, relative to that of one node.
fn aim(load: BenchLoad) -> f64 {
    match (load.test, load.pipeline) {
        (Test::Set, 1) => 0.8,
        (Test::Set, _) => 0.4,
        _ => 0.5,
    }
}

/// The servers that are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Side {
    OneNode,
    ReadIndex,
    Lease,
}

/// All of them.
pub(super) const SIDES: [Side; 3] = [Side::OneNode, Side::ReadIndex, Side::Lease];

/// One run of redis-benchmark.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Run {
    #[serde(flatten)]
    sample: Sample,
    requests: u64,
    /// Microseconds of all of the side's servers for a request.
    cpu_us: f64,
    /// Microseconds of the server that is asked.
    asked_cpu_us: f64,
    /// Share of a core that the client used.
    client_load: f64,
    /// The load of other processes, in cores.
    foreign_load: f64,
}

/// All runs of one load, by side; those of one turn are at the same index.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    #[serde(flatten)]
    pub(super) load: BenchLoad,
    pub(super) one_node: Vec<Run>,
    pub(super) read_index: Vec<Run>,
    pub(super) lease: Vec<Run>,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::OneNode => "one node",
            Side::ReadIndex => "read index",
            Side::Lease => "lease",
        }
    }

    /// Returns the indices of its servers among all.
    fn servers(self) -> Range<usize> {
        match self {
            Side::OneNode => 0..1,
            Side::ReadIndex => 1..4,
            Side::Lease => 4..7,
        }
    }
}

impl Run {
    pub(super) fn new(
        sample: Sample,
        requests: u64,
        usage: &Usage,
        side: Side,
        asked: usize,
    ) -> Run {
        let servers = &usage.servers[side.servers()];
        let for_each = |seconds: f64| seconds * 1e6 / requests as f64;
        Run {
            sample,
            requests,
            cpu_us: for_each(servers.iter().sum()),
            asked_cpu_us: for_each(servers[asked]),
            client_load: usage.own / usage.wall,
            foreign_load: usage.foreign,
        }
    }
}

impl Point {
    fn runs(&self, side: Side) -> &[Run] {
        match side {
            Side::OneNode => &self.one_node,
            Side::ReadIndex => &self.read_index,
            Side::Lease => &self.lease,
        }
    }

    /// Returns the median over the turns of the side's rate relative to that of one node.
    fn ratio(&self, side: Side) -> f64 {
        let pairs = self.runs(side).iter().zip(&self.one_node);
        median(
            pairs
                .map(|(run, one)| run.sample.rate / one.sample.rate)
                .collect(),
        )
    }

    /// Returns a line of the table for each side.
    pub(super) fn lines(&self) -> String {
        let line = |side: Side| {
            let of = |field: fn(&Run) -> f64| median(self.runs(side).iter().map(field).collect());
            let ratio = self.ratio(side);
            let least = aim(self.load);
            let aim = match side {
                Side::OneNode => String::new(),
                _ if ratio >= least => format!("{least} met"),
                _ => format!("{least} missed"),
            };
            format!(
                "{:<3} {:>3} {:<10} | {:>9.0} {ratio:>6.2} {aim:<10} | {:>6.2} {:>6.2} | {:>6.3} {:>7.3} | {:>6.2}\n",
                self.load.test.name(),
                self.load.pipeline,
                side.name(),
                of(|run| run.sample.rate),
                of(|run| run.cpu_us),
                of(|run| run.asked_cpu_us),
                of(|run| run.sample.p50_ms),
                of(|run| run.sample.p99_ms),
                of(|run| run.client_load),
            )
        };
        SIDES.map(line).concat()
    }
}

/// Returns the header of the table.
pub(super) fn header() -> String {
    format!(
        "{:<3} {:>3} {:<10} | {:>9} {:>6} {:<10} | {:>6} {:>6} | {:>6} {:>7} | {:>6}\n\
         {:<18} | {:^27} | {:^13} | {:^14} |",
        "op",
        "P",
        "side",
        "rate",
        "of one",
        "aim",
        "all",
        "asked",
        "p50",
        "p99",
        "client",
        "",
        "requests a second",
        "CPU, µs/op",
        "latency, ms"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(rates: &[f64]) -> Vec<Run> {
        let run = |rate: &f64| Run {
            sample: Sample {
                rate: *rate,
                p50_ms: 1.0,
                p99_ms: 2.0,
                max_ms: 3.0,
            },
            requests: 1000,
            cpu_us: 3.0,
            asked_cpu_us: 2.0,
            client_load: 0.5,
            foreign_load: 0.0,
        };
        rates.iter().map(run).collect()
    }

    #[test]
    fn rates_are_compared_turn_by_turn_and_with_the_aims() {
        let mut point = Point {
            load: BenchLoad {
                test: Test::Get,
                size: 64,
                pipeline: 1,
                clients: 50,
            },
            one_node: runs(&[100.0, 10.0, 1000.0]),
            read_index: runs(&[60.0, 6.0, 100.0]),
            lease: runs(&[40.0, 4.0, 900.0]),
        };
        assert!((point.ratio(Side::ReadIndex) - 0.6).abs() < 1e-9);
        assert!((point.ratio(Side::Lease) - 0.4).abs() < 1e-9);
        let text = point.lines();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            !lines[0].contains("met") && !lines[0].contains("missed"),
            "{text}"
        );
        assert!(
            lines[1].contains("met") && lines[2].contains("missed"),
            "{text}"
        );
        point.load.test = Test::Set;
        assert_eq!(
            point.lines().matches("0.8 missed").count(),
            2,
            "0.6 and 0.4"
        );
        point.load.pipeline = 16;
        assert_eq!(point.lines().matches("0.4 met").count(), 2, "0.6 and 0.4");
    }

    #[test]
    fn processor_time_is_that_of_the_side() {
        let usage = Usage {
            wall: 2.0,
            foreign: 0.0,
            servers: vec![9.0, 1.0, 2.0, 3.0, 0.25, 0.5, 0.25],
            own: 1.0,
        };
        let sample = runs(&[1.0])[0].sample;
        let run = Run::new(sample, 1_000_000, &usage, Side::Lease, 1);
        assert!((run.cpu_us - 1.0).abs() < 1e-9 && (run.asked_cpu_us - 0.5).abs() < 1e-9);
        assert!((run.client_load - 0.5).abs() < 1e-9);
    }
}
