//! Transactions in several steps that run within one transaction of this node's partition.

use base::planted::{self, Bug};
use base::{Abort, OpError};

use super::executor::Executor;
use crate::connection::Connection;
use crate::long_transaction::{CallContext, LongTransaction};
use crate::pending_command::PendingTransaction;
use crate::refusal;
use crate::session::PublishedMessage;

/// The number of conflicts after which a run in place is given up. In steps it can hold its keys.
const MOST_CONFLICTS: u32 = 16;

impl Executor {
    /// Runs a transaction within one of the partition, and answers. If it meets a held key, it waits, and begins
    /// again; if a run in place does not suit it, nothing has happened, and it begins in steps.
    pub(super) fn begin_in_place(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<LongTransaction>,
    ) {
        let from = connection.session.output.position();
        let mut runs = 0;
        let outcome = self.worker.transact(|txn| {
            runs += 1;
            if runs > MOST_CONFLICTS {
                return Err(txn.cancel());
            }
            let context = CallContext {
                commands: self.table,
                context: &mut self.context,
                session: &mut connection.session,
            };
            transaction.run_in_place(context, txn)
        });
        let observed = match outcome {
            Ok(((), observed)) => observed,
            Err(abort) => {
                transaction.run_again(None, self.time_ms());
                return match abort {
                    Abort::Held { by } => {
                        self.wait_for_locks(connection, PendingTransaction::Long(transaction), by);
                    }
                    _ => self.continue_long(connection, transaction),
                };
            }
        };
        for call in transaction.block() {
            self.context.recorder.count(call.command.number);
        }
        if transaction.found_nothing() {
            return self.end_without(connection, transaction, observed);
        }
        answer(connection, &mut transaction, None);
        if !planted::is(Bug::EarlyMove) {
            self.hold_reply(connection, from, observed);
        }
        self.keep(transaction);
    }
}

/// Writes the replies of a transaction that has taken effect, and hands its messages over. `error` is that of
/// one of its writes: a partition has other limits than this node.
pub(super) fn answer(
    connection: &mut Connection,
    transaction: &mut LongTransaction,
    error: Option<OpError>,
) {
    let session = &mut connection.session;
    session.database = transaction.selected();
    let (replies, messages) = transaction.take_results();
    let position = session.output.position();
    session
        .published
        .extend(messages.into_iter().map(|message| PublishedMessage {
            position,
            in_block: true,
            ..message
        }));
    match error {
        None => session.output.buffer().extend_from_slice(replies),
        Some(error) => refusal::write_op_error(error, "", &mut session.writer()),
    }
}
