//! Executes commands: makes the checks that every command must pass, then runs it alone or queues
//! it.

use base::{Abort, Epoch};
use resp::{Args, Writer};

use crate::block::{Block, Call};
use crate::command::{Command, Flags, Ops, Plan, Run, table};
use crate::commands::finish_job;
use crate::commands::key::plan_scan;
use crate::connection::{Connection, Replies};
use crate::coordination::Coordination;
use crate::failures::What;
use crate::keys::KeysTask;
use crate::partition::Worker;
use crate::refusal;
use crate::render::{Render, Surroundings};
use crate::shared::Context;
use crate::task::{Step, Task, Work};

/// Runs commands for the connections of one runtime.
pub(crate) struct Executor {
    pub(crate) worker: Worker,
    pub(crate) context: Context,
    /// This runtime's part of the cluster, if the server is a node of one.
    pub(crate) cluster: Option<Box<Coordination>>,
}

impl Executor {
    /// Executes one command; its reply is at the end of the connection's output afterwards, except
    /// for a long command, which the connection then has as its task.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        connection: &mut Connection,
        command: Option<&'static Command>,
        args: Args<'_>,
    ) {
        self.context.commands += 1;
        self.execute_counted(connection, command, args);
    }

    /// As [`Executor::execute`], for a command that is counted already.
    #[inline]
    pub(crate) fn execute_counted(
        &mut self,
        connection: &mut Connection,
        command: Option<&'static Command>,
        args: Args<'_>,
    ) {
        let from = connection.output.position();
        if connection.replies == Replies::SkipNext {
            connection.replies = Replies::Skip;
        }
        let executed = self.answer(connection, command, args);
        if connection.output.is_error_at(from) {
            self.note_error(connection, (command, executed), args, from);
        }
        if connection.replies != Replies::On {
            withhold(connection, from);
        }
    }

    /// Counts a reply that is an error. `found` is the command that was called, and the one that
    /// was executed, if any.
    #[cold]
    fn note_error(
        &mut self,
        connection: &Connection,
        found: (Option<&'static Command>, Option<&'static Command>),
        args: Args<'_>,
        from: usize,
    ) {
        let error = connection.output.from(from);
        self.context.note_error(error);
        let failed = match found {
            (None, _) => Some(What::unknown(args.get(0).unwrap_or_default())),
            (Some(command), executed) => {
                let name = executed.map_or(command.name, |executed| executed.name);
                What::of(name, crate::statistics::kind_of(error))
            }
        };
        if let Some(failed) = failed {
            let client = connection.client.address.ip();
            self.context.failures.add(failed, client);
        }
        let recorder = &self.context.recorder;
        match found {
            (_, Some(executed)) => recorder.count_failed(executed),
            (Some(command), None) if command.subcommands.is_empty() || args.len() == 1 => {
                recorder.count_rejected(command);
            }
            (Some(command), None) => {
                if let Some(sub) = crate::command::Table::find_sub(command, args.at(1)) {
                    recorder.count_rejected(sub);
                }
            }
            (None, None) => {}
        }
    }

    /// Executes and answers a command. Returns the command if it was executed.
    #[inline]
    fn answer(
        &mut self,
        connection: &mut Connection,
        command: Option<&'static Command>,
        args: Args<'_>,
    ) -> Option<&'static Command> {
        let found = command;
        let Some(command) = self.admit(connection, command, args) else {
            if let Some(block) = &mut connection.block {
                block.broken = true;
            }
            return None;
        };
        if let Some(found) = found
            && self.postpones(connection, found, command, args)
        {
            return None;
        }
        connection.last_command = command.name;
        self.context.reads += u64::from(command.flags.has(Flags::READ));
        self.context.writes += u64::from(command.flags.has(Flags::WRITE));
        if let Some(block) = &mut connection.block
            && !command.flags.has(Flags::IMMEDIATE)
        {
            if let Err(text) = block.check_guard(command, args) {
                block.broken = true;
                connection.writer().error(text);
                return None;
            }
            block.queue(command, args, &self.context.shared.config.limits);
            connection.note_block();
            let broken = connection
                .block
                .as_ref()
                .is_some_and(|block| block.broken_by_size);
            let mut writer = connection.writer();
            if broken {
                writer.error("ERR the MULTI block exceeds its limits on commands or bytes");
            } else {
                writer.status("QUEUED");
            }
            return None;
        }
        let began = self.context.recorder.begin(command);
        self.run(connection, command, args);
        if let Some(began) = began {
            self.context.recorder.end(command, began);
        }
        Some(command)
    }

    /// Finds the command and makes the checks that every command must pass. Answers with an error
    /// if one fails.
    #[inline]
    fn admit(
        &mut self,
        connection: &mut Connection,
        command: Option<&'static Command>,
        args: Args<'_>,
    ) -> Option<&'static Command> {
        let mut writer = connection.writer();
        let Some(mut command) = command else {
            if refusal::is_web_request(args.at(0)) {
                let text = "closed: it speaks HTTP";
                self.context.warn(connection.client.address, text, text);
                connection.state.closing = true;
                connection.state.dead = true;
            } else {
                refusal::unknown(None, args, &mut writer);
            }
            return None;
        };
        if !command.subcommands.is_empty()
            && let Some(word) = args.get(1)
        {
            let Some(found) = crate::command::Table::find_sub(command, word) else {
                refusal::unknown(Some(command), args, &mut writer);
                return None;
            };
            command = found;
        }
        let exec = matches!(command.run, Run::Exec);
        if !command.takes(args.len()) {
            if exec {
                Self::give_up(connection, "wrong number of arguments for 'exec' command");
            } else {
                refusal::arity(command, &mut writer);
            }
            return None;
        }
        if !connection.authenticated && !command.flags.has(Flags::NO_AUTH) {
            if exec {
                Self::give_up(connection, refusal::NO_AUTH);
            } else {
                connection.writer().error(refusal::NO_AUTH);
            }
            return None;
        }
        if connection.block.is_some() && command.flags.has(Flags::NO_MULTI) {
            connection
                .writer()
                .error("ERR Command not allowed inside a transaction");
            return None;
        }
        // Every queued command makes the block larger.
        let queued = connection.block.is_some() && !command.flags.has(Flags::IMMEDIATE);
        let takes_memory = queued || command.flags.has(Flags::NEEDS_MEMORY);
        if takes_memory && self.is_full(args.total_bytes()) {
            connection.writer().error(refusal::OUT_OF_MEMORY);
            return None;
        }
        Some(command)
    }

    #[inline]
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        let shared = &self.context.shared;
        shared
            .memory
            .is_full(&shared.partition, self.context.now, bytes)
    }

    #[inline]
    pub(crate) fn run(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) {
        match command.run {
            Run::Store(plan) | Run::AllOrNothing(plan) => {
                self.run_plan(connection, command, args, plan);
            }
            Run::Local(local) => local(&mut self.context, connection, args),
            Run::Scan => self.scan(connection, command, args),
            Run::Keys => {
                let stale = self.stale(connection, command);
                if let Err(abort) = self.worker.check_view(stale) {
                    return self.tell_elsewhere(connection, &[], &abort);
                }
                let task = KeysTask::matching(&self.context.shared.partition, args.at(1));
                connection.task = Some(Task::Keys(Box::new(task)));
                self.step_task(connection);
            }
            Run::Multi => Self::multi(connection),
            Run::Exec => self.exec(connection),
            Run::Discard => Self::discard(connection),
            Run::Watch | Run::WatchVersion => self.watch(connection, command, args),
            Run::WatchAt => Self::watch_at(connection, args),
            Run::Guard => connection
                .writer()
                .error("ERR LOCK.GUARD without MULTI: it guards the block that it begins"),
            Run::Unwatch => {
                connection.watches.clear();
                connection.writer().ok();
            }
            Run::BeginSnapshot => self.begin_snapshot(connection, command, args),
            Run::NextOfSnapshot => self.next_of_snapshot(connection, args),
            Run::EndSnapshot => Self::end_snapshot(connection),
            Run::Container => refusal::arity(command, &mut connection.writer()),
        }
    }

    /// Runs a plan as a transaction of its own.
    #[inline]
    fn run_plan(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        plan: Plan,
    ) {
        let mut ops = Ops::new();
        match plan(args, &mut ops) {
            Ok(render) => self.transact(connection, command, args, (&ops, &render)),
            Err(refusal) => {
                refusal.write(command, &mut connection.writer());
            }
        }
    }

    #[inline]
    fn transact(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        (ops, render): (&Ops<'_>, &Render<'_>),
    ) {
        if let Err(abort) = self.check_read_atomic(ops) {
            return refusal::abort(&abort, &mut connection.writer());
        }
        if self.cluster.is_some() && self.leads_elsewhere(connection, command, args, ops) {
            return;
        }
        if self.worker.executes_later(ops) {
            return self.propose(connection, ops, Work::Call(Call::new(command, args)));
        }
        let cursors = &self.context.shared.cursors;
        let lookups = &self.context.lookups;
        let stale = self.stale(connection, command);
        let from = connection.output.position();
        let mut writer = Writer::new(connection.output.buffer(), connection.protocol);
        let outcome = self.worker.execute(ops, stale, |replies, observed| {
            let around = Surroundings {
                command,
                cursors,
                time_ms: observed.time_ms,
                lookups,
            };
            render.write(replies, &around, &mut writer);
        });
        let epoch = match outcome {
            Ok(epoch) => epoch,
            Err(Abort::Held { by }) => {
                return self.park(connection, Work::Call(Call::new(command, args)), by);
            }
            Err(Abort::Elsewhere { leader }) => {
                let work = Work::Call(Call::new(command, args));
                return self.redirect(connection, ops, leader, work);
            }
            Err(abort) if tell_abort(&abort, &mut writer) => Epoch::ZERO,
            Err(_) => self.worker.observed().epoch,
        };
        self.finish(connection, from, epoch);
    }

    /// Makes the reply that starts at `from` wait for `epoch`.
    #[inline]
    pub(crate) fn finish(&mut self, connection: &mut Connection, from: usize, epoch: Epoch) {
        if epoch <= self.context.durable {
            return;
        }
        if self.context.failed.is_some() {
            connection.output.truncate(from);
            connection.writer().error(refusal::NEVER_DURABLE);
            return;
        }
        if self.context.can_lose {
            connection
                .output
                .hold_alone(from, epoch, self.context.durable);
        } else {
            connection.output.hold(from, epoch, self.context.durable);
        }
    }

    fn scan(&mut self, connection: &mut Connection, command: &'static Command, args: Args<'_>) {
        let position = crate::commands::key::scan_position(args, &self.context.shared.cursors);
        let mut ops = Ops::new();
        let planned = match &position {
            Ok(position) => plan_scan(args, position, &mut ops),
            Err(refusal) => Err(refusal.clone()),
        };
        match planned {
            Ok(render) => self.transact(connection, command, args, (&ops, &render)),
            Err(refusal) => {
                refusal.write(command, &mut connection.writer());
            }
        }
    }

    /// Continues the connection's long command, and answers if it has ended.
    pub(crate) fn step_task(&mut self, connection: &mut Connection) {
        let Some(task) = connection.task.take() else {
            return;
        };
        let from = connection.output.position();
        let limit = self.context.shared.config.limits.output;
        match task {
            Task::Keys(mut keys) => match keys.step(&mut self.worker, limit) {
                Step::Waits => connection.task = Some(Task::Keys(keys)),
                Step::TooLong => connection
                    .writer()
                    .error("ERR the reply exceeds the limit on a client's output"),
                Step::Done => match self.worker.epoch_of(keys.epoch(), self.stale_of_node()) {
                    Ok(epoch) => {
                        keys.write(&mut connection.writer());
                        self.finish(connection, from, epoch);
                    }
                    Err(abort) => self.tell_elsewhere(connection, &[], &abort),
                },
            },
            Task::Job(job) if job.is_done() => {
                finish_job(&mut self.context, connection, &job);
            }
            Task::Snapshot { most } => self.step_snapshot(connection, most),
            Task::Parked(parked) => self.unpark(connection, parked),
            Task::Proposed(proposed) => self.tell_proposed(connection, proposed),
            Task::Refused { until } if until > self.context.now => {
                connection.task = Some(Task::Refused { until });
            }
            Task::Refused { .. } => connection.writer().error(refusal::WRONG_PASSWORD),
            Task::Postponed(postponed) => return self.resume(connection, postponed),
            waits @ (Task::Job(_) | Task::Coordinated(_)) => connection.task = Some(waits),
        }
        self.end_task(connection, from);
    }

    /// Counts the reply of a task if it is an error, and withholds it if the client wants none. The
    /// task may continue.
    pub(crate) fn end_task(&mut self, connection: &mut Connection, from: usize) {
        if connection.output.is_error_at(from) {
            // No other command was executed in the meantime.
            let command = table().named(connection.last_command.as_bytes());
            self.note_error(connection, (command, command), Args::new(&[], &[]), from);
        }
        if connection.replies != Replies::On {
            withhold(connection, from);
        }
    }

    fn multi(connection: &mut Connection) {
        if connection.block.is_some() {
            return connection
                .writer()
                .error("ERR MULTI calls can not be nested");
        }
        connection.block = Some(Box::new(Block::default()));
        connection.note_block();
        connection.writer().ok();
    }

    /// Answers an `EXEC` that is refused, and ends the block.
    fn give_up(connection: &mut Connection, reason: &str) {
        connection.block = None;
        connection.watches.clear();
        connection.note_block();
        connection.writer().error(&format!(
            "EXECABORT Transaction discarded because of: {reason}"
        ));
    }

    fn discard(connection: &mut Connection) {
        if connection.block.take().is_none() {
            return connection.writer().error("ERR DISCARD without MULTI");
        }
        connection.watches.clear();
        connection.note_block();
        connection.writer().ok();
    }
}

/// Drops the reply from `from` on if the client does not want the reply of the executed command.
#[cold]
fn withhold(connection: &mut Connection, from: usize) {
    match connection.replies {
        Replies::On | Replies::SkipNext => return,
        Replies::Skip if connection.task.is_none() => connection.replies = Replies::On,
        Replies::Skip | Replies::Off => {}
    }
    connection.output.discard(from);
}

/// Answers a command that did not take effect. Returns `true` if the answer shows no data of the
/// store.
pub(crate) fn tell_abort(abort: &Abort, writer: &mut Writer<'_>) -> bool {
    if let Abort::Precondition { .. } = abort {
        // Only commands that are all or nothing have preconditions.
        writer.int(0);
        return false;
    }
    refusal::abort(abort, writer);
    true
}
