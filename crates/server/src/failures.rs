//! Commands that fail in large numbers, summed up in the log at intervals: for example, those of an
//! application that calls a command that does not exist, or that has the wrong password.
//!
//! ```text
//! WARN unknown command EVALSHA, 1200 times within 60s, from 10.0.0.7
//! WARN SET failed with OOM, 350 times within 60s, from 10.0.0.7, 10.0.0.8 and others
//! ```

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

/// The least number of failures of a known command, in one interval, that is logged: single failures
/// concern the client alone.
const MANY: u64 = 100;
/// The number of kinds of failures that are distinguished: clients can choose the names of commands.
const KINDS: usize = 64;
/// The number of addresses that a line names.
const NAMED: usize = 3;
/// Bytes of an unknown command's name that are shown.
const SHOWN: usize = 32;

/// The kind of a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FailureKind {
    Unknown(Box<[u8]>),
    /// A command, and the first word of its error.
    Known(&'static str, Box<str>),
}

/// CommandFailures of one kind.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    kind: FailureKind,
    count: u64,
    from: Vec<IpAddr>,
    /// There were others.
    more: bool,
}

/// CommandFailures since the last summary.
#[derive(Debug, Default)]
pub(crate) struct CommandFailures(Vec<CommandFailure>);

/// CommandFailures that all runtimes have counted.
#[derive(Debug)]
pub(crate) struct SharedFailures {
    /// How often they are summed up.
    interval: Duration,
    /// The time since when they were counted, if there are some.
    counted: Mutex<(Option<Duration>, CommandFailures)>,
}

impl FailureKind {
    /// Returns the kind of an unknown command with this name.
    pub(crate) fn unknown(name: &[u8]) -> FailureKind {
        let name = &name[..name.len().min(SHOWN)];
        FailureKind::Unknown(name.to_ascii_uppercase().into())
    }

    /// Returns the failure of a command. `None`: the error is a redirection, which clients of a cluster
    /// get in normal operation.
    pub(crate) fn of(command: &'static str, error: &str) -> Option<FailureKind> {
        let usual = ["MOVED", "ASK", "TRYAGAIN"].contains(&error);
        (!usual).then(|| FailureKind::Known(command, error.into()))
    }
}

impl CommandFailures {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, kind: FailureKind, from: IpAddr) {
        self.merge(CommandFailure {
            kind,
            count: 1,
            from: vec![from],
            more: false,
        });
    }

    fn merge(&mut self, new: CommandFailure) {
        if let Some(old) = self.0.iter_mut().find(|old| old.kind == new.kind) {
            old.count += new.count;
            old.more |= new.more;
            for address in new.from {
                if old.from.contains(&address) {
                    continue;
                }
                if old.from.len() < NAMED {
                    old.from.push(address);
                } else {
                    old.more = true;
                }
            }
        } else if self.0.len() < KINDS {
            self.0.push(new);
        }
    }

    /// Returns the lines of the log; `within` is the time in which the failures were counted.
    fn lines(&self, within: Duration) -> impl Iterator<Item = String> {
        let logged = |failure: &&CommandFailure| match failure.kind {
            FailureKind::Unknown(_) => true,
            FailureKind::Known(..) => failure.count >= MANY,
        };
        self.0
            .iter()
            .filter(logged)
            .map(move |failure| format!("{failure} within {within:?}, {}", failure.sources()))
    }
}

impl Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FailureKind::Unknown(name) => write!(f, "unknown command {}", name.escape_ascii())?,
            FailureKind::Known(command, error) => {
                let command = command.replace('|', " ").to_ascii_uppercase();
                write!(f, "{command} failed with {error}")?;
            }
        }
        let times = if self.count == 1 { "time" } else { "times" };
        write!(f, ", {} {times}", self.count)
    }
}

impl CommandFailure {
    /// Returns the addresses that they came from.
    fn sources(&self) -> String {
        let from: Vec<String> = self.from.iter().map(ToString::to_string).collect();
        let more = if self.more { " and others" } else { "" };
        format!("from {}{more}", from.join(", "))
    }
}

impl SharedFailures {
    pub(crate) fn new(interval: Duration) -> SharedFailures {
        SharedFailures {
            interval,
            counted: Mutex::default(),
        }
    }

    /// Adds what one runtime has counted by `now`. Returns the time at which everything must be
    /// summed up.
    pub(crate) fn add(&self, failures: &mut CommandFailures, now: Duration) -> Duration {
        let mut shared = self.counted.lock();
        for failure in failures.0.drain(..) {
            shared.1.merge(failure);
        }
        *shared.0.get_or_insert(now) + self.interval
    }

    /// Sums up the failures if it is time to. Returns the lines for the log.
    pub(crate) fn sum_up(&self, now: Duration) -> Vec<String> {
        let mut shared = self.counted.lock();
        match shared.0 {
            Some(since) if since + self.interval <= now => {
                shared.0 = None;
                std::mem::take(&mut shared.1).lines(self.interval).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn failures_are_summed_up_once_a_minute() {
        const INTERVAL: Duration = Duration::from_secs(60);
        let shared = SharedFailures::new(INTERVAL);
        let (start, second) = (Duration::from_secs(5), Duration::from_secs(1));
        for runtime in 1..=2 {
            let mut failures = CommandFailures::default();
            for _ in 0..600 {
                failures.add(FailureKind::unknown(b"evalsha"), address(runtime));
            }
            failures.add(FailureKind::unknown(b"\r\n"), address(1));
            for _ in 0..MANY {
                failures.add(FailureKind::of("client|kill", "ERR").unwrap(), address(1));
            }
            failures.add(FailureKind::of("get", "ERR").unwrap(), address(1));
            let due = shared.add(&mut failures, start + u32::from(runtime) * second);
            assert_eq!(due, start + second + INTERVAL);
            assert!(failures.is_empty());
        }
        assert!(shared.sum_up(start + INTERVAL).is_empty());
        let lines = shared.sum_up(start + second + INTERVAL);
        assert_eq!(
            lines,
            [
                "unknown command EVALSHA, 1200 times within 60s, from 10.0.0.1, 10.0.0.2",
                "unknown command \\r\\n, 2 times within 60s, from 10.0.0.1",
                "CLIENT KILL failed with ERR, 200 times within 60s, from 10.0.0.1",
            ]
        );
        assert!(shared.sum_up(start + 3 * INTERVAL).is_empty());
        assert_eq!(FailureKind::of("get", "MOVED"), None);
    }

    #[test]
    fn what_clients_choose_is_bounded() {
        let mut failures = CommandFailures::default();
        for number in 0..1000_u32 {
            let name = format!("{number}{}", "x".repeat(1000));
            failures.add(FailureKind::unknown(name.as_bytes()), address(number as u8));
            failures.add(FailureKind::unknown(b"same"), address(number as u8));
        }
        assert_eq!(failures.0.len(), KINDS);
        let lines: Vec<String> = failures.lines(Duration::from_secs(60)).collect();
        assert!(lines.iter().all(|line| line.len() < 200), "{lines:?}");
        assert!(
            lines[1].ends_with("from 10.0.0.0, 10.0.0.1, 10.0.0.2 and others"),
            "{}",
            lines[1]
        );
    }
}
