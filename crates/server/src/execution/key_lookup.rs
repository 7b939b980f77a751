//! Commands that read very many keys by their names, in slices.

use resp::Args;

use super::executor::Executor;
use crate::command::CommandDefinition;
use crate::connection::Connection;
use crate::key_lookup::{KeyLookup, MANY_ARGUMENTS};
use crate::partition::Partition;
use crate::pending_command::{PendingCommand, PendingTransaction};

impl Executor {
    /// Begins a command as a lookup in slices, if it reads very many keys and these are of this node
    /// alone. Returns `false` if it is to be executed as one transaction.
    #[inline]
    pub(super) fn looks_up(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) -> bool {
        args.len() > MANY_ARGUMENTS
            && KeyLookup::serves(command.name)
            && self.begin_lookup(connection, command, args)
    }

    #[cold]
    fn begin_lookup(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) -> bool {
        let shared = &self.context.shared;
        // Of the keys of a cluster the snapshot of a local partition says what is prepared.
        let is_local = matches!(shared.partition, Partition::Local(_));
        let suits = self.cluster.is_none() || is_local && shared.read_atomic.is_empty();
        if !suits || !self.has_all_keys(command, args) {
            return false;
        }
        let database = connection.session.database;
        let call = (command, args);
        let lookup = KeyLookup::new(&shared.partition, &mut self.worker, call, database);
        self.continue_lookup(connection, Box::new(lookup));
        true
    }

    /// Looks up the next slice of keys, and answers if that was the last one.
    pub(super) fn continue_lookup(
        &mut self,
        connection: &mut Connection,
        mut lookup: Box<KeyLookup>,
    ) {
        if let Some(by) = lookup.waits_for() {
            let call = lookup.call_of_client();
            return self.wait_for_locks(connection, PendingTransaction::Call(call), by);
        }
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
