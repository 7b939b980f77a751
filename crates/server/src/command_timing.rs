//! Finds the commands of one runtime that take long, without a reading of the clock for each of them.
//!
//! A *run* is the commands that a connection has sent together, 32 at most. The clock is read at its end,
//! which is the beginning of the next one: if a run was short, none of its commands was slow. A command is
//! measured by itself if it is sampled for the statistics, if its time is not bounded by the bytes of its
//! request and its reply ([`is_bounded`]), and in any case while the limit is below a millisecond. The time
//! of a run counts without these. If it is long nevertheless, it is recorded as the time of the command with
//! the most bytes: this is exact for the only command of a run, and else the best that is known.
//!
//! Time counts while a command executes. The time for which it waits for other transactions, for durability
//! or for another thread does not. A command that executes in slices counts with the sum of its slices. A
//! `MULTI` block counts as `EXEC`; its commands are not measured.

use std::time::{Duration, Instant};

use crate::command::{CommandDefinition, CommandFlags, CommandKind};

/// Below this limit each command is measured by itself.
const FINE: Duration = Duration::from_millis(1);
/// The arguments, or commands of a block, up to which a command's time is bounded.
const FEW: usize = 64;

/// See the module's description.
pub(crate) struct CommandTiming {
    /// Commands that take as long as this are recorded; `None`: none are.
    limit: Option<Duration>,
    /// The end of the last run.
    mark: Instant,
    /// The time of the commands of this run that were measured by themselves.
    measured: Duration,
    /// `true` if each command is measured by itself.
    each: bool,
}

/// A command that executes in slices.
pub(crate) struct SlicedCall {
    pub(crate) command: &'static CommandDefinition,
    /// Its arguments, shortened.
    pub(crate) args: Vec<Vec<u8>>,
    /// The time that its slices took.
    pub(crate) took: Duration,
}

impl CommandTiming {
    pub(crate) fn new() -> CommandTiming {
        CommandTiming {
            limit: None,
            mark: Instant::now(),
            measured: Duration::ZERO,
            each: false,
        }
    }

    /// Begins the runs of a turn.
    pub(crate) fn begin_turn(&mut self, limit: Option<Duration>) {
        self.limit = limit;
        self.each = limit.is_some_and(|limit| limit < FINE);
        if limit.is_some() {
            self.mark = Instant::now();
        }
    }

    /// Returns `true` if a command of so many arguments, or with so many commands in its block, must be
    /// measured by itself.
    #[inline]
    pub(crate) fn measures(&self, command: &CommandDefinition, parts: usize) -> bool {
        self.each || (parts > FEW || !is_bounded(command)) && self.limit.is_some()
    }

    /// Records a command that was measured by itself. Returns `true` if it was slow.
    pub(crate) fn add_measured(&mut self, took: Duration) -> bool {
        self.measured += took;
        self.limit.is_some_and(|limit| took >= limit)
    }

    /// Ends a run. Returns the time of its commands that were not measured.
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        let measured = std::mem::take(&mut self.measured);
        let took = now.saturating_duration_since(self.mark);
        self.mark = now;
        took.saturating_sub(measured)
    }

    /// Ends a run. Returns the time of its commands that were not measured, if it was long.
    #[inline]
    pub(crate) fn end_run(&mut self) -> Option<Duration> {
        let limit = self.limit?;
        let took = self.lap();
        (took >= limit && !self.each).then_some(took)
    }

    /// Ends a slice of a command, or another piece of work that is no run. Returns its time.
    pub(crate) fn end_slice(&mut self) -> Option<Duration> {
        self.limit?;
        Some(self.lap())
    }

    /// Returns `true` if so long a time is that of a slow command.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        self.limit.is_some_and(|limit| took >= limit)
    }
}

/// Returns `true` if a command with few arguments takes no longer than the bytes of its request and its reply
/// let expect.
fn is_bounded(command: &CommandDefinition) -> bool {
    let by_keys = command.keys.first > 0 && !command.flags.has(CommandFlags::WHOLE_VALUE);
    let is_block = matches!(command.kind, CommandKind::Exec);
    by_keys || is_block || command.flags.has(CommandFlags::FAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    fn command(name: &str) -> &'static CommandDefinition {
        table().find(name.as_bytes()).unwrap()
    }

    fn timing(limit: Duration) -> CommandTiming {
        let mut timing = CommandTiming::new();
        timing.begin_turn(Some(limit));
        timing
    }

    #[test]
    fn commands_whose_time_is_not_bounded_are_measured() {
        let coarse = timing(Duration::from_millis(10));
        for (name, parts, measured) in [
            ("get", 2, false),
            ("set", 3, false),
            ("mget", 10, false),
            ("mget", 100, true),
            ("exec", 3, false),
            ("exec", 100, true),
            ("ping", 1, false),
            ("scan", 2, true),
            ("flushall", 1, true),
        ] {
            assert_eq!(coarse.measures(command(name), parts), measured, "{name}");
        }
        assert!(timing(Duration::ZERO).measures(command("get"), 2));
        assert!(!CommandTiming::new().measures(command("scan"), 2));
    }

    #[test]
    fn the_time_of_a_run_is_that_between_two_ends() {
        let mut timing = timing(Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(2));
        assert!(timing.end_run().expect("a long run") >= Duration::from_millis(2));
        timing.begin_turn(None);
        assert!(timing.end_run().is_none());
    }

    #[test]
    fn measured_commands_do_not_count_for_their_run() {
        let mut timing = timing(Duration::from_secs(3600));
        assert!(timing.add_measured(Duration::from_secs(3600)));
        assert!(!timing.add_measured(Duration::from_secs(3599)));
        assert!(timing.end_run().is_none());
        assert_eq!(timing.measured, Duration::ZERO);
    }
}
