//! The execution of one command within a long transaction.

use base::partition::OwnedReply;
use base::{Op, Reply, database};
use resp::{Args, Protocol, Writer};
use scripts::ScriptLogLevel;
use smallvec::SmallVec;
use store::{TransactionError, Txn};

use crate::command::{
    CommandDefinition, CommandKind, CompoundStop, KeyTurns, Ops, Plan, Planned, WaitFinding,
};
use crate::command_call::CommandCall;
use crate::command_table::CommandTable;
use crate::limits::READ_BUFFER;
use crate::lookup_counts::count_lookups;
use crate::read_tracking::track_reads;
use crate::refusal;
use crate::render::{Render, RenderContext};
use crate::runtime_context::RuntimeContext;
use crate::session::{ClientSession, PublishedMessage};
use crate::transaction_keys::TransactionKeys;
use crate::working_set::{Need, WorkingSet};

/// The parts of a runtime and of a connection that commands of a long transaction use.
pub(crate) struct CallContext<'a> {
    pub(crate) commands: &'static CommandTable,
    pub(crate) context: &'a mut RuntimeContext,
    pub(crate) session: &'a mut ClientSession,
}

/// A command and where its reply goes.
pub(super) struct Call<'a> {
    pub(super) command: &'static CommandDefinition,
    pub(super) args: Args<'a>,
    /// The protocol of its reply.
    pub(super) protocol: Protocol,
}

/// The results of a transaction's commands so far.
pub(super) struct Results<'a, 'w> {
    /// The selected database.
    pub(super) database: &'a mut u16,
    pub(super) set: &'a mut WorkingSet,
    /// The transaction of the partition in which operations are executed, in place of the set.
    pub(super) in_place: Option<&'a mut Txn<'w>>,
    /// The end of the replies.
    pub(super) output: &'a mut Vec<u8>,
    /// Memory for replies that scripts get.
    pub(super) reply: &'a mut Vec<u8>,
    /// Messages that are sent if the transaction takes effect.
    pub(super) messages: &'a mut Vec<PublishedMessage>,
    /// Lines that scripts have logged.
    pub(super) log: &'a mut Vec<(ScriptLogLevel, Vec<u8>)>,
    /// The number of runs that have met a conflict.
    pub(super) conflicts: u32,
    /// The keys at which a command that waits may look.
    pub(super) turns: &'a KeyTurns,
    /// What such a command has found.
    pub(super) finding: &'a mut WaitFinding,
}

/// Why commands have stopped before their end.
pub(super) enum RunPause {
    Read(Need),
    /// A time slice is over.
    Slice,
    /// The transaction in which it runs in place ends with this error.
    End(TransactionError),
}

impl From<Need> for RunPause {
    fn from(need: Need) -> RunPause {
        RunPause::Read(need)
    }
}

