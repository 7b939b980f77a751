//! `KEYS`, and commands about the keys of a slot: walks through a snapshot, in slices.

use resp::Args;

use super::executor::Executor;
use crate::command::CommandDefinition;
use crate::connection::Connection;
use crate::key_walk::{KeyWalk, WalkProgress};
use crate::pending_command::PendingCommand;

impl Executor {
    /// Begins `KEYS`, and visits the first slice.
    pub(super) fn begin_keys(
        &mut self,
        connection: &mut Connection,
        command: &CommandDefinition,
        args: Args<'_>,
    ) {
        let stale = self.staleness(connection, command);
        if let Err(abort) = self.worker.check_view(stale) {
            return self.answer_elsewhere(connection, None, &abort);
        }
        let walk = KeyWalk::matching(
            &self.context.shared.partition,
            connection.session.database,
            args.at(1),
        );
        self.continue_walk(connection, Box::new(walk));
    }

    /// Visits the next slice of a walk, and answers if that was the last one.
    pub(super) fn continue_walk(&mut self, connection: &mut Connection, mut walk: Box<KeyWalk>) {
        let from = connection.session.output.position();
        let limit = self.context.shared.config.limits.output;
        match walk.step(&mut self.worker, limit) {
            WalkProgress::Unfinished => connection.pending = Some(PendingCommand::KeyWalk(walk)),
            WalkProgress::TooLong => connection
                .writer()
                .error("ERR the reply exceeds the limit on a client's output"),
            WalkProgress::Done => {
                let stale = self.staleness_of_node();
                match self.worker.epoch_of(walk.epoch(), stale) {
                    Ok(epoch) => {
                        walk.write(&mut connection.writer());
                        self.hold_reply(connection, from, epoch);
                    }
                    Err(abort) => self.answer_elsewhere(connection, None, &abort),
                }
            }
        }
    }
}
