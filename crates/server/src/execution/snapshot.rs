//! `KUMIKI.SNAPSHOT`: a connection's snapshot is begun, read in pieces, and given back. The table in
//! [`crate::snapshots`] says what each command does.

use resp::Args;

use super::executor::Executor;
use crate::command::CommandDefinition;
use crate::connection::Connection;
use crate::limits::SLICE_KEYS;
use crate::pending_command::PendingCommand;
use crate::refusal;
use crate::snapshots::{ClientSnapshot, OpenSnapshot};

const NONE: &str = "ERR this connection has no snapshot: KUMIKI.SNAPSHOT BEGIN begins one";
const IS_OPEN: &str = "ERR this connection has a snapshot already: KUMIKI.SNAPSHOT END ends it";
const BAD_COUNT: &str = "ERR COUNT is a number from 1 on";

impl Executor {
    /// Executes `KUMIKI.SNAPSHOT BEGIN [MATCH pattern]`.
    pub(super) fn begin_snapshot(
        &mut self,
        connection: &mut Connection,
        command: &CommandDefinition,
        args: Args<'_>,
    ) {
        let pattern = match (args.len(), args.get(2), args.get(3)) {
            (2, ..) => None,
            (4, Some(word), Some(pattern)) if word.eq_ignore_ascii_case(b"match") => Some(pattern),
            _ => return connection.writer().error("ERR syntax error"),
        };
        if let Some(ClientSnapshot::Open(_)) = connection.snapshot {
            return connection.writer().error(IS_OPEN);
        }
        let stale = self.staleness(connection, command);
        if let Err(abort) = self.worker.check_view(stale) {
            return self.answer_elsewhere(connection, None, &abort);
        }
        let shared = &self.context.shared;
        let most = shared.config.limits.snapshots;
        let Some(permit) = shared.snapshots.take(most) else {
            return connection.writer().error(&format!(
                "ERR {most} snapshots are open, and no more may be: try again when one has ended"
            ));
        };
        let (partition, now) = (&shared.partition, self.context.now);
        let database = connection.session.database;
        let mut snapshot = Box::new(OpenSnapshot::new(partition, database, pattern, now, permit));
        let epoch = snapshot.view.epoch();
        snapshot.shown = match self.worker.epoch_of(epoch, stale) {
            Ok(epoch) => epoch,
            Err(abort) => return self.answer_elsewhere(connection, None, &abort),
        };
        let (from, shown) = (connection.session.output.position(), snapshot.shown);
        self.describe(&snapshot, connection);
        self.hold_reply(connection, from, shown);
        if !connection.session.output.is_error_at(from) {
            connection.snapshot = Some(ClientSnapshot::Open(snapshot));
        }
    }

    /// Writes the answer to `BEGIN`.
    fn describe(&self, snapshot: &OpenSnapshot, connection: &mut Connection) {
        let shared = &self.context.shared;
        let (partition, partitions) = match &shared.routes {
            None => (0, 1),
            Some(routes) => (
                routes.own.map_or(0, |own| i64::from(own.0)),
                routes.topology.partitions().len() as i64,
            ),
        };
        let fields = [
            ("epoch", snapshot.view.epoch().0 as i64),
            ("time_ms", snapshot.view.time_ms() as i64),
            (
                "keys",
                shared.partition.keys_of(connection.session.database) as i64,
            ),
            ("partition", partition),
            ("partitions", partitions),
        ];
        let mut writer = connection.writer();
        writer.map(fields.len());
        for (name, value) in fields {
            writer.bulk(name.as_bytes());
            writer.int(value);
        }
    }

    /// Executes `KUMIKI.SNAPSHOT NEXT [COUNT n]`, which answers in a turn of its own.
    pub(super) fn next_snapshot_page(&mut self, connection: &mut Connection, args: Args<'_>) {
        let most = match (args.len(), args.get(2), args.get(3)) {
            (2, ..) => SLICE_KEYS,
            (4, Some(word), Some(number)) if word.eq_ignore_ascii_case(b"count") => {
                match base::number::parse_int(number).map(usize::try_from) {
                    Some(Ok(number)) if number > 0 => number,
                    _ => return connection.writer().error(BAD_COUNT),
                }
            }
            _ => return connection.writer().error("ERR syntax error"),
        };
        match &mut connection.snapshot {
            Some(ClientSnapshot::Open(snapshot)) => {
                snapshot.last_used = self.context.now;
                connection.pending = Some(PendingCommand::SnapshotPage { most });
            }
            Some(ClientSnapshot::Exhausted) => {
                let mut writer = connection.writer();
                writer.array(2);
                writer.int(0);
                writer.array(0);
            }
            Some(ClientSnapshot::Expired(after)) => {
                let text = format!(
                    "ERR the snapshot was given up, because the client did not ask for more of it within \
                     {after:?}: begin another"
                );
                connection.writer().error(&text);
            }
            None => connection.writer().error(NONE),
        }
    }

    /// Answers a `NEXT` when its turn has come.
    pub(super) fn answer_snapshot_page(&mut self, connection: &mut Connection, most: usize) {
        let Some(ClientSnapshot::Open(snapshot)) = &mut connection.snapshot else {
            return connection.writer().error(NONE);
        };
        snapshot.last_used = self.context.now;
        let shown = snapshot.shown;
        if self.context.shared.partition.is_lost(shown) {
            // Its beginning was never confirmed: it may be that of a member that did not lead any
            // more.
            connection.snapshot = None;
            return connection.writer().raw(refusal::LEADERSHIP_LOST);
        }
        let page = snapshot.next(&mut self.worker, most);
        if !page.more {
            connection.snapshot = Some(ClientSnapshot::Exhausted);
        }
        let from = connection.session.output.position();
        let mut writer = connection.writer();
        writer.array(2);
        writer.int(i64::from(page.more));
        writer.array(page.entries);
        writer.raw(&page.body);
        self.hold_reply(connection, from, shown);
    }
}

/// Executes `KUMIKI.SNAPSHOT END`.
pub(super) fn end_snapshot(connection: &mut Connection) {
    connection.snapshot = None;
    connection.writer().ok();
}
