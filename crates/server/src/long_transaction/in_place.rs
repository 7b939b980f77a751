//! The first run of a transaction, within one transaction of this node's partition.
//!
//! The operations of its commands are executed where the keys are, and no copies are made. The run is given up, as
//! if it had not been, when it
//!
//! - takes longer than a script's slice: meanwhile no epoch ends on this node;
//! - has a command that is more than operations on keys of this node's partition;
//! - meets many conflicts.
//!
//! If it meets a key that another transaction holds, it runs so again when the hold has ended.
//!
//! Invariant: while the partition's transaction is open, this thread calls nothing that waits for an epoch to end.

use base::{Abort, Op};
use resp::Writer;
use store::{TransactionError, Txn};

use super::call::{
    Call, CallContext, Results, RunPause, execute_sequence, with_qualified, write_stop,
};
use super::{LongTransaction, NextStep};
use crate::command::{CommandKind, CompoundStop, Ops, Plan};
use crate::command_call::CommandCall;
use crate::routing::Route;

/// The error of a run that does not suit the partition's transaction.
const UNSUITED: TransactionError = TransactionError::Abort(Abort::Cancelled);

impl LongTransaction {
    /// Runs within a transaction of the partition, which may be committed then. It has just begun, or has run so
    /// before.
    ///
    /// # Errors
    /// The transaction must end with this error: it was a conflict, or this run does not suit it.
    pub(crate) fn run_in_place(
        &mut self,
        context: CallContext<'_>,
        txn: &mut Txn<'_>,
    ) -> Result<(), TransactionError> {
        self.run.begin(self.database, txn.time_ms());
        self.check_watches(&context, txn)?;
        match self.execute(context, Some(txn)) {
            NextStep::Commit => {}
            NextStep::End(error) => return Err(error),
            _ => return Err(UNSUITED),
        }
        match self.run.set.libraries.check() {
            Some(check) => txn.execute(&[check]).map(|_| ()),
            None => Ok(()),
        }
    }

    fn check_watches(
        &self,
        context: &CallContext<'_>,
        txn: &mut Txn<'_>,
    ) -> Result<(), TransactionError> {
        let watches = self.watches.iter();
        let checks = watches.map(|(key, &version)| Op::Check { key, version });
        let checks: Ops<'_> = checks.collect();
        if !context.are_own(&checks) {
            return Err(UNSUITED);
        }
        txn.execute(&checks).map(|_| ())
    }

    /// Returns its commands if they are a block.
    pub(crate) fn block(&self) -> &[CommandCall] {
        match self.is_block {
            true => &self.calls,
            false => &[],
        }
    }
}

impl CallContext<'_> {
    /// Executes a command within a transaction of the partition.
    ///
    /// # Errors
    /// The transaction must end with this error.
    pub(super) fn execute_in_place(
        &self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
    ) -> Result<(), RunPause> {
        match call.command.kind {
            CommandKind::Sequence(_) | CommandKind::Blocking(_) => {
                let qualified = CommandCall::qualified(call.command, call.args, *to.database);
                let args = qualified.as_ref().map_or(call.args, CommandCall::args);
                let keys = call.command.keys.indexes(args);
                let keys = keys.map(|at| Op::Exists { key: args.at(at) });
                let stop = match self.are_own(&keys.collect::<Ops<'_>>()) {
                    true => execute_sequence(call, args, to).err(),
                    false => Some(CompoundStop::End(UNSUITED)),
                };
                stop.map_or(Ok(()), |stop| write_stop(call, stop, to.output))
            }
            kind => match kind.plan() {
                Some(plan) => self.execute_plan_in_place(call, to, plan),
                None => Err(RunPause::End(UNSUITED)),
            },
        }
    }

    fn execute_plan_in_place(
        &self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
        plan: Plan,
    ) -> Result<(), RunPause> {
        let Some(txn) = to.in_place.as_deref_mut() else {
            unreachable!("the run is in place");
        };
        let mut ops = Ops::new();
        let planned = plan(call.args, &mut ops);
        let mut writer = Writer::new(to.output, call.protocol);
        let render = match planned {
            Ok(render) => render,
            Err(refusal) => {
                refusal.write(call.command.name, &mut writer);
                return Ok(());
            }
        };
        let time_ms = txn.time_ms();
        with_qualified(*to.database, ops, |ops| {
            if !ops.iter().all(|op| op.key().is_some()) || !self.are_own(ops) {
                return Err(RunPause::End(UNSUITED));
            }
            match txn.execute(ops) {
                Ok(replies) => self.render(call.command, &render, replies, time_ms, &mut writer),
                Err(TransactionError::Abort(Abort::Precondition { .. })) => writer.int(0),
                Err(error) => return Err(RunPause::End(error)),
            }
            Ok(())
        })
    }

    /// Returns `true` if operations are all on keys of this node's partition.
    fn are_own(&self, ops: &[Op<'_>]) -> bool {
        let routes = self.context.shared.routes.as_ref();
        ops.is_empty() || routes.is_none_or(|routes| routes.route(ops) == Route::Local)
    }
}
