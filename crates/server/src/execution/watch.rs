//! `WATCH` and its kin: the preconditions of blocks.
//!
//! Connections that several clients share cannot leave watches behind: `WATCH.VERSION` returns the
//! versions that `WATCH` would have seen, and `WATCH.AT` compares them right before the block.

use base::{Abort, Op, Reply, Version, database};
use resp::Args;

use super::executor::Executor;
use crate::command::{CommandDefinition, CommandKind, Ops};
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::key_lookup::MANY_ARGUMENTS;
use crate::limits::SLICE_KEYS;
use crate::pending_command::{KeyWatch, PendingCommand, PendingTransaction};
use crate::refusal;

/// The memory of a watch besides its key, in bytes.
const WATCH_BYTES: usize = 64;

impl Executor {
    /// Executes `WATCH` or `WATCH.VERSION`: remembers the versions of the keys, or answers with
    /// them.
    pub(super) fn watch(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
    ) {
        if is_in_block(connection, command.name) {
            return;
        }
        let is_long = args.len() > MANY_ARGUMENTS && matches!(command.kind, CommandKind::Watch);
        if is_long && self.has_all_keys(command, args) {
            let call = CommandCall::new(command, args);
            return self.continue_watch(connection, Box::new(KeyWatch { call, next: 1 }));
        }
        let database = connection.session.database;
        let keys = database::qualified_keys(database, &watch_ops(args));
        let ops: Ops<'_> = database::qualify(database, watch_ops(args), &keys).collect();
        if self.cluster.is_some() && self.route_elsewhere(connection, command, args, &ops) {
            return;
        }
        let from = connection.session.output.position();
        let pending = || PendingTransaction::Call(CommandCall::new(command, args));
        let outcome = self.worker.execute(&ops, None, |replies, _| {
            answer_watch(connection, command, args, replies);
        });
        match outcome {
            Ok(epoch) if matches!(command.kind, CommandKind::WatchVersion) => {
                self.hold_reply(connection, from, epoch);
            }
            // No observed value is shown, so there is nothing to wait for.
            Ok(_) => {}
            Err(Abort::Held { by }) => self.wait_for_locks(connection, pending(), by),
            Err(Abort::Elsewhere { leader }) => {
                self.redirect(connection, &ops, leader, pending());
            }
            Err(abort) => refusal::write_abort(&abort, &mut connection.writer()),
        }
    }

    /// Watches the next slice of very many keys, and answers if that was the last one. A block sees that a key has
    /// changed since it was looked at, so that the keys need not be of one moment.
    pub(super) fn continue_watch(&mut self, connection: &mut Connection, mut watch: Box<KeyWatch>) {
        let (args, database) = (watch.call.args(), connection.session.database);
        let end = args.len().min(watch.next + SLICE_KEYS);
        let slice = args.range(watch.next - 1..end);
        let keys = database::qualified_keys(database, &watch_ops(slice));
        let ops: Ops<'_> = database::qualify(database, watch_ops(slice), &keys).collect();
        let outcome = self.worker.execute(&ops, None, |replies, _| {
            note_watches(connection, slice, replies);
        });
        match outcome {
            Ok(_) if end == args.len() => connection.writer().ok(),
            Ok(_) => {
                drop(ops);
                watch.next = end;
                connection.pending = Some(PendingCommand::Watch(watch));
            }
            Err(Abort::Held { by }) => {
                drop(ops);
                let pending = PendingTransaction::Watch(watch);
                self.wait_for_locks(connection, pending, by);
            }
            Err(Abort::Elsewhere { leader }) => {
                let call = CommandCall::new(watch.call.command, args);
                self.redirect(connection, &ops, leader, PendingTransaction::Call(call));
            }
            Err(abort) => refusal::write_abort(&abort, &mut connection.writer()),
        }
    }
}

