//! YCSB's workload A, directly and through the proxy, in pairs whose order changes.
//!
//! YCSB counts the connecting of its threads as part of a run; so throughput is that of its reports
//! of each second, without the first few, in which the client's Java is slow, and without the last.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::system::{CassandraRoute, CassandraSystem};
use crate::error::RunError;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::RunSample;
use crate::statistics::median;
use cassandra::ycsb::{Binding, Phase, Ycsb};

/// The most seconds at the beginning of a run that are not counted: a third of a short one.
const NOT_COUNTED: u64 = 4;
/// How much longer than planned a run may take, connecting and loading included.
const PATIENCE: Duration = Duration::from_secs(180);
/// The interval at which it is checked if a run has ended.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct YcsbPlan {
    pub(super) version: u8,
    pub(super) records: u64,
    pub(super) seconds: u64,
    pub(super) clients: usize,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct YcsbFigures {
    throughput: f64,
    latency: f64,
    p99: f64,
    server_cpu: f64,
    proxy_cpu: f64,
}

pub(super) fn measure(
    plan: &YcsbPlan,
    pairs: usize,
    system: &CassandraSystem,
    context: &RunContext<'_>,
    sample: &mut RunSample,
) -> Result<(), RunError> {
    let runner = YcsbRunner {
        plan,
        system,
        context,
        ycsb: context.peers.ycsb()?,
        dir: context.directory(StorageMedium::Disk)?,
    };
    runner.run_phase(Phase::Load, CassandraRoute::Direct)?;
    let mut figures: Vec<[YcsbFigures; 2]> = Vec::new();
    // The first pair warms the nodes.
    for pair in 0..=pairs {
        let mut both = [YcsbFigures::default(); 2];
        for place in [pair % 2, 1 - pair % 2] {
            both[place] = runner.run([CassandraRoute::Direct, CassandraRoute::Proxy][place])?;
        }
        figures.push(both);
    }
    figures.remove(0);
    let values = &mut sample.values;
    let mut set = |metric: &str, of: &dyn Fn(&[YcsbFigures; 2]) -> f64| {
        let all = figures.iter().map(of).collect();
        values.set(metric, median(all).unwrap_or(f64::NAN));
    };
    set("direct-throughput", &|both| both[0].throughput);
    set("direct-latency", &|both| both[0].latency);
    set("direct-p99", &|both| both[0].p99);
    set("direct-server-cpu", &|both| both[0].server_cpu);
    set("throughput", &|both| both[1].throughput);
    set("latency", &|both| both[1].latency);
    set("latency-p99", &|both| both[1].p99);
    set("server-cpu", &|both| both[1].server_cpu);
    set("proxy-cpu", &|both| both[1].proxy_cpu);
    set("ratio", &|both| both[1].throughput / both[0].throughput);
    Ok(())
}

struct YcsbRunner<'r> {
    plan: &'r YcsbPlan,
    system: &'r CassandraSystem,
    context: &'r RunContext<'r>,
    ycsb: Ycsb,
    dir: tempfile::TempDir,
}

