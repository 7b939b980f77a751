//! The machine of a measurement: its properties, and its other load.
//!
//! *Foreign* load is everything that ran besides this process, in cores: 1.0 is one busy core. Time
//! that a hypervisor gave to other machines counts as foreign too, because it is as harmful. A run
//! during which foreign load was above [`NOISY`] is marked.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_getcpuclockid};
use serde::{Deserialize, Serialize};

/// Foreign load from which a run is noisy.
pub const NOISY: f64 = 0.15;

/// Other load during a run, or a time without runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Load average of the last minute, at the end of the run.
    pub load_average: f64,
    /// The processor time of other processes, in cores.
    pub foreign: f64,
    /// `true` if that was too much.
    pub noisy: bool,
}

/// Load of the machine while nothing is measured: before the first run of an experiment, and after
/// the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadAround {
    /// Before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Noise>,
    /// After; `None` until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Noise>,
}

/// Measures noise from its creation on.
pub struct NoiseMeter {
    at: Instant,
    busy: f64,
    own: f64,
}

impl Default for NoiseMeter {
    fn default() -> NoiseMeter {
        NoiseMeter {
            at: Instant::now(),
            busy: busy(),
            own: own_cpu() + ended_cpu(),
        }
    }
}

impl NoiseMeter {
    /// Returns the noise of a time in which this process only waits.
    #[must_use]
    pub fn idle(time: Duration) -> Noise {
        let meter = NoiseMeter::default();
        std::thread::sleep(time);
        meter.noise()
    }

    /// Returns the noise since then. Without figures of the system, there is none.
    #[must_use]
    pub fn noise(&self) -> Noise {
        let seconds = self.at.elapsed().as_secs_f64().max(1e-3);
        let others = (busy() - self.busy) - (own_cpu() + ended_cpu() - self.own);
        // The system counts in ticks of ten milliseconds: a short run says little by itself.
        let slack = 0.02 / seconds;
        let foreign = (others / seconds).max(0.0);
        Noise {
            load_average: load_average(),
            foreign,
            noisy: foreign > NOISY + slack,
        }
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Returns the processor time of this process, in seconds.
#[must_use]
pub fn own_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the processor time of this process's children that have ended, in seconds.
fn ended_cpu() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, which is the second field, may have blanks in it.
    let behind = text.rsplit(')').next().unwrap_or_default();
    let values: Vec<&str> = behind.split_whitespace().collect();
    // Fields are counted from 1; behind the name the third comes first.
    let value = |field: usize| values.get(field - 3)?.parse::<f64>().ok();
    let sum: f64 = [16, 17].into_iter().filter_map(value).sum();
    sum / ticks_per_second()
}

/// Returns the processor time of another process, in seconds; zero if it has gone.
#[must_use]
pub fn cpu_of(process: u32) -> f64 {
    // Its own clock counts nanoseconds; /proc counts in ticks of ten milliseconds.
    let id = nix::unistd::Pid::from_raw(process.cast_signed());
    seconds(clock_getcpuclockid(id).and_then(ClockId::now))
}

/// Returns the processor time of a thread of this process, in seconds; zero if it has gone.
pub(crate) fn cpu_of_thread(thread: u32) -> f64 {
    // The kernel's number of that clock: the inverted number of the thread, that it is a thread, and
    // that the scheduler counts.
    let clock = ClockId::from_raw((!thread.cast_signed() << 3) | 0b110);
    seconds(clock.now())
}

/// Returns the number by which [`cpu_of_thread`] knows the calling thread.
pub(crate) fn this_thread() -> u32 {
    nix::unistd::gettid().as_raw().cast_unsigned()
}

/// Returns the processor time of the calling thread, in seconds.
pub(crate) fn cpu_of_this_thread() -> f64 {
    seconds(ClockId::CLOCK_THREAD_CPUTIME_ID.now())
}

fn seconds(time: nix::Result<TimeSpec>) -> f64 {
    time.map_or(0.0, |time| {
        time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
    })
}

/// Returns the busy time of all processors: everything but idling and waiting for disks.
fn busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal
    let sum: f64 = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|&place| fields.get(place))
        .sum();
    sum / ticks_per_second()
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// The origin of a result. A value that cannot be found out is `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostInfo {
    /// The machine's name in its network.
    #[serde(default)]
    pub name: String,
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Kernel, its release, and architecture.
    pub system: String,
    /// The file system of the directory on the disk.
    pub disk: String,
    /// The file system of the directory in memory.
    pub in_memory: String,
}

impl HostInfo {
    /// Describes this machine.
    #[must_use]
    pub fn here(disk: &Path, memory: &Path) -> HostInfo {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let kib = after(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let release = read("/proc/sys/kernel/osrelease");
        let name = read("/proc/sys/kernel/hostname");
        HostInfo {
            name: match name.trim() {
                "" => unknown(),
                name => name.to_owned(),
            },
            processor: after(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: kib.unwrap_or(0) * 1024,
            system: format!(
                "{} {} {}",
                std::env::consts::OS,
                release.trim(),
                std::env::consts::ARCH
            ),
            disk: file_system(disk),
            in_memory: file_system(memory),
        }
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Returns the file system that a path lies in: that of the longest mount point above it.
fn file_system(path: &Path) -> String {
    // A path that does not exist yet will be made in its nearest ancestor.
    let absolute = std::path::absolute(path).unwrap_or_default();
    let Some(path) = absolute
        .ancestors()
        .find_map(|path| path.canonicalize().ok())
    else {
        return unknown();
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut best = (0, unknown());
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[device, point, kind, ..] = &fields[..] else {
            continue;
        };
        if path.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), format!("{kind} on {device}"));
        }
    }
    best.1
}

/// Returns the seconds since 1970.
#[must_use]
pub fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_not_noise() {
        let meter = NoiseMeter::default();
        let before = own_cpu();
        let begun = Instant::now();
        let mut x = 1u64;
        while begun.elapsed() < Duration::from_millis(200) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let own = own_cpu() - before;
        assert!(own > 0.03, "this took processor time: {own}");
        let told = cpu_of(std::process::id());
        assert!((told - own_cpu()).abs() < 0.02, "{told} is of this process");
        let all = busy() - meter.busy;
        assert!(
            meter.noise().foreign * 0.2 <= all,
            "own work was subtracted"
        );
    }

    #[test]
    fn the_host_is_known() {
        let host = HostInfo::here(Path::new("/"), Path::new("/proc/self"));
        assert_ne!(host.name, "");
        assert!(host.cores > 0 && host.memory > 1 << 20, "{host:?}");
        assert!(host.disk.contains(" on "), "{host:?}");
        assert_eq!(host.in_memory, "proc on proc");
        assert_eq!(
            file_system(Path::new("/proc/nonexistent/at/all")),
            "proc on proc"
        );
    }
}
