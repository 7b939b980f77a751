//! A command that is executed alone, as one transaction.

use base::{Abort, Epoch, database};
use resp::Args;

use super::executor::{Executor, takes};
use crate::command::{CommandDefinition, Ops, PlanFromKey, Planned};
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::lookup_counts::count_lookups;
use crate::pending_command::PendingTransaction;
use crate::read_atomic;
use crate::refusal::{self, write_command_abort};
use crate::render::{Render, RenderContext};

impl Executor {
    /// Runs the operations that `plan` makes of a command's arguments.
    #[inline]
    pub(super) fn run_plan<'a>(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'a>,
        plan: impl FnOnce(Args<'a>, &mut Ops<'a>) -> Planned<'a>,
    ) {
        let mut ops = Ops::new();
        match plan(args, &mut ops) {
            Ok(render) => self.transact_in(connection, command, args, (&ops, &render)),
            Err(refusal) => refusal.write(command.name, &mut connection.writer()),
        }
    }

    /// Runs `SCAN`.
    pub(super) fn scan(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        from_key: PlanFromKey,
    ) {
        match (from_key.key)(args, &self.context.shared.cursors) {
            Ok(key) => {
                let mut ops = Ops::new();
                match (from_key.plan)(args, &key, &mut ops) {
                    Ok(render) => self.transact_in(connection, command, args, (&ops, &render)),
                    Err(refusal) => refusal.write(command.name, &mut connection.writer()),
                }
            }
            Err(refusal) => refusal.write(command.name, &mut connection.writer()),
        }
    }

    /// Executes operations on keys of the database that the connection has selected.
    #[inline]
    fn transact_in(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        (ops, render): (&Ops<'_>, &Render<'_>),
    ) {
        match database::needs_qualification(connection.session.database, ops) {
            false => self.transact(connection, command, args, (ops, render)),
            true => self.transact_qualified(connection, command, args, (ops, render)),
        }
    }

    #[cold]
    fn transact_qualified(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        (ops, render): (&Ops<'_>, &Render<'_>),
    ) {
        let number = connection.session.database;
        let keys = database::qualified_keys(number, ops);
        let ops: Ops<'_> = database::qualify(number, ops.iter().cloned(), &keys).collect();
        self.transact(connection, command, args, (&ops, render));
    }

    #[inline]
    fn transact(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        (ops, render): (&Ops<'_>, &Render<'_>),
    ) {
        if let Err(abort) = read_atomic::check(&self.context.shared.read_atomic, ops) {
            return refusal::write_abort(&abort, &mut connection.writer());
        }
        if self.cluster.is_some() && self.route_elsewhere(connection, command, args, ops) {
            return;
        }
        let pending = || PendingTransaction::Call(CommandCall::new(command, args));
        if self.worker.executes_later(ops) {
            return self.propose(connection, ops, pending());
        }
        let context = &self.context;
        let stale = self.staleness(connection, command);
        let session = &mut connection.session;
        let from = session.output.position();
        let mut is_too_long = false;
        let outcome = self.worker.execute(ops, stale, |replies, observed| {
            is_too_long = !takes(context, session, replies);
            if is_too_long {
                return;
            }
            let around = RenderContext {
                command: command.name,
                cursors: &context.shared.cursors,
                time_ms: observed.time_ms,
            };
            count_lookups(command, replies, &context.lookups);
            render.write(replies, &around, &mut session.writer());
        });
        if is_too_long {
            return self.close_for_replies(connection);
        }
        let epoch = match outcome {
            Ok(epoch) => epoch,
            Err(Abort::Held { by }) => return self.wait_for_locks(connection, pending(), by),
            Err(Abort::Elsewhere { leader }) => {
                return self.redirect(connection, ops, leader, pending());
            }
            Err(abort) if write_command_abort(&abort, &mut connection.writer()) => Epoch::ZERO,
            Err(_) => self.worker.observed().epoch,
        };
        self.hold_reply(connection, from, epoch);
    }
}
