//! Commands that have waited, and continue.

use base::Abort;

use super::executor::Executor;
use crate::connection::Connection;
use crate::pending_command::{LockWait, PendingCommand, PendingTransaction};
use crate::refusal;
use crate::tracking;

impl Executor {
    /// Continues the connection's pending command, and answers if it has ended.
    pub(crate) fn resume(&mut self, connection: &mut Connection) {
        let Some(pending) = connection.pending.take() else {
            return;
        };
        let from = connection.session.output.position();
        let tracking = connection.session.tracking.as_ref();
        if tracking.is_some_and(|own| own.ignores_own) {
            tracking::note_client(connection.session.client.id);
            self.resume_pending(connection, pending, from);
            tracking::note_client(0);
        } else {
            self.resume_pending(connection, pending, from);
        }
        self.end_wait(connection);
    }

    fn resume_pending(
        &mut self,
        connection: &mut Connection,
        pending: PendingCommand,
        from: usize,
    ) {
        match pending {
            PendingCommand::KeyLookup(lookup) => self.continue_lookup(connection, lookup),
            PendingCommand::KeyWalk(walk) => self.continue_walk(connection, walk),
            PendingCommand::Write(write) => self.continue_write(connection, write),
            PendingCommand::Watch(watch) => self.continue_watch(connection, watch),
            PendingCommand::Job(job) if job.is_done() => {
                job.finish(&self.context, &mut connection.session);
            }
            PendingCommand::SnapshotPage { most } => self.answer_snapshot_page(connection, most),
            PendingCommand::Slice(transaction) => self.continue_long(connection, transaction),
            PendingCommand::LockWait(wait) => self.retry(connection, wait),
            PendingCommand::Proposed(proposed) => self.answer_proposed(connection, proposed),
            PendingCommand::WrongPassword { until } if until <= self.context.now => {
                connection.writer().error(refusal::WRONG_PASSWORD);
            }
            PendingCommand::Blocked => self.resume_blocked(connection),
            PendingCommand::ReplyHandover(handover) if handover.strong_count() == 0 => {}
            PendingCommand::Paused(paused) => {
                // It counts its errors by itself.
                let call = &paused.call;
                return self.execute_counted(connection, Some(call.command), call.args());
            }
            waits @ (PendingCommand::Job(_)
            | PendingCommand::Coordinated(_)
            | PendingCommand::ReplyHandover(_)
            | PendingCommand::WrongPassword { .. }) => connection.pending = Some(waits),
        }
        self.end_pending(connection, from);
    }

    /// Executes a transaction that waited for keys again, or refuses it when its time is over.
    fn retry(&mut self, connection: &mut Connection, wait: LockWait) {
        // The connection still counts as one that waits.
        let LockWait {
            transaction,
            holder,
            until,
            ..
        } = wait;
        if self.context.now >= until {
            let abort = Abort::Held { by: holder };
            if let PendingTransaction::Write(mut write) = transaction {
                write.give_up(abort);
                return self.continue_write(connection, write);
            }
            return refusal::write_abort(&abort, &mut connection.writer());
        }
        let releases = self.context.shared.partition.releases();
        match transaction {
            PendingTransaction::Call(call) => self.run(connection, call.command, call.args()),
            PendingTransaction::Block(block) => self.execute_block(connection, block),
            PendingTransaction::Long(long) if long.waits_to_begin() => {
                self.begin_in_place(connection, long);
            }
            PendingTransaction::Long(long) => self.continue_long(connection, long),
            PendingTransaction::Write(write) => self.continue_write(connection, write),
            PendingTransaction::Watch(watch) => self.continue_watch(connection, watch),
        }
        if let Some(PendingCommand::LockWait(again)) = &mut connection.pending {
            again.tried_again(releases, until);
        }
    }
}
