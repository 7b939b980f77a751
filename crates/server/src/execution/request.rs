//! A request of a client: passes the checks that every command must pass, then is run alone or
//! queued in a block.

use resp::Args;

use super::block::write_discarded;
use super::executor::Executor;
use crate::command::{CommandDefinition, CommandFlags, CommandKind};
use crate::command_block::BlockTooLarge;
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::failures::FailureKind;
use crate::handover;
use crate::pending_command::{PausedCommand, PendingCommand};
use crate::refusal;
use crate::session::ReplyMode;
use crate::tracking;

impl Executor {
    /// Executes one command; its reply is at the end of the connection's output afterwards, except
    /// for a command that lasts, which the connection then has as its pending one. `None`: the command
    /// is unknown.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        connection: &mut Connection,
        command: Option<&'static CommandDefinition>,
        args: Args<'_>,
    ) {
        self.context.commands += 1;
        self.execute_counted(connection, command, args);
    }

    /// As [`Executor::execute`], for a command that is counted already.
    #[inline]
    pub(super) fn execute_counted(
        &mut self,
        connection: &mut Connection,
        command: Option<&'static CommandDefinition>,
        args: Args<'_>,
    ) {
        let session = &mut connection.session;
        let from = session.output.position();
        if session.replies == ReplyMode::SkipNext {
            session.replies = ReplyMode::Skip;
        }
        let tracking = session.tracking.as_deref();
        let is_noted = tracking.is_some_and(|own| own.ignores_own);
        if is_noted {
            tracking::note_client(session.client.id);
        }
        self.worker.note_use(!connection.session.no_touch);
        let executed = self.answer(connection, command, args);
        if is_noted {
            tracking::note_client(0);
        }
        if let Some(own) = &mut connection.session.tracking
            && connection.block.is_none()
            && !connection.session.last_command.starts_with("client|")
        {
            own.caching = None;
        }
        if connection.session.output.is_error_at(from) {
            self.count_error(connection, (command, executed), args, from);
        }
        if connection.session.replies != ReplyMode::On {
            withhold(connection, from);
        }
    }

    /// Executes and answers a command. Returns the command if it was executed.
    #[inline]
    fn answer(
        &mut self,
        connection: &mut Connection,
        called: Option<&'static CommandDefinition>,
        args: Args<'_>,
    ) -> Option<&'static CommandDefinition> {
        let admitted = self.admit(connection, called, args);
        let (Some(called), Some(command)) = (called, admitted) else {
            if let Some(block) = &mut connection.block {
                block.broken = true;
            }
            return None;
        };
        if self.is_paused(connection, command) {
            let call = CommandCall::new(called, args);
            let paused = PausedCommand::new(&self.context, call);
            connection.pending = Some(PendingCommand::Paused(paused));
            return None;
        }
        connection.session.last_command = command.name;
        self.context.reads += u64::from(command.flags.has(CommandFlags::READ));
        self.context.writes += u64::from(command.flags.has(CommandFlags::WRITE));
        if connection.block.is_some() && !command.flags.has(CommandFlags::IMMEDIATE) {
            self.queue(connection, command, args);
            return None;
        }
        let timer = self.begin_call(connection, command, args);
        let shared = &self.context.shared;
        match shared.blocked.count() > 0 && writes(connection, command) {
            true => self.run_with_handover(connection, command, args),
            false => self.run(connection, command, args),
        }
        self.end_call(connection, command, args, timer);
        Some(command)
    }

    /// Runs a command. Its connection goes on when the clients that wait for its keys have had their turn.
    #[cold]
    fn run_with_handover(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) {
        let runtime = connection.session.client.runtime;
        handover::begin_command(&self.context.shared.signals, runtime);
        self.run(connection, command, args);
        if let Some(handover) = handover::end_command() {
            let waits = PendingCommand::ReplyHandover(handover);
            connection.pending.get_or_insert(waits);
        }
    }

    /// Finds the command and makes the checks that every command must pass. Answers with an error
    /// if one fails.
    #[inline]
    fn admit(
        &mut self,
        connection: &mut Connection,
        called: Option<&'static CommandDefinition>,
        args: Args<'_>,
    ) -> Option<&'static CommandDefinition> {
        let Some(mut command) = called else {
            self.refuse_unknown(connection, args);
            return None;
        };
        if !command.subcommands.is_empty()
            && let Some(word) = args.get(1)
        {
            let Some(found) = command.subcommand(word) else {
                refusal::write_unknown(Some(command.name), args, &mut connection.writer());
                return None;
            };
            command = found;
        }
        if !command.takes(args.len()) {
            if matches!(command.kind, CommandKind::Exec) {
                let reason = "wrong number of arguments for 'exec' command";
                connection.end_block();
                write_discarded(connection, reason);
            } else {
                refusal::write_arity(command.name, &mut connection.writer());
            }
            return None;
        }
        if !connection.session.authenticated && !command.flags.has(CommandFlags::NO_AUTH) {
            if matches!(command.kind, CommandKind::Exec) {
                connection.end_block();
                write_discarded(connection, refusal::NO_AUTH);
            } else {
                connection.writer().error(refusal::NO_AUTH);
            }
            return None;
        }
        if connection.session.takes_only_messages() && !command.flags.has(CommandFlags::SUBSCRIBER)
        {
            channels::frames::refuse_subscriber(command.name, &mut connection.writer());
            return None;
        }
        if connection.block.is_some() && command.flags.has(CommandFlags::NO_MULTI) {
            connection
                .writer()
                .error("ERR Command not allowed inside a transaction");
            return None;
        }
        // Every queued command makes the block larger.
        let queued = connection.block.is_some() && !command.flags.has(CommandFlags::IMMEDIATE);
        let takes_memory = queued || command.flags.has(CommandFlags::NEEDS_MEMORY);
        if takes_memory && self.is_full(args.total_bytes()) {
            connection.writer().error(refusal::OUT_OF_MEMORY);
            return None;
        }
        Some(command)
    }

    /// Refuses a command that does not exist. A line of HTTP closes the connection.
    #[cold]
    fn refuse_unknown(&mut self, connection: &mut Connection, args: Args<'_>) {
        if refusal::is_web_request(args.at(0)) {
            let text = "closed: it speaks HTTP";
            let client = connection.session.client.address;
            self.context.warn(client, text, text);
            connection.session.closing = true;
            connection.state.dead = true;
        } else {
            refusal::write_unknown(None, args, &mut connection.writer());
        }
    }

    /// Returns `true` if a command must wait for the end of a pause.
    #[inline]
    pub(super) fn is_paused(&self, connection: &Connection, command: &CommandDefinition) -> bool {
        let (pause, now) = (&self.context.shared.pause, self.context.now);
        pause.ends(now).is_some() && (!pause.is_of_writes() || writes(connection, command))
    }

    /// Adds a command to the block.
    fn queue(
        &self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) {
        let Some(block) = &mut connection.block else {
            return;
        };
        if let Err(refusal) = block.check_guard(command, args) {
            block.broken = true;
            return refusal.write(command.name, &mut connection.writer());
        }
        let queued = block.queue(command, args, &self.context.shared.config.limits);
        connection.note_block();
        match queued {
            Ok(()) => connection.writer().status("QUEUED"),
            Err(BlockTooLarge) => connection
                .writer()
                .error("ERR the MULTI block exceeds its limits on commands or bytes"),
        }
    }

    /// Counts a reply that is an error. `found` is the command that was called, and the one that
    /// was executed, if any.
    #[cold]
    fn count_error(
        &mut self,
        connection: &Connection,
        found: (
            Option<&'static CommandDefinition>,
            Option<&'static CommandDefinition>,
        ),
        args: Args<'_>,
        from: usize,
    ) {
        let error = connection.session.output.from(from);
        self.context.note_error(error);
        let failed = match found {
            (None, _) => Some(FailureKind::unknown(args.get(0).unwrap_or_default())),
            (Some(command), executed) => {
                let name = executed.map_or(command.name, |executed| executed.name);
                FailureKind::of(name, refusal::error_code(error))
            }
        };
        if let Some(failed) = failed {
            let client = connection.session.client.address.ip();
            self.context.failures.add(failed, client);
        }
        let recorder = &self.context.recorder;
        match found {
            (_, Some(executed)) => recorder.count_failed(executed.number),
            (Some(command), None) if command.subcommands.is_empty() || args.len() == 1 => {
                recorder.count_rejected(command.number);
            }
            (Some(command), None) => {
                if let Some(sub) = command.subcommand(args.at(1)) {
                    recorder.count_rejected(sub.number);
                }
            }
            (None, None) => {}
        }
    }

    /// Counts the reply of a pending command if it is an error, and withholds it if the client wants
    /// none. The command may still be pending.
    pub(super) fn end_pending(&mut self, connection: &mut Connection, from: usize) {
        if connection.session.output.is_error_at(from) {
            // No other command was executed in the meantime.
            let name = connection.session.last_command;
            let command = self.table.named(name.as_bytes());
            self.count_error(connection, (command, command), Args::new(&[], &[]), from);
        }
        if connection.session.replies != ReplyMode::On {
            withhold(connection, from);
        }
    }
}

/// Returns `true` if a command writes, or executes a block that writes.
fn writes(connection: &Connection, command: &CommandDefinition) -> bool {
    let block = connection.block.as_ref();
    let executes =
        matches!(command.kind, CommandKind::Exec) && block.is_some_and(|block| block.writes());
    executes || command.flags.may_write()
}

/// Drops the reply from `from` on if the client does not want the reply of the executed command. What it
/// says about subscriptions stays.
#[cold]
fn withhold(connection: &mut Connection, from: usize) {
    let session = &mut connection.session;
    match session.replies {
        ReplyMode::On | ReplyMode::SkipNext => return,
        ReplyMode::Skip if connection.pending.is_none() => session.replies = ReplyMode::On,
        ReplyMode::Skip | ReplyMode::Off => {}
    }
    session.output.discard(from);
    session.output.buffer().append(&mut session.announced);
}