impl CallContext<'_> {
    /// Returns the bytes of replies that the client may be sent.
    pub(super) fn room(&self) -> usize {
        let shared = &self.context.shared;
        let budget = &shared.in_flight;
        let left = budget.limit().saturating_sub(budget.used());
        let own = shared.config.limits.output;
        let own = own.saturating_sub(self.session.output.pending());
        own.min(usize::try_from(left).unwrap_or(usize::MAX))
            .max(READ_BUFFER)
    }

    /// Executes a command on the transaction's keys.
    ///
    /// # Errors
    /// It needs reads first, or does not suit a run in place; nothing has happened.
    pub(super) fn execute(
        &mut self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
    ) -> Result<(), RunPause> {
        let (command, args) = (call.command, call.args);
        track_reads(self.context, self.session, command, args);
        if to.in_place.is_some() {
            return self.execute_in_place(call, to);
        }
        match command.kind {
            CommandKind::Store(plan) | CommandKind::AllOrNothing(plan) => {
                self.execute_plan(call, to, plan)?;
            }
            CommandKind::Guard(plan) => self.execute_plan(call, to, plan)?,
            CommandKind::Scan(from_key) | CommandKind::Keys(from_key) => {
                let key = (from_key.key)(args, &self.context.shared.cursors);
                let key = key.map_err(|refusal| {
                    let mut writer = Writer::new(to.output, call.protocol);
                    refusal.write(command.name, &mut writer);
                });
                if let Ok(key) = key {
                    let mut ops = Ops::new();
                    let planned = (from_key.plan)(args, &key, &mut ops);
                    self.execute_planned(call, to, ops, planned)?;
                }
            }
            CommandKind::Compound(compound) => {
                let run = |args: Args<'_>, to: &mut Results<'_, '_>| {
                    let mut writer = Writer::new(to.output, call.protocol);
                    compound(args, to.set, &mut writer)
                };
                execute_compound(call, to, run)?;
            }
            CommandKind::Sequence(_) | CommandKind::Blocking(_) => {
                execute_compound(call, to, |args, to| execute_sequence(call, args, to))?;
            }
            CommandKind::Libraries(command) => self.execute_on_libraries(call, to, command)?,
            CommandKind::Databases(_) => Writer::new(to.output, call.protocol).error(
                "ERR SWAPDB is not possible in a block with commands that read before they write",
            ),
            CommandKind::Introspection(answer) => {
                let mut writer = Writer::new(to.output, call.protocol);
                answer(self.commands.all(), args, &mut writer);
            }
            // EXEC has ended the watches.
            CommandKind::Unwatch => Writer::new(to.output, call.protocol).ok(),
            CommandKind::Local(_) | CommandKind::Deferred(_) => self.execute_local(call, to),
            _ => refusal::write_arity(command.name, &mut Writer::new(to.output, call.protocol)),
        }
        Ok(())
    }

    fn execute_plan(
        &self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
        plan: Plan,
    ) -> Result<(), Need> {
        let mut ops = Ops::new();
        let planned = plan(call.args, &mut ops);
        self.execute_planned(call, to, ops, planned)
    }

    fn execute_planned(
        &self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
        ops: Ops<'_>,
        planned: Planned<'_>,
    ) -> Result<(), Need> {
        let command = call.command;
        let render = match planned {
            Ok(render) => render,
            Err(refusal) => {
                refusal.write(command.name, &mut Writer::new(to.output, call.protocol));
                return Ok(());
            }
        };
        let set = &mut *to.set;
        let replies = with_qualified(*to.database, ops, |ops| {
            set.need(ops).map_or(Ok(()), Err)?;
            let replies = ops.iter().map(|op| set.execute(op));
            Ok(replies.collect::<Result<SmallVec<[OwnedReply; 2]>, _>>())
        })?;
        let mut writer = Writer::new(to.output, call.protocol);
        let Ok(replies) = replies else {
            // A command whose preconditions, which come first, are not all met.
            writer.int(0);
            return Ok(());
        };
        let replies: SmallVec<[Reply<'_>; 2]> = replies.iter().map(OwnedReply::as_reply).collect();
        self.render(
            call.command,
            &render,
            &replies,
            to.set.time_ms(),
            &mut writer,
        );
        Ok(())
    }

    /// Writes the reply of a command whose operations were executed at `time_ms` since the Unix epoch.
    pub(super) fn render(
        &self,
        command: &CommandDefinition,
        render: &Render<'_>,
        replies: &[Reply<'_>],
        time_ms: u64,
        writer: &mut Writer<'_>,
    ) {
        let around = RenderContext {
            command: command.name,
            cursors: &self.context.shared.cursors,
            time_ms,
        };
        count_lookups(command, replies, &self.context.lookups);
        render.write(replies, &around, writer);
    }

    /// Executes a command that does not touch the store. It writes to the end of the session's output,
    /// from which its reply is taken.
    fn execute_local(&mut self, call: &Call<'_>, to: &mut Results<'_, '_>) {
        let session = &mut *self.session;
        let (from, published) = (session.output.position(), session.published.len());
        let own = std::mem::replace(&mut session.protocol, call.protocol);
        std::mem::swap(&mut session.database, to.database);
        self.context.in_block = true;
        match call.command.kind {
            CommandKind::Local(local) => local(self.context, session, call.args),
            CommandKind::Deferred(local) => {
                let deferred = local(self.context, session, call.args);
                debug_assert!(deferred.is_none(), "{} answers later", call.command.name);
            }
            _ => {}
        }
        self.context.in_block = false;
        session.protocol = own;
        std::mem::swap(&mut session.database, to.database);
        to.output.extend_from_slice(session.output.from(from));
        session.output.truncate(from);
        to.messages.extend(session.published.drain(published..));
    }
}

/// Executes a command of operations on its keys. Its arguments have the keys as they are stored.
pub(super) fn execute_sequence(
    call: &Call<'_>,
    args: Args<'_>,
    to: &mut Results<'_, '_>,
) -> Result<(), CompoundStop> {
    let mut keys = match to.in_place.as_deref_mut() {
        Some(txn) => TransactionKeys::InPlace(txn, to.set.databases()),
        None => TransactionKeys::Copied(to.set),
    };
    let mut writer = Writer::new(to.output, call.protocol);
    match call.command.kind {
        CommandKind::Sequence(sequence) => sequence(args, &mut keys, &mut writer),
        CommandKind::Blocking(blocking) => {
            (blocking.terms)(args)?;
            *to.finding = (blocking.execute)(args, to.turns, &mut keys, &mut writer)?;
            Ok(())
        }
        _ => unreachable!("{} is no sequence of operations", call.command.name),
    }
}

/// Executes a command on what its keys have; `run` gets its arguments with the keys as they are stored.
///
/// # Errors
/// It needs reads first.
fn execute_compound(
    call: &Call<'_>,
    to: &mut Results<'_, '_>,
    run: impl FnOnce(Args<'_>, &mut Results<'_, '_>) -> Result<(), CompoundStop>,
) -> Result<(), RunPause> {
    let command = call.command;
    let qualified = CommandCall::qualified(command, call.args, *to.database);
    let args = qualified.as_ref().map_or(call.args, CommandCall::args);
    let indexes = command.keys.indexes(args);
    to.set.require(indexes.map(|at| args.at(at)))?;
    let stop = run(args, to).err();
    stop.map_or(Ok(()), |stop| write_stop(call, stop, to.output))
}

/// Writes the reply of a command that is refused.
///
/// # Errors
/// It has stopped for another reason.
pub(super) fn write_stop(
    call: &Call<'_>,
    stop: CompoundStop,
    output: &mut Vec<u8>,
) -> Result<(), RunPause> {
    match stop {
        CompoundStop::Refused(refusal) => {
            refusal.write(call.command.name, &mut Writer::new(output, call.protocol));
            Ok(())
        }
        CompoundStop::Needs(need) => Err(RunPause::Read(need)),
        CompoundStop::End(error) => Err(RunPause::End(error)),
    }
}

/// Calls a function with operations on clients' keys of a database, qualified.
pub(super) fn with_qualified<R>(
    database: u16,
    ops: Ops<'_>,
    run: impl FnOnce(&[Op<'_>]) -> R,
) -> R {
    if !database::needs_qualification(database, &ops) {
        return run(&ops);
    }
    let keys = database::qualified_keys(database, &ops);
    let qualified: Ops<'_> = database::qualify(database, ops, &keys).collect();
    run(&qualified)
}
