//! Answers to transactions that were executed on other nodes, or after consensus.

use base::partition::OwnedReply;
use base::{Abort, Epoch};
use cluster::Finished;

use super::executor::{Executor, takes};
use super::watch::answer_watch;
use crate::block_transaction::{BlockDecision, BlockTransaction};
use crate::command::Ops;
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::coordination::CoordinationCaller;
use crate::lookup_counts::count_lookups;
use crate::pending_command::{
    CoordinatedTransaction, PendingCommand, PendingTransaction, ProposedTransaction,
};
use crate::refusal::{self, write_command_abort};
use crate::render::RenderContext;

/// What has become of a transaction.
pub(super) type Outcome = Result<Vec<OwnedReply>, Abort>;

impl Executor {
    /// Answers a connection whose coordinated transaction has ended, unless the connection is another
    /// one by now.
    pub(crate) fn answer_finished(
        &mut self,
        connection: &mut Connection,
        finished: Finished<CoordinationCaller>,
    ) {
        let Finished {
            caller,
            outcome,
            time_ms,
        } = finished;
        let pending = connection.pending.take_if(
            |pending| matches!(pending, PendingCommand::Coordinated(own) if own.number == caller.number),
        );
        let Some(PendingCommand::Coordinated(own)) = pending else {
            return;
        };
        let CoordinatedTransaction { transaction, .. } = own;
        let from = connection.session.output.position();
        self.answer_outcome(connection, transaction, outcome, time_ms);
        self.end_pending(connection, from);
        self.end_wait(connection);
    }

    /// Answers a proposal whose outcome is known, or will never be known.
    pub(super) fn answer_proposed(
        &mut self,
        connection: &mut Connection,
        proposed: ProposedTransaction,
    ) {
        let ProposedTransaction {
            transaction,
            number,
            epoch,
            time_ms,
        } = proposed;
        let is_lost = self.context.shared.partition.is_lost(epoch);
        match self.worker.outcome(number).filter(|_| !is_lost) {
            Some(outcome) => self.answer_outcome(connection, transaction, outcome, time_ms),
            None => connection.writer().raw(refusal::LEADERSHIP_LOST),
        }
    }

    fn answer_outcome(
        &mut self,
        connection: &mut Connection,
        transaction: PendingTransaction,
        outcome: Outcome,
        time_ms: u64,
    ) {
        match transaction {
            PendingTransaction::Call(call) => {
                self.answer_command(connection, &call, outcome, time_ms);
            }
            PendingTransaction::Block(transaction) => {
                self.answer_block(connection, transaction, outcome, time_ms);
            }
            PendingTransaction::Long(transaction) => {
                self.continue_with(connection, transaction, outcome);
            }
            PendingTransaction::Write(_) | PendingTransaction::Watch(_) => {
                unreachable!("it is of this node alone")
            }
        }
    }

    fn answer_block(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<BlockTransaction>,
        outcome: Outcome,
        time_ms: u64,
    ) {
        let abort = match outcome {
            Ok(replies) => {
                let replies: Vec<_> = replies.iter().map(OwnedReply::as_reply).collect();
                if !takes(&self.context, &connection.session, &replies) {
                    return self.close_for_replies(connection);
                }
                let plan = transaction.plan();
                let (commands, session) = (self.table.all(), &mut connection.session);
                let context = &mut self.context;
                return transaction.answer(&plan, &replies, time_ms, commands, context, session);
            }
            Err(abort) => abort,
        };
        match transaction.revise(abort) {
            BlockDecision::Retry => self.execute_block(connection, transaction),
            // The outcome was returned when everything that it shows was durable.
            BlockDecision::Answer(abort) => {
                self.answer_block_abort(connection, &abort, Epoch::ZERO);
            }
        }
    }

    fn answer_command(
        &mut self,
        connection: &mut Connection,
        call: &CommandCall,
        outcome: Outcome,
        time_ms: u64,
    ) {
        let replies = match &outcome {
            Ok(replies) => replies.iter().map(OwnedReply::as_reply).collect::<Vec<_>>(),
            Err(abort) => {
                write_command_abort(abort, &mut connection.writer());
                return;
            }
        };
        if !takes(&self.context, &connection.session, &replies) {
            return self.close_for_replies(connection);
        }
        let (command, args) = (call.command, call.args());
        let Some(plan) = command.kind.plan() else {
            return answer_watch(connection, command, args, &replies);
        };
        let around = RenderContext {
            command: command.name,
            cursors: &self.context.shared.cursors,
            time_ms,
        };
        // It was planned before, from the same arguments.
        match plan(args, &mut Ops::new()) {
            Ok(render) => {
                count_lookups(command, &replies, &self.context.lookups);
                render.write(&replies, &around, &mut connection.writer());
            }
            Err(refusal) => refusal.write(command.name, &mut connection.writer()),
        }
    }
}
