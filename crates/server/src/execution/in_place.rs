//! Scripts that run within one transaction of this node's partition.

use base::{Abort, OpError};
use resp::Args;
use store::TransactionError;

use super::executor::Executor;
use crate::command::CommandDefinition;
use crate::connection::Connection;
use crate::long_transaction::{CallContext, LongTransaction};
use crate::refusal;
use crate::session::PublishedMessage;

impl Executor {
    /// Runs a script within one transaction of the partition, and answers. Returns `false` if that does not suit it;
    /// nothing has happened then.
    pub(super) fn runs_in_place(
        &mut self,
        connection: &mut Connection,
        transaction: &mut LongTransaction,
        (command, args): (&'static CommandDefinition, Args<'_>),
    ) -> bool {
        let Some(mut open) = self.worker.open() else {
            return false;
        };
        let context = CallContext {
            commands: self.table,
            context: &mut self.context,
            session: &mut connection.session,
        };
        let outcome = match transaction.run_in_place(context, (command, args), &mut open) {
            true => open.commit(),
            false => {
                drop(open);
                Err(TransactionError::Conflict)
            }
        };
        match outcome {
            Ok(observed) => {
                let from = connection.session.output.position();
                answer(connection, transaction, None);
                self.hold_reply(connection, from, observed.epoch);
                true
            }
            Err(TransactionError::Conflict | TransactionError::Abort(Abort::Held { .. })) => false,
            Err(TransactionError::Abort(abort)) => {
                refusal::write_abort(&abort, &mut connection.writer());
                true
            }
        }
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
