//! What the operating system tells of this process.

use rustix::process::{Resource, getrlimit};

/// Figures of the process; 0 where the system does not tell.
#[derive(Clone, Copy, Default)]
pub struct Process {
    /// Processor time of its own, in seconds.
    pub user_seconds: f64,
    /// Processor time that the system spent for it, in seconds.
    pub system_seconds: f64,
    /// The memory that the system has given to it.
    pub resident_bytes: u64,
    /// Descriptors that may be open; [`u64::MAX`] without a limit.
    pub max_descriptors: u64,
}

impl Process {
    /// The process as it is now.
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
    // The name, in parentheses, may hold blanks; fields are counted behind it.
    let mut fields = text[text.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
    let mut seconds = || -> Option<f64> {
        let ticks: f64 = fields.next()?.parse().ok()?;
        Some(ticks / rustix::param::clock_ticks_per_second() as f64)
    };
    Some((seconds()?, seconds()?))
}

/// Descriptors that are open. Not among the others, because it takes the longer the more there
/// are.
#[must_use]
pub fn open_descriptors() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // Reading the directory took one.
    Some(entries.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_this_process() {
        let process = Process::now();
        assert!(process.resident_bytes > 100_000);
        let open = open_descriptors().expect("the system tells");
        assert!((3..process.max_descriptors).contains(&open));
        assert!(cpu_seconds().is_some());
    }
}
