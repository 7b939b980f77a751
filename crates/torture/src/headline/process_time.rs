//! Processor time of processes, to the nanosecond.

use std::fs;

use anyhow::{Context, Result};
use rustix::process::Pid;

/// Returns the seconds that the threads of a process have run. Threads that have ended do not count
/// any more, so that differences are useful only if no thread ends.
pub(super) fn of(pid: Pid) -> Result<f64> {
    let threads = format!("/proc/{}/task", pid.as_raw_pid());
    let mut nanoseconds = 0;
    for thread in fs::read_dir(&threads).with_context(|| format!("cannot read {threads}"))? {
        // A thread may end between the two reads.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        nanoseconds += first_field(&text).context("schedstat has no number")?;
    }
    Ok(nanoseconds as f64 / 1e9)
}

fn first_field(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn work_takes_processor_time() {
        assert_eq!(first_field("12345 67 8\n"), Some(12345));
        // A process of its own: threads of other tests end in the meantime.
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        testkit::eventually("it has run for a millisecond", || of(pid).unwrap() > 0.001);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
