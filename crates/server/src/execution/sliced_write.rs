//! Writes of very many keys, in slices.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use base::transaction::Holder;
use base::{Abort, Timestamp, TransactionId, Version};
use resp::Args;

use super::executor::Executor;
use crate::command::CommandDefinition;
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::key_lookup::MANY_ARGUMENTS;
use crate::partition::Partition;
use crate::pending_command::{PendingCommand, PendingTransaction};
use crate::refusal::write_command_abort;
use crate::sliced_write::{BlockWrite, CommandWrite, SliceOutcome, SlicedWrite, WriteOperations};

impl Executor {
    /// Begins a command as a transaction in slices, if it writes very many keys of this node alone. Returns `false` if
    /// it is to be executed as one piece.
    #[inline]
    pub(super) fn writes_in_slices(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) -> bool {
        args.len() > MANY_ARGUMENTS
            && CommandWrite::serves(command.name, args)
            && self.begin_write(connection, command, args)
    }

    #[cold]
    fn begin_write(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) -> bool {
        if !self.runs_in_slices() || !self.has_all_keys(command, args) {
            return false;
        }
        let mut write = CommandWrite::new(command, connection.session.database);
        if !self.gives_input {
            write.copy_request(args);
        }
        let write = SlicedWrite::new(WriteOperations::Command(write), self.new_holder());
        let write = Box::new(write);
        match write.awaits_request() {
            true => connection.pending = Some(PendingCommand::Write(write)),
            false => self.continue_write(connection, write),
        }
        true
    }

    /// Returns `true` if the partition executes transactions in slices.
    fn runs_in_slices(&self) -> bool {
        let shared = &self.context.shared;
        shared.read_atomic.is_empty() && matches!(shared.partition, Partition::Local(_))
    }

    fn new_holder(&mut self) -> Holder {
        let age = Timestamp::at_ms(self.time_ms());
        let holds = &self.context.shared.holds;
        let id = TransactionId {
            timestamp: age,
            unique: holds.fetch_add(1, Ordering::Relaxed),
        };
        Holder { id, age }
    }

    /// Returns `true` if a block can run as a transaction in slices, and is so long that it should.
    pub(super) fn runs_block_in_slices(&self, calls: &[CommandCall]) -> bool {
        let arguments: usize = calls.iter().map(|call| call.args().len()).sum();
        arguments > 2 * MANY_ARGUMENTS
            && self.runs_in_slices()
            // Those who wait for keys have their turn before the block's client is answered.
            && self.context.shared.blocked.count() == 0
            && BlockWrite::serves(calls)
            && calls.iter().all(|call| self.has_all_keys(call.command, call.args()))
    }

    /// Begins a block as a transaction in slices.
    pub(super) fn begin_block_write(
        &mut self,
        connection: &mut Connection,
        calls: Vec<CommandCall>,
        watches: BTreeMap<Vec<u8>, Version>,
    ) {
        let session = &connection.session;
        let block = BlockWrite::new(calls, watches, session.database, session.protocol);
        let write = SlicedWrite::new(WriteOperations::Block(block), self.new_holder());
        self.continue_write(connection, Box::new(write));
    }

    /// Runs the next slice of a write, and answers if that was the last one.
    pub(super) fn continue_write(
        &mut self,
        connection: &mut Connection,
        mut write: Box<SlicedWrite>,
    ) {
        let from = connection.session.output.position();
        let step = write.step(&mut self.worker, &self.context);
        self.context.has_large_commit |= write.has_committed();
        match step {
            SliceOutcome::Unfinished => connection.pending = Some(PendingCommand::Write(write)),
            SliceOutcome::Done(epoch) => {
                let bytes = connection.session.output.pending() + write.reply_bytes();
                if bytes > self.context.shared.config.limits.output {
                    return self.close_for_replies(connection);
                }
                for call in write.block().unwrap_or_default() {
                    self.context.recorder.count(call.command.number);
                }
                write.write(&mut connection.writer());
                self.hold_reply(connection, from, epoch);
                write.end();
                self.closing_writes.push(*write);
            }
            SliceOutcome::Waits(by) => {
                let longest = self.context.shared.config.hold_timeout;
                let (releases, until) = write.wait(self.context.now, longest);
                self.wait_for_locks(connection, PendingTransaction::Write(write), by);
                if let Some(PendingCommand::LockWait(wait)) = &mut connection.pending {
                    wait.tried_again(releases, until);
                }
            }
            SliceOutcome::Refused(abort, epoch) if write.block().is_some() => {
                self.answer_block_abort(connection, &abort, epoch);
            }
            SliceOutcome::Refused(abort, epoch) => {
                if !write_command_abort(&abort, &mut connection.writer()) {
                    self.hold_reply(connection, from, epoch);
                }
            }
        }
    }

    /// Takes the write of a connection that closes: what it holds is given back in slices, too.
    pub(crate) fn take_write(&mut self, connection: &mut Connection) {
        let write = match connection.pending.take() {
            Some(PendingCommand::Write(write)) => Some(write),
            Some(PendingCommand::LockWait(wait)) => match wait.transaction {
                PendingTransaction::Write(write) => Some(write),
                _ => None,
            },
            _ => None,
        };
        self.closing_writes.extend(write.map(|mut write| {
            write.give_up(Abort::Cancelled);
            *write
        }));
    }

    /// Returns `true` if there are writes whose connections have closed.
    pub(crate) fn has_closing_writes(&self) -> bool {
        !self.closing_writes.is_empty()
    }

    /// Runs a slice of each write whose connection has closed.
    pub(crate) fn continue_closing_writes(&mut self) {
        let (worker, context) = (&mut self.worker, &mut self.context);
        self.closing_writes.retain_mut(|write| {
            let step = write.step(worker, context);
            context.has_large_commit |= write.has_committed();
            matches!(step, SliceOutcome::Unfinished)
        });
    }
}
