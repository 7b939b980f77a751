//! How each kind of command runs.

use std::sync::atomic::Ordering;

use resp::Args;

use super::executor::Executor;
use super::{block, snapshot, watch};
use crate::command::{CommandDefinition, CommandKind, KeyTurns};
use crate::connection::Connection;
use crate::session::ReplyMode;
use crate::{read_tracking, refusal};

impl Executor {
    /// Runs a command. Its reply is at the end of the connection's output afterwards, or the
    /// connection has it as its pending command.
    #[inline]
    pub(super) fn run(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) {
        read_tracking::track_reads(&self.context, &mut connection.session, command, args);
        match command.kind {
            CommandKind::Store(plan) | CommandKind::AllOrNothing(plan) => {
                let runs_in_slices = self.looks_up(connection, command, args)
                    || self.writes_in_slices(connection, command, args);
                if !runs_in_slices {
                    self.run_plan(connection, command, args, plan);
                }
            }
            CommandKind::Databases(plan) => {
                let limits = self.context.shared.database_limits();
                self.run_plan(connection, command, args, |args, ops| {
                    plan(args, limits, ops)
                });
            }
            CommandKind::Compound(_)
            | CommandKind::Sequence(_)
            | CommandKind::Script(_)
            | CommandKind::Libraries(_) => {
                self.begin_long(connection, command, args, KeyTurns::ALL);
            }
            CommandKind::Blocking(blocking) => {
                self.begin_blocking(connection, (command, args), blocking);
            }
            CommandKind::Local(local) => local(&mut self.context, &mut connection.session, args),
            CommandKind::Deferred(local) => {
                let deferred = local(&mut self.context, &mut connection.session, args);
                connection.pending = deferred.map(Into::into);
            }
            CommandKind::Introspection(answer) => {
                answer(self.table.all(), args, &mut connection.writer());
            }
            CommandKind::Scan(from_key) => self.scan(connection, command, args, from_key),
            CommandKind::Keys(_) => self.begin_keys(connection, command, args),
            CommandKind::Multi => block::multi(connection),
            CommandKind::Exec => self.exec(connection),
            CommandKind::Discard => block::discard(connection),
            CommandKind::Watch | CommandKind::WatchVersion => self.watch(connection, command, args),
            CommandKind::WatchAt => watch::watch_at(connection, args),
            CommandKind::Guard(_) => connection
                .writer()
                .error("ERR LOCK.GUARD without MULTI: it guards the block that it begins"),
            CommandKind::Unwatch => {
                connection.take_watches();
                connection.writer().ok();
            }
            CommandKind::Reset => self.reset(connection),
            CommandKind::SnapshotBegin => self.begin_snapshot(connection, command, args),
            CommandKind::SnapshotNext => self.next_snapshot_page(connection, args),
            CommandKind::SnapshotEnd => snapshot::end_snapshot(connection),
            CommandKind::Container => refusal::write_arity(command.name, &mut connection.writer()),
        }
    }

    /// Runs `RESET`.
    fn reset(&mut self, connection: &mut Connection) {
        connection.end_block();
        connection.snapshot = None;
        let session = &mut connection.session;
        let (registry, key) = (&self.context.shared.channels, session.key);
        let subscribers = &mut self.context.subscribers;
        subscribers.unsubscribe_all(registry, key, &mut session.subscriptions);
        session.note_subscriptions();
        self.context.end_monitor(key);
        session.monitors = false;
        session.client.monitors.store(false, Ordering::Relaxed);
        read_tracking::end_tracking(&self.context, session);
        session.database = 0;
        session.reads_stale = false;
        session.no_touch = false;
        session.replies = ReplyMode::On;
        session.set_protocol(resp::Protocol::Resp2);
        session.client.names.lock().name.clear();
        session.authenticated = self.context.shared.config.password.is_none();
        session.writer().status("RESET");
    }
}
