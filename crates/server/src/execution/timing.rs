//! The time that commands take: measured for the statistics, and recorded if it is long.

use std::time::{Duration, Instant, SystemTime};

use resp::Args;

use super::executor::Executor;
use crate::clients::ConnectedClient;
use crate::command::{CommandDefinition, CommandFlags, CommandKind};
use crate::command_timing::SlicedCall;
use crate::connection::Connection;
use crate::database_selection::database_after;
use crate::monitors::write_line;
use crate::pending_command::PendingCommand;
use crate::secret_arguments::redacted;
use crate::slow_log::shortened;

/// A call that executes.
pub(super) struct CallTimer {
    /// When it began, if it is measured.
    began: Option<Instant>,
    /// `true` if it is measured for the statistics.
    sampled: bool,
}

impl Executor {
    /// Counts a command that is about to execute, shows it to monitors, and begins to measure it if that must
    /// be.
    #[inline]
    pub(super) fn begin_call(
        &mut self,
        connection: &Connection,
        command: &CommandDefinition,
        args: Args<'_>,
    ) -> CallTimer {
        if self.context.shared.monitors.any() {
            self.show_to_monitors(connection, command, args);
        }
        let sampled = self.context.recorder.begin(command.number);
        let parts = match &connection.block {
            Some(block) => block.len(),
            None => args.len(),
        };
        let measures = || self.timing.measures(command, parts);
        CallTimer {
            began: sampled.or_else(|| measures().then(Instant::now)),
            sampled: sampled.is_some(),
        }
    }

    /// Shows a command to monitors; before `EXEC` the commands of the block that it executes.
    #[cold]
    fn show_to_monitors(
        &mut self,
        connection: &Connection,
        command: &CommandDefinition,
        args: Args<'_>,
    ) {
        let block = connection.block.as_ref();
        let block =
            block.filter(|block| matches!(command.kind, CommandKind::Exec) && !block.broken);
        let inner = block.into_iter().flat_map(|block| &block.commands);
        let inner = inner.map(|call| (call.command, call.args()));
        let (at, most) = (
            SystemTime::now(),
            self.context.shared.config.limits.subscriber_output,
        );
        let client = connection.session.client.address;
        let (mut database, databases) = (
            connection.session.database,
            self.context.shared.config.databases,
        );
        let lines = &mut self.context.monitored;
        for (command, args) in inner.chain([(command, args)]) {
            if !command.flags.has(CommandFlags::ADMIN) && lines.len() <= most {
                write_line(lines, at, (database, client), redacted(command, args), most);
            }
            database = database_after(command.name, args, (database, databases));
        }
    }

    /// Records a command that has executed, or the first slice of one.
    #[inline]
    pub(super) fn end_call(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        timer: CallTimer,
    ) {
        if let Some(began) = timer.began {
            self.end_measured(connection, command, args, (began, timer.sampled));
        }
    }

    fn end_measured(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        (began, sampled): (Instant, bool),
    ) {
        let took = began.elapsed();
        if sampled {
            self.context.recorder.end(command.number, took);
        }
        let is_slow = self.timing.add_measured(took);
        if let Some(
            PendingCommand::KeyWalk(_)
            | PendingCommand::KeyLookup(_)
            | PendingCommand::Write(_)
            | PendingCommand::Watch(_),
        ) = connection.pending
        {
            let args = shortened(redacted(command, args));
            let call = SlicedCall {
                command,
                args,
                took,
            };
            connection.sliced = Some(Box::new(call));
        } else if is_slow {
            let client = &connection.session.client;
            self.note_slow(client, command, shortened(redacted(command, args)), took);
        }
    }

    /// Begins to measure the commands of a turn.
    pub(crate) fn begin_timing(&mut self) {
        let shared = &self.context.shared;
        let limits = [shared.slow_log.slower_than(), shared.latency.threshold()];
        self.timing.begin_turn(limits.into_iter().flatten().min());
    }

    /// Ends the run of commands that the connection has sent together; `heaviest` returns the one with the most
    /// bytes of request and reply, with its arguments.
    #[inline]
    pub(crate) fn end_run<'a>(
        &mut self,
        connection: &Connection,
        heaviest: impl FnOnce() -> Option<(&'static CommandDefinition, Args<'a>)>,
    ) {
        let Some(took) = self.timing.end_run() else {
            return;
        };
        if let Some((command, args)) = heaviest() {
            let word = args.get(1).and_then(|word| command.subcommand(word));
            let client = &connection.session.client;
            let command = word.unwrap_or(command);
            self.note_slow(client, command, shortened(redacted(command, args)), took);
        }
    }

    /// Ends a slice of the connection's pending command, or its end after it has waited.
    pub(crate) fn end_slice(&mut self, connection: &mut Connection) {
        let sliced = match connection.pending {
            Some(_) => None,
            None => connection.sliced.take(),
        };
        let Some(slice) = self.timing.end_slice() else {
            return;
        };
        let client = &connection.session.client;
        match (sliced, &mut connection.sliced) {
            (Some(over), _) => {
                let took = over.took + slice;
                if self.timing.is_slow(took) {
                    self.note_slow(client, over.command, over.args, took);
                }
            }
            (None, Some(sliced)) => sliced.took += slice,
            (None, None) if self.timing.is_slow(slice) => {
                let name = connection.session.last_command.as_bytes();
                if let Some(command) = self.table.named(name) {
                    self.note_slow(client, command, vec![name.to_vec()], slice);
                }
            }
            (None, None) => {}
        }
    }

    /// Records a command that took long.
    #[cold]
    fn note_slow(
        &self,
        client: &ConnectedClient,
        command: &CommandDefinition,
        args: Vec<Vec<u8>>,
        took: Duration,
    ) {
        let monitor = &self.context.shared.latency;
        if monitor.threshold().is_some_and(|limit| took >= limit) {
            let event = match command.flags.has(CommandFlags::FAST) {
                true => "fast-command",
                false => "command",
            };
            monitor.add(event, took);
        }
        let log = &self.context.shared.slow_log;
        if log.slower_than().is_some_and(|limit| took >= limit) {
            let name = client.names.lock().name.clone();
            log.add(args, took, (client.address, name));
        }
    }
}