impl YcsbRunner<'_> {
    fn run(&self, route: CassandraRoute) -> Result<YcsbFigures, RunError> {
        let before = self.system.used();
        let [out, err] = self.run_phase(Phase::Transactions, route)?;
        let after = self.system.used();
        let mut figures = read(&out, &err, self.plan.seconds)?;
        let count = operations(&out) as f64;
        let each = |who: usize| (after[who] - before[who]) * 1e6 / count;
        [figures.server_cpu, figures.proxy_cpu] = [each(0), each(1)];
        Ok(figures)
    }

    /// Runs a phase. Returns its output and its errors.
    fn run_phase(&self, phase: Phase, route: CassandraRoute) -> Result<[String; 2], RunError> {
        let failed = |error: std::io::Error| RunError::failed("running YCSB")(&error);
        let YcsbPlan {
            version,
            records,
            seconds,
            clients,
        } = self.plan;
        let hosts: Vec<String> = self
            .system
            .targets(route)
            .iter()
            .map(ToString::to_string)
            .collect();
        let (hosts, copies) = (hosts.join(","), self.system.nodes().len().to_string());
        let (version, records) = (format!("V{version}"), records.to_string());
        let (clients, seconds) = (clients.to_string(), seconds.to_string());
        let mut properties = vec![
            ("recordcount", records.as_str()),
            ("readproportion", "0.5"),
            ("updateproportion", "0.5"),
            ("dataintegrity", "true"),
            ("fieldlengthdistribution", "constant"),
            ("status.interval", "1"),
            ("cassandra.hosts", &hosts),
            ("cassandra.connections", &clients),
            ("cassandra.protocol", &version),
            ("cassandra.replicas", &copies),
        ];
        if phase == Phase::Transactions {
            properties.extend([
                ("operationcount", "1000000000"),
                ("maxexecutiontime", &seconds),
            ]);
        }
        let threads = self.plan.clients;
        let mut command = self
            .ycsb
            .command(phase, Binding::Cassandra, threads, &properties);
        let paths = ["out", "err"].map(|name| self.dir.path().join(name));
        let [out, err] = paths.each_ref().map(File::create);
        command.arg("-s").stdin(Stdio::null());
        command
            .stdout(out.map_err(failed)?)
            .stderr(err.map_err(failed)?);
        let child = command.spawn().map_err(failed)?;
        self.wait(child)?;
        let text = |path: &Path| std::fs::read_to_string(path).map_err(failed);
        let [out, err] = [text(&paths[0])?, text(&paths[1])?];
        let wrong = |line: &&str| line.contains("ERROR") || line.contains("UNEXPECTED");
        match out.lines().find(wrong) {
            None => Ok([out, err]),
            Some(line) => {
                let first = err.lines().find(|line| line.contains("the first error"));
                let what = format!("YCSB: {line} {}", first.unwrap_or_default());
                Err(RunError::Failed(what))
            }
        }
    }

    fn wait(&self, mut child: std::process::Child) -> Result<(), RunError> {
        let failed = |error: std::io::Error| RunError::failed("waiting for YCSB")(&error);
        let deadline = Instant::now() + Duration::from_secs(self.plan.seconds) + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(RunError::Failed(format!("YCSB has ended: {status}"))),
                };
            }
            let stopped = self.context.stop.load(Ordering::Relaxed);
            if stopped || Instant::now() > deadline {
                // An error means that it has ended already, which `wait` reports.
                let _ = child.kill();
                child.wait().map_err(failed)?;
                return Err(match stopped {
                    true => RunError::Interrupted,
                    false => RunError::Failed("YCSB does not end".to_owned()),
                });
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Returns a figure of an operation, as in `[READ], AverageLatency(us), 411.5`.
fn figure(out: &str, operation: &str, name: &str) -> Option<f64> {
    let begin = format!("[{operation}], {name}, ");
    let line = out.lines().find_map(|line| line.strip_prefix(&begin));
    line?.trim().parse().ok()
}

/// Returns the number of operations of a run.
fn operations(out: &str) -> u64 {
    let of = |operation| figure(out, operation, "Operations").unwrap_or(0.0) as u64;
    of("READ") + of("UPDATE")
}

/// Returns the results of a run: at its end, and for each second.
///
/// # Errors
/// Returns an error if something is missing, or if a record was read that had not been written so.
fn read(out: &str, err: &str, seconds: u64) -> Result<YcsbFigures, RunError> {
    let get = |operation: &str, name: &str| {
        let found = figure(out, operation, name);
        found.ok_or_else(|| format!("YCSB has not told {name} of {operation}"))
    };
    let (reads, updates) = (get("READ", "Operations")?, get("UPDATE", "Operations")?);
    let right = get("VERIFY", "Return=OK")?;
    if right != reads || get("UPDATE", "Return=OK")? != updates {
        return Err(RunError::Failed(format!(
            "of {reads} records that YCSB has read {right} were right"
        )));
    }
    let mean = "AverageLatency(us)";
    let sum = get("READ", mean)? * reads + get("UPDATE", mean)? * updates;
    let tail = "99thPercentileLatency(us)";
    let rates: Vec<f64> = err.lines().filter_map(rate).collect();
    let skipped = NOT_COUNTED.min(seconds / 3) as usize;
    let counted = rates.len().saturating_sub(1);
    let counted = rates.get(skipped..counted).unwrap_or_default();
    if counted.is_empty() {
        return Err(RunError::Failed("YCSB has ended too early".to_owned()));
    }
    Ok(YcsbFigures {
        throughput: counted.iter().sum::<f64>() / counted.len() as f64,
        latency: sum / (reads + updates) / 1e3,
        p99: get("READ", tail)?.max(get("UPDATE", tail)?) / 1e3,
        ..YcsbFigures::default()
    })
}

/// Returns the operations a second in a report such as `2026-01-31 10:00:00:000 3 sec: 900
/// operations; 300 current ops/sec; …`.
fn rate(line: &str) -> Option<f64> {
    let (before, _) = line.split_once(" current ops/sec;")?;
    before.rsplit("; ").next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(right: u64) -> String {
        format!(
            "[OVERALL], Throughput(ops/sec), 10.0\n\
             [READ], Operations, 30\n[READ], AverageLatency(us), 1000.0\n\
             [READ], 99thPercentileLatency(us), 3000\n[READ], Return=OK, 30\n\
             [VERIFY], Return=OK, {right}\n\
             [UPDATE], Operations, 10\n[UPDATE], AverageLatency(us), 2000.0\n\
             [UPDATE], 99thPercentileLatency(us), 5000\n[UPDATE], Return=OK, 10\n"
        )
    }

    fn err(rates: &[f64]) -> String {
        let line = |(second, rate): (usize, &f64)| {
            format!(
                "2026-01-31 10:00:00:00{second} {second} sec: {second}00 operations; {rate} current \
                 ops/sec; est completion in 2 days [READ: Count=1]\n"
            )
        };
        rates.iter().enumerate().map(line).collect()
    }

    #[test]
    fn seconds_at_both_ends_do_not_count() {
        let figures = read(&out(30), &err(&[1.0, 2.0, 30.5, 40.5, 5.0]), 6).unwrap();
        let expected = YcsbFigures {
            throughput: 35.5,
            latency: 1.25,
            p99: 5.0,
            ..YcsbFigures::default()
        };
        assert_eq!(figures, expected);
        assert_eq!(operations(&out(30)), 40);
        assert!(read(&out(30), &err(&[1.0, 2.0]), 6).is_err());
    }

    #[test]
    fn a_wrong_record_is_found() {
        let found = read(&out(29), &err(&[1.0; 9]), 6).unwrap_err().to_string();
        assert!(
            found.contains("of 30") && found.contains("29 were right"),
            "{found}"
        );
        assert!(read("", &err(&[1.0; 9]), 6).is_err());
    }
}