/// Executes `WATCH.AT`: watches keys that must have the given versions.
pub(super) fn watch_at(connection: &mut Connection, args: Args<'_>) {
    if is_in_block(connection, "watch.at") {
        return;
    }
    if args.len().is_multiple_of(2) {
        let text = "ERR wrong number of arguments for 'watch.at' command";
        return connection.writer().error(text);
    }
    let pairs = (1..args.len()).step_by(2);
    let pairs = pairs.map(|at| Some((args.at(at), version_of(args.at(at + 1))?)));
    let Some(pairs) = pairs.collect::<Option<Vec<_>>>() else {
        let text = "ERR a version of WATCH.AT is none that WATCH.VERSION has told";
        return connection.writer().error(text);
    };
    pairs
        .into_iter()
        .for_each(|(key, version)| note_watch(connection, key, version));
    connection.writer().ok();
}

/// Returns the operations of `WATCH`.
fn watch_ops(args: Args<'_>) -> Ops<'_> {
    args.from(1).iter().map(|key| Op::Watch { key }).collect()
}

/// Refuses a `WATCH` in a block. Returns `true` if it did.
fn is_in_block(connection: &mut Connection, name: &str) -> bool {
    let is_in_block = connection.block.is_some();
    if is_in_block {
        let name = name.to_ascii_uppercase();
        let text = format!("ERR {name} inside MULTI is not allowed");
        connection.writer().error(&text);
    }
    is_in_block
}

/// Returns a version in the form of `WATCH.VERSION`: sixteen hexadecimal digits.
fn text_of(version: Version) -> String {
    format!("{:016x}", version.to_bits())
}

/// Parses the form that [`text_of`] writes.
fn version_of(text: &[u8]) -> Option<Version> {
    let bits = std::str::from_utf8(text)
        .ok()
        .and_then(|text| u64::from_str_radix(text, 16).ok())?;
    let version = Version::from_bits(bits);
    (text_of(version).as_bytes() == text).then_some(version)
}

/// Answers `WATCH` or `WATCH.VERSION`.
pub(super) fn answer_watch(
    connection: &mut Connection,
    command: &'static CommandDefinition,
    args: Args<'_>,
    replies: &[Reply<'_>],
) {
    if matches!(command.kind, CommandKind::WatchVersion) {
        let mut writer = connection.writer();
        writer.array(replies.len());
        return versions(replies).for_each(|version| writer.bulk(text_of(version).as_bytes()));
    }
    note_watches(connection, args, replies);
    connection.writer().ok();
}

fn versions(replies: &[Reply<'_>]) -> impl Iterator<Item = Version> {
    replies.iter().filter_map(|reply| match reply {
        Reply::Version(version) => Some(*version),
        _ => None,
    })
}

/// Watches the keys among the arguments, behind the first one.
fn note_watches(connection: &mut Connection, args: Args<'_>, replies: &[Reply<'_>]) {
    for (key, version) in args.from(1).iter().zip(versions(replies)) {
        note_watch(connection, key, version);
    }
}

/// Watches a key of the selected database. A key that is watched already keeps the version that was seen
/// first.
fn note_watch(connection: &mut Connection, key: &[u8], version: Version) {
    let key = database::qualified(connection.session.database, key);
    if !connection.watches.contains_key(&key) {
        connection.watched_bytes += key.len() + WATCH_BYTES;
        connection.watches.insert(key, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Tid;

    #[test]
    fn versions_come_back_and_nothing_else_is_one() {
        let tid = Tid::new(base::Epoch(7), 3);
        for version in [
            Version::present(tid),
            Version::absent(tid),
            Version::absent(Tid::ZERO),
        ] {
            assert_eq!(version_of(text_of(version).as_bytes()), Some(version));
        }
        for text in [
            "",
            "0",
            "+000000000000001",
            "00000000000000001",
            "000000000000000g",
            "000000000000000A",
        ] {
            assert_eq!(version_of(text.as_bytes()), None, "{text}");
        }
    }
}
