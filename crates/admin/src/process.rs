//! The operating system's information about this process.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use crate::exposition::{self, Family, Samples, counter, gauge};

/// Metrics of the process; 0 where the operating system does not provide a value.
#[derive(Clone, Copy, Default)]
pub struct Process {
    /// Processor time of its own, in seconds.
    pub user_seconds: f64,
    /// Processor time that the system spent for it, in seconds.
    pub system_seconds: f64,
    /// The memory that the system has given to it.
    pub resident_bytes: u64,
    /// The number of descriptors that may be open; [`u64::MAX`] without a limit.
    pub max_descriptors: u64,
}

impl Process {
    /// Returns the metrics of the process now.
    #[must_use]
    pub fn now() -> Process {
        let (user_seconds, system_seconds) = cpu_seconds().unwrap_or_default();
        Process {
            user_seconds,
            system_seconds,
            resident_bytes: resident_bytes().unwrap_or_default(),
            max_descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn cpu_seconds() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may contain blanks; the fields are counted behind it.
    let mut fields = text[text.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
    let mut seconds = || -> Option<f64> {
        let ticks: f64 = fields.next()?.parse().ok()?;
        Some(ticks / rustix::param::clock_ticks_per_second() as f64)
    };
    Some((seconds()?, seconds()?))
}

/// Returns the number of open descriptors. It is not among the other metrics, because the time that
/// it takes grows with the number.
#[must_use]
pub fn open_descriptors() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // Reading the directory took one descriptor.
    Some(entries.saturating_sub(1))
}

/// The source of the samples of a process.
struct ProcessSource<'a> {
    process: &'a Process,
    started: SystemTime,
}

type FillProcessFamily = fn(&ProcessSource<'_>, &mut Samples<'_>);

/// The metrics have the names that Prometheus's own libraries use.
const FAMILIES: &[Family<FillProcessFamily>] = &[
    counter(
        "process_cpu_seconds_total",
        "Processor time of the process, the system's for it included.",
        |source, out| out.seconds(source.process.user_seconds + source.process.system_seconds),
    ),
    gauge(
        "process_resident_memory_bytes",
        "Memory that the system has given to the process.",
        |source, out| out.add(source.process.resident_bytes),
    ),
    gauge(
        "process_open_fds",
        "Descriptors that are open.",
        |_, out| {
            open_descriptors()
                .into_iter()
                .for_each(|open| out.add(open))
        },
    ),
    gauge(
        "process_max_fds",
        "Descriptors that may be open.",
        |source, out| {
            if source.process.max_descriptors < u64::MAX {
                out.add(source.process.max_descriptors);
            }
        },
    ),
    gauge(
        "process_start_time_seconds",
        "When the process began to serve, in seconds since the Unix epoch.",
        |source, out| {
            let since = source
                .started
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            out.seconds(since.as_millis() as f64 / 1e3);
        },
    ),
];

/// Returns the metrics of the process as text; it began to serve at `started`.
#[must_use]
pub fn text(process: &Process, started: SystemTime) -> String {
    let source = ProcessSource { process, started };
    exposition::text(FAMILIES, |family, samples| (family.fill)(&source, samples))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_says_its_kind() {
        exposition::check(FAMILIES);
        assert!(FAMILIES.iter().all(|it| it.name.starts_with("process_")));
    }

    #[test]
    fn a_limit_that_is_none_is_left_out() {
        let started = UNIX_EPOCH + Duration::from_micros(1_500_900);
        let process = Process {
            user_seconds: 1.0,
            system_seconds: 0.5,
            resident_bytes: 7,
            max_descriptors: u64::MAX,
        };
        let source = text(&process, started);
        let samples = source.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.filter(|line| !line.starts_with("process_open_fds "));
        let samples: Vec<_> = samples.collect();
        let expected = [
            "process_cpu_seconds_total 1.5",
            "process_resident_memory_bytes 7",
            "process_start_time_seconds 1.5",
        ];
        assert_eq!(samples, expected);
        let max_descriptors = 9;
        let process = Process {
            max_descriptors,
            ..process
        };
        assert!(text(&process, started).contains("\nprocess_max_fds 9\n"));
    }

    #[test]
    fn the_system_tells_of_this_process() {
        let process = Process::now();
        assert!(process.resident_bytes > 100_000);
        let open = open_descriptors().expect("the system tells");
        assert!((3..process.max_descriptors).contains(&open));
        assert!(cpu_seconds().is_some());
    }
}
