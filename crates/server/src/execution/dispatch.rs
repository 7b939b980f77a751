//! How each kind of command runs.

use resp::Args;

use super::executor::Executor;
use super::{block, snapshot, watch};
use crate::command::{Command, Run};
use crate::connection::Connection;
use crate::refusal;
use crate::session::ReplyMode;

impl Executor {
    /// Runs a command. Its reply is at the end of the connection's output afterwards, or the
    /// connection has it as its pending command.
    #[inline]
    pub(super) fn run(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) {
        match command.run {
            Run::Store(plan) | Run::AllOrNothing(plan) => {
                self.run_plan(connection, command, args, plan);
            }
            Run::Local(local) => local(&mut self.context, &mut connection.session, args),
            Run::Deferred(local) => {
                let deferred = local(&mut self.context, &mut connection.session, args);
                connection.pending = deferred.map(Into::into);
            }
            Run::Introspection(answer) => {
                answer(self.table.all(), args, &mut connection.writer());
            }
            Run::Scan(from_key) => self.scan(connection, command, args, from_key),
            Run::Keys(_) => self.begin_keys(connection, command, args),
            Run::Multi => block::multi(connection),
            Run::Exec => self.exec(connection),
            Run::Discard => block::discard(connection),
            Run::Watch | Run::WatchVersion => self.watch(connection, command, args),
            Run::WatchAt => watch::watch_at(connection, args),
            Run::Guard(_) => connection
                .writer()
                .error("ERR LOCK.GUARD without MULTI: it guards the block that it begins"),
            Run::Unwatch => {
                connection.watches.clear();
                connection.writer().ok();
            }
            Run::Reset => self.reset(connection),
            Run::SnapshotBegin => self.begin_snapshot(connection, command, args),
            Run::SnapshotNext => self.next_snapshot_page(connection, args),
            Run::SnapshotEnd => snapshot::end_snapshot(connection),
            Run::Container => refusal::write_arity(command.name, &mut connection.writer()),
        }
    }

    /// Runs `RESET`.
    fn reset(&mut self, connection: &mut Connection) {
        connection.end_block();
        connection.snapshot = None;
        let session = &mut connection.session;
        session.reads_stale = false;
        session.replies = ReplyMode::On;
        session.set_protocol(resp::Protocol::Resp2);
        session.client.names.lock().name.clear();
        session.authenticated = self.context.shared.config.password.is_none();
        session.writer().status("RESET");
    }
}
