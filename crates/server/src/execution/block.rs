//! `MULTI`, `EXEC` and `DISCARD`: a block, which executes as one transaction.
//!
//! Invariant: `EXEC` and `DISCARD` end the watches, also when the block fails.

use base::transaction::check_guards;
use base::{Abort, Epoch};

use super::executor::{Executor, takes};
use super::other_nodes::wait_for_coordinated;
use crate::block_transaction::{BlockDecision, BlockTransaction};
use crate::command_block::CommandBlock;
use crate::connection::Connection;
use crate::pending_command::PendingTransaction;
use crate::read_tracking::track_reads;
use crate::{read_atomic, refusal};

/// Begins a block.
pub(super) fn multi(connection: &mut Connection) {
    if connection.block.is_some() {
        return connection
            .writer()
            .error("ERR MULTI calls can not be nested");
    }
    connection.block = Some(Box::new(CommandBlock::default()));
    connection.note_block();
    connection.writer().ok();
}

/// Gives the block up.
pub(super) fn discard(connection: &mut Connection) {
    if connection.block.is_none() {
        return connection.writer().error("ERR DISCARD without MULTI");
    }
    connection.end_block();
    connection.writer().ok();
}

/// Answers that a block is discarded, and why.
pub(super) fn write_discarded(connection: &mut Connection, reason: &str) {
    let text = format!("EXECABORT Transaction discarded because of: {reason}");
    connection.writer().error(&text);
}

impl Executor {
    /// Runs the block.
    pub(super) fn exec(&mut self, connection: &mut Connection) {
        let Some(block) = connection.block.take() else {
            return connection.writer().error("ERR EXEC without MULTI");
        };
        connection.note_block();
        let watches = connection.take_watches();
        if block.broken {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return connection.writer().error(text);
        }
        if block.needs_memory() && self.is_full(block.bytes()) {
            return write_discarded(connection, refusal::OUT_OF_MEMORY);
        }
        if block
            .commands
            .iter()
            .any(|call| call.command.kind.is_long())
        {
            let mut transaction = self.long_transaction();
            let at = (connection.session.database, self.time_ms());
            transaction.begin_block(block.commands, watches, at);
            return self.begin_in_place(connection, transaction);
        }
        for call in &block.commands {
            let session = &mut connection.session;
            track_reads(&self.context, session, call.command, call.args());
        }
        if self.runs_block_in_slices(&block.commands) {
            return self.begin_block_write(connection, block.commands, watches);
        }
        let shared = &self.context.shared;
        let databases = (connection.session.database, shared.database_limits());
        let transaction =
            BlockTransaction::new(block.commands, watches, &shared.cursors, databases);
        self.execute_block(connection, Box::new(transaction));
    }

    /// Executes a block, here or with other nodes, now or when no other transaction holds the keys
    /// that it needs.
    pub(super) fn execute_block(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<BlockTransaction>,
    ) {
        let commands = self.table.all();
        loop {
            let plan = transaction.plan();
            let declared = &self.context.shared.read_atomic;
            let checked = check_guards(&plan.ops);
            if let Err(abort) = checked.and_then(|()| read_atomic::check(declared, &plan.ops)) {
                return refusal::write_abort(&abort, &mut connection.writer());
            }
            if self.cluster.is_some() && !self.has_keys_of(&plan.ops) {
                let number = self.coordinate(connection, &plan.ops);
                drop(plan);
                let pending = PendingTransaction::Block(transaction);
                return wait_for_coordinated(connection, pending, number);
            }
            let session = &mut connection.session;
            if plan.ops.is_empty() {
                // It shows no data of the store.
                return transaction.answer(&plan, &[], 0, commands, &mut self.context, session);
            }
            if self.worker.executes_later(&plan.ops) {
                let proposed = self.worker.propose(&plan.ops);
                drop(plan);
                let pending = PendingTransaction::Block(transaction);
                return self.wait_for_proposed(connection, pending, proposed);
            }
            let from = session.output.position();
            let context = &mut self.context;
            let mut is_too_long = false;
            let outcome = self.worker.execute(&plan.ops, None, |replies, observed| {
                is_too_long = !takes(context, session, replies);
                if is_too_long {
                    return;
                }
                transaction.answer(&plan, replies, observed.time_ms, commands, context, session);
            });
            if is_too_long {
                return self.close_for_replies(connection);
            }
            let abort = match outcome {
                Ok(epoch) => return self.hold_reply(connection, from, epoch),
                Err(Abort::Elsewhere { .. }) => {
                    // A client cannot be sent to another node with a block.
                    let number = self.coordinate(connection, &plan.ops);
                    drop(plan);
                    let pending = PendingTransaction::Block(transaction);
                    return wait_for_coordinated(connection, pending, number);
                }
                Err(abort) => abort,
            };
            drop(plan);
            match transaction.revise(abort) {
                BlockDecision::Retry => {}
                BlockDecision::Answer(Abort::Held { by }) => {
                    let pending = PendingTransaction::Block(transaction);
                    return self.wait_for_locks(connection, pending, by);
                }
                BlockDecision::Answer(abort) => {
                    let epoch = self.worker.observed().epoch;
                    return self.answer_block_abort(connection, &abort, epoch);
                }
            }
        }
    }

    /// Answers a block that did not take effect, because of data that `epoch` shows.
    pub(super) fn answer_block_abort(
        &mut self,
        connection: &mut Connection,
        abort: &Abort,
        epoch: Epoch,
    ) {
        let from = connection.session.output.position();
        match abort {
            Abort::Precondition { .. } => {
                connection.writer().null_array();
                return self.hold_reply(connection, from, epoch);
            }
            Abort::OutOfMemory => return write_discarded(connection, refusal::OUT_OF_MEMORY),
            _ => refusal::write_abort(abort, &mut connection.writer()),
        }
        if abort.shows() {
            self.hold_reply(connection, from, epoch);
        }
    }
}
