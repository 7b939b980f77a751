//! `CLIENT PAUSE`: commands of all clients, or only those that write, wait until a time or until
//! `CLIENT UNPAUSE`. A connection whose command waits has it as its task.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use resp::Args;

use crate::block::Call;
use crate::command::{Command, Flags, Run};
use crate::connection::Connection;
use crate::executor::Executor;
use crate::parking::Counted;
use crate::shared::Context;
use crate::task::Task;

/// The commands that wait, and until when.
#[derive(Default)]
pub(crate) struct Pause {
    /// Milliseconds since the server's start; 0: there is no pause.
    until_ms: AtomicU64,
    /// Only commands that write wait.
    writes_only: AtomicBool,
}

/// A command that waits for the end of a pause.
pub(crate) struct Postponed {
    /// As the client gave it: of a command with two words the first one.
    call: Call,
    _counted: Counted,
}

impl Pause {
    /// Pauses commands until `until`, a time since the server's start. As in Redis a pause that is
    /// under way is never shortened, and one of all commands stays one.
    pub(crate) fn begin(&self, now: Duration, until: Duration, writes_only: bool) {
        let under_way = self.end(now).is_some();
        let all = under_way && !self.writes_only.load(Ordering::SeqCst);
        self.writes_only
            .store(writes_only && !all, Ordering::SeqCst);
        // Rounded up: a pause is never shorter than it was asked for.
        let until_ms = u64::try_from(until.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        self.until_ms.fetch_max(until_ms, Ordering::SeqCst);
    }

    pub(crate) fn end_now(&self) {
        self.until_ms.store(0, Ordering::SeqCst);
    }

    /// Returns when the pause ends, if there is one now.
    #[inline]
    fn end(&self, now: Duration) -> Option<Duration> {
        match self.until_ms.load(Ordering::Relaxed) {
            0 => None,
            until_ms => Some(Duration::from_millis(until_ms)).filter(|until| *until > now),
        }
    }
}

impl Postponed {
    /// Returns the time until which it waits; `None`: no longer.
    pub(crate) fn until(&self, context: &Context) -> Option<Duration> {
        let pause = &context.shared.pause;
        pause.end(context.now)
    }
}

impl Executor {
    /// Returns `true` if a command must wait now. `found` is the command that the client called.
    #[inline]
    pub(crate) fn postpones(
        &mut self,
        connection: &mut Connection,
        found: &'static Command,
        command: &'static Command,
        args: Args<'_>,
    ) -> bool {
        let context = &self.context;
        if context.shared.pause.end(context.now).is_none() {
            return false;
        }
        let writes_only = context.shared.pause.writes_only.load(Ordering::SeqCst);
        if writes_only && !writes(connection, command) {
            return false;
        }
        connection.task = Some(Task::Postponed(Postponed {
            call: Call::new(found, args),
            _counted: Counted::of_postponed(&context.shared),
        }));
        true
    }

    /// Executes a command that had to wait, or makes it wait further.
    pub(crate) fn resume(&mut self, connection: &mut Connection, postponed: Postponed) {
        let Postponed { call, _counted } = postponed;
        self.execute_counted(connection, Some(call.command), call.args());
    }
}

/// Returns `true` if a command writes, or executes a block that writes.
fn writes(connection: &Connection, command: &Command) -> bool {
    let block = connection.block.as_ref();
    let executes = matches!(command.run, Run::Exec) && block.is_some_and(|block| block.writes());
    executes || command.flags.has(Flags::WRITE)
}
