//! The first run of a script, within one transaction of this node's partition.
//!
//! The operations of its commands are executed where the keys are, and no copies are made. The run is given up, as
//! if it had not been, when the script
//!
//! - takes longer than a slice: meanwhile no epoch ends on this node;
//! - calls a command that is more than operations on keys of this node's partition;
//! - meets a conflict, or a key that another transaction holds.
//!
//! Invariant: while the transaction is open, this thread calls nothing that waits for an epoch to end.

use base::{Abort, Op};
use resp::{Args, Writer};
use store::{OpenTransaction, TransactionError};

use super::LongTransaction;
use super::call::{Call, CallContext, Results, RunPause, with_qualified};
use super::script::ScriptEnd;
use crate::command::{CommandDefinition, KeyTurns, Ops};
use crate::routing::Route;

impl LongTransaction {
    /// Runs a script within an open transaction. Returns `false` if it does not suit that: then the open
    /// transaction must not commit, and this one is to begin.
    pub(crate) fn run_in_place(
        &mut self,
        mut context: CallContext<'_>,
        (command, args): (&'static CommandDefinition, Args<'_>),
        open: &mut OpenTransaction<'_>,
    ) -> bool {
        let room = context.room();
        let run = &mut self.run;
        run.database = context.session.database;
        let call = Call {
            command,
            args,
            protocol: context.session.protocol,
        };
        let mut results = Results {
            database: &mut run.database,
            set: &mut run.set,
            in_place: Some(open),
            output: &mut run.output,
            messages: &mut run.messages,
            reply: &mut run.reply,
            log: &mut run.log,
            conflicts: 0,
            turns: &KeyTurns::ALL,
            finding: &mut run.finding,
        };
        let ended = context.run_script(&call, &mut results, &mut run.script);
        let check = run.set.libraries.check();
        matches!(ended, Ok(ScriptEnd::Ended))
            && run.output.len() <= room
            && check.is_none_or(|check| open.execute(&[check]).is_ok())
    }
}

impl CallContext<'_> {
    /// Executes a command that a script has called.
    ///
    /// # Errors
    /// It does not suit a run in place.
    pub(super) fn execute_in_place(
        &self,
        call: &Call<'_>,
        open: &mut OpenTransaction<'_>,
        database: u16,
        output: &mut Vec<u8>,
    ) -> Result<(), RunPause> {
        let Some(plan) = call.command.kind.plan() else {
            return Err(RunPause::Unsuited);
        };
        let mut ops = Ops::new();
        let planned = plan(call.args, &mut ops);
        let mut writer = Writer::new(output, call.protocol);
        let render = match planned {
            Ok(render) => render,
            Err(refusal) => {
                refusal.write(call.command.name, &mut writer);
                return Ok(());
            }
        };
        let time_ms = open.time_ms();
        with_qualified(database, ops, |ops| {
            if !self.are_own(ops) {
                return Err(RunPause::Unsuited);
            }
            match open.execute(ops) {
                Ok(replies) => self.render(call.command, &render, replies, time_ms, &mut writer),
                Err(TransactionError::Abort(Abort::Precondition { .. })) => writer.int(0),
                Err(_) => return Err(RunPause::Unsuited),
            }
            Ok(())
        })
    }

    /// Returns `true` if operations are all on keys of this node's partition.
    fn are_own(&self, ops: &[Op<'_>]) -> bool {
        let routes = self.context.shared.routes.as_ref();
        ops.iter().all(|op| op.key().is_some())
            && routes.is_none_or(|routes| routes.route(ops) == Route::Local)
    }
}
