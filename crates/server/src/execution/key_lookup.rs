//! Commands that read very many keys by their names, in slices.

use resp::Args;

use super::executor::Executor;
use crate::command::CommandDefinition;
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::key_lookup::{KeyLookup, MANY_ARGUMENTS};
use crate::pending_command::PendingCommand;

impl Executor {
    /// Begins a command as a lookup in slices, if it reads very many keys and these are of this node
    /// alone: a snapshot does not know what other nodes have decided. Returns `false` if it is to be
    /// executed as one transaction.
    #[inline]
    pub(super) fn looks_up(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) -> bool {
        let is_lookup = args.len() > MANY_ARGUMENTS
            && self.cluster.is_none()
            && KeyLookup::serves(command.name);
        if is_lookup {
            let call = CommandCall::new(command, args);
            let lookup = KeyLookup::new(&self.context.shared.partition, call);
            self.continue_lookup(connection, Box::new(lookup));
        }
        is_lookup
    }

    /// Looks up the next slice of keys, and answers if that was the last one.
    pub(super) fn continue_lookup(
        &mut self,
        connection: &mut Connection,
        mut lookup: Box<KeyLookup>,
    ) {
        let session = &mut connection.session;
        let from = session.output.position();
        let lookups = &self.context.lookups;
        let is_done = lookup.step(&mut self.worker, session.protocol, lookups);
        if session.output.pending() + lookup.reply_bytes()
            > self.context.shared.config.limits.output
        {
            self.close_for_replies(connection);
        } else if is_done {
            lookup.write(&mut connection.writer());
            self.hold_reply(connection, from, lookup.epoch());
        } else {
            connection.pending = Some(PendingCommand::KeyLookup(lookup));
        }
    }
}
