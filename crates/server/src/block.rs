//! `MULTI` blocks: queued commands that execute as one transaction, and `WATCH`, its
//! precondition. How they execute is in [`crate::execution`].
//!
//! Connections that several clients share cannot leave watches behind: `WATCH.VERSION` returns the
//! versions that `WATCH` would have seen, and `WATCH.AT` compares them right before the block.
//!
//! Invariants:
//! 1. `EXEC` and `DISCARD` end the watches, also when the block fails.
//! 2. Guards (`LOCK.GUARD`) are the first commands of a block, and have a name and a token: a block
//!    never executes without a guard that it was given.

use base::{Abort, Op, Reply, Version};
use resp::{Args, Span};

use crate::command::{Command, Flags, Ops, Run};
use crate::connection::Connection;
use crate::execution::Execution;
use crate::executor::Executor;
use crate::limits::Limits;
use crate::refusal::{self, Refusal};
use crate::render::Render;
use crate::task::Work;

/// Commands queued for `EXEC`.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) commands: Vec<Call>,
    bytes: usize,
    /// A command was refused, so that the block cannot execute.
    pub(crate) broken: bool,
    /// The last command went beyond the limits.
    pub(crate) broken_by_size: bool,
}

/// A command with its arguments, kept until it executes.
pub(crate) struct Call {
    pub(crate) command: &'static Command,
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl Block {
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command, whose bytes are copied.
    pub(crate) fn queue(&mut self, command: &'static Command, args: Args<'_>, limits: &Limits) {
        let size = args.total_bytes() + args.len() * size_of::<Span>() + size_of::<Call>();
        if self.bytes + size > limits.block_bytes || self.commands.len() >= limits.block_commands {
            self.broken = true;
            self.broken_by_size = true;
            return;
        }
        self.bytes += size;
        self.commands.push(Call::new(command, args));
    }

    /// Refuses a guard that is malformed or is not at the beginning of the block.
    pub(crate) fn check_guard(
        &self,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), &'static str> {
        if !is_guard(command) {
            return Ok(());
        }
        if !self.commands.iter().all(|call| is_guard(call.command)) {
            return Err("ERR LOCK.GUARD must come first in a block, before what it guards");
        }
        token(args.at(2)).map(drop)
    }

    /// Returns the memory that its commands take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if one of its commands writes.
    pub(crate) fn writes(&self) -> bool {
        let mut calls = self.commands.iter();
        calls.any(|call| call.command.flags.has(Flags::WRITE))
    }

    fn needs_memory(&self) -> bool {
        self.commands
            .iter()
            .any(|call| call.command.flags.has(Flags::NEEDS_MEMORY))
    }
}

fn is_guard(command: &Command) -> bool {
    matches!(command.run, Run::Guard)
}

/// Returns the token of a guard.
fn token(arg: &[u8]) -> Result<u64, &'static str> {
    let digits = arg.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(arg).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok())
        .ok_or("ERR the token of LOCK.GUARD is not a number from 0 to 18446744073709551615")
}

/// Returns the operation of `LOCK.GUARD`.
pub(crate) fn plan_guard<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Result<Render<'a>, Refusal> {
    let (lock, token) = (args.at(1), token(args.at(2)).map_err(Refusal::Text)?);
    ops.push(Op::Guard { lock, token });
    Ok(Render::Ok)
}

impl Call {
    /// Copies the arguments.
    pub(crate) fn new(command: &'static Command, args: Args<'_>) -> Call {
        let mut bytes = Vec::with_capacity(args.total_bytes());
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.iter() {
            spans.push(Span::new(bytes.len(), arg.len()));
            bytes.extend_from_slice(arg);
        }
        Call {
            command,
            bytes: bytes.into(),
            spans: spans.into(),
        }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

impl Executor {
    /// Executes `WATCH` or `WATCH.VERSION`: remembers the versions of the keys, or answers with
    /// them.
    pub(crate) fn watch(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) {
        if is_in_block(connection, command.name) {
            return;
        }
        let ops = watch_ops(args);
        if self.cluster.is_some() && self.leads_elsewhere(connection, command, args, &ops) {
            return;
        }
        let from = connection.output.position();
        let outcome = self.worker.execute(&ops, None, |replies, _| {
            connection.answer_watch(command, args, replies);
        });
        match outcome {
            Ok(epoch) if matches!(command.run, Run::WatchVersion) => {
                self.finish(connection, from, epoch);
            }
            // No observed value is shown, so there is nothing to wait for.
            Ok(_) => {}
            Err(Abort::Held { by }) => {
                self.park(connection, Work::Call(Call::new(command, args)), by);
            }
            Err(Abort::Elsewhere { leader }) => {
                let work = Work::Call(Call::new(command, args));
                self.redirect(connection, &ops, leader, work);
            }
            Err(abort) => refusal::abort(&abort, &mut connection.writer()),
        }
    }

    /// Executes `WATCH.AT`: watches keys that must have the given versions.
    pub(crate) fn watch_at(connection: &mut Connection, args: Args<'_>) {
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
            .for_each(|(key, version)| connection.note_watch(key, version));
        connection.writer().ok();
    }

    /// Executes `EXEC`: runs the block.
    pub(crate) fn exec(&mut self, connection: &mut Connection) {
        let Some(block) = connection.block.take() else {
            return connection.writer().error("ERR EXEC without MULTI");
        };
        connection.note_block();
        let watches = std::mem::take(&mut connection.watches);
        let mut writer = connection.writer();
        if block.broken {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return writer.error(text);
        }
        if block.needs_memory() && self.is_full(block.bytes) {
            let reason = refusal::OUT_OF_MEMORY;
            return writer.error(&format!(
                "EXECABORT Transaction discarded because of: {reason}"
            ));
        }
        let cursors = &self.context.shared.cursors;
        let execution = Box::new(Execution::new(block.commands, watches, cursors));
        self.execute_block(connection, execution);
    }
}

/// Returns the operations of `WATCH`.
pub(crate) fn watch_ops(args: Args<'_>) -> Ops<'_> {
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

impl Connection {
    /// Answers `WATCH` or `WATCH.VERSION`.
    pub(crate) fn answer_watch(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        replies: &[Reply<'_>],
    ) {
        let versions = replies.iter().filter_map(|reply| match reply {
            Reply::Version(version) => Some(*version),
            _ => None,
        });
        if matches!(command.run, Run::WatchVersion) {
            let mut writer = self.writer();
            writer.array(replies.len());
            return versions.for_each(|version| writer.bulk(text_of(version).as_bytes()));
        }
        for (key, version) in args.from(1).iter().zip(versions) {
            self.note_watch(key, version);
        }
        self.writer().ok();
    }

    /// Watches a key. A key that is watched already keeps the version that was seen first.
    fn note_watch(&mut self, key: &[u8], version: Version) {
        self.watches.entry(key.to_vec()).or_insert(version);
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

    #[test]
    fn tokens_are_plain_numbers() {
        assert_eq!(token(b"0"), Ok(0));
        assert_eq!(token(b"18446744073709551615"), Ok(u64::MAX));
        for text in ["", "-1", "+1", " 1", "1.0", "18446744073709551616", "x"] {
            assert!(token(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
