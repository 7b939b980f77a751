//! The stream of commands, from received bytes to blocks for the target.
//!
//! Invariants:
//! 1. A block ends between two commands of the stream, and never within a transaction of the source.
//! 2. The position of a block is that of the last byte whose effects it has.

use std::time::Duration;

use resp::{Args, Limits, Parser};

use super::super::deadlines::now_ms;
use super::super::position::{ImportPosition, KEY};
use super::super::sending::too_long;
use super::super::target::TargetLimits;
use super::block::TargetBlock;
use super::receiver::{LostSource, StreamReceiver};
use super::settling::Settling;
use super::stream_command::{DeadlineRule, StreamCommand, adapt};

/// The most commands of a block, and about the most bytes.
const MOST_COMMANDS: usize = 4000;
const MOST_BYTES: usize = 1 << 20;
/// The number of bytes that are taken from the receiver at a time.
const READ: usize = 256 << 10;

/// See the module's description.
pub(super) struct CommandStream {
    /// Bytes that came and are not parsed.
    buffer: Vec<u8>,
    parser: Parser,
    /// The target's limits.
    limits: TargetLimits,
    /// The offset of the last byte that is parsed, and the selected database.
    offset: u64,
    database: u64,
    block: TargetBlock,
    /// Where the block ends.
    end: (u64, u64),
    /// The transaction of the source that has begun.
    group: Option<TargetBlock>,
    has_exchange: bool,
    /// Nothing may be added to the block: an exchange of databases is alone in its transaction, since it cannot be in one
    /// with commands that read before they write.
    is_closed: bool,
    report_wanted: bool,
}

impl CommandStream {
    /// Goes on at a position, for a target with these limits.
    pub(super) fn new(position: &ImportPosition, limits: TargetLimits) -> CommandStream {
        CommandStream {
            buffer: Vec::new(),
            parser: Parser::new(),
            limits,
            offset: position.offset,
            database: position.database,
            block: TargetBlock::default(),
            end: (position.offset, position.database),
            group: None,
            has_exchange: false,
            is_closed: false,
            report_wanted: false,
        }
    }

    /// Returns what is to be applied; its end is [`CommandStream::end`].
    pub(super) fn block(&self) -> &TargetBlock {
        &self.block
    }

    /// Returns the offset, and the selected database, at the end of the block.
    pub(super) fn end(&self) -> (u64, u64) {
        self.end
    }

    /// Forgets the block: it is applied.
    pub(super) fn clear(&mut self) {
        self.block.clear();
        self.is_closed = false;
    }

    /// Returns `true` if the source has asked for a report since the last call.
    pub(super) fn take_report_wanted(&mut self) -> bool {
        std::mem::take(&mut self.report_wanted)
    }

    /// Adds to the block what was received. Waits up to `wait` for something if there is nothing.
    ///
    /// # Errors
    /// The connection has ended, after the last byte was taken; or a command cannot be applied.
    pub(super) fn fill(
        &mut self,
        receiver: &StreamReceiver,
        settling: &mut Option<Settling>,
        mut wait: Duration,
    ) -> Result<(), LostSource> {
        loop {
            self.parse(settling).map_err(LostSource::Refused)?;
            if self.is_full() {
                return Ok(());
            }
            if !self.block.is_empty() {
                wait = Duration::ZERO;
            }
            let at = self.buffer.len();
            self.buffer.resize(at + READ, 0);
            let read = receiver.read(&mut self.buffer[at..], wait);
            self.buffer
                .truncate(at + read.as_ref().copied().unwrap_or(0));
            if read? == 0 {
                return Ok(());
            }
        }
    }

    fn is_full(&self) -> bool {
        self.is_closed || self.block.commands() >= MOST_COMMANDS || self.block.len() >= MOST_BYTES
    }

    /// Parses what is there, and adds it to the block.
    fn parse(&mut self, settling: &mut Option<Settling>) -> Result<(), String> {
        let limits = Limits::default();
        let rule = DeadlineRule {
            now_ms: now_ms(),
            settled_from_ms: settling.as_ref().map(Settling::until_ms),
        };
        let mut begin = 0;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut parsed = Ok(());
        while parsed.is_ok() && !(self.is_full() && self.group.is_none()) {
            match self.parser.parse(&mut buffer[begin..], &limits) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let spans = std::mem::take(&mut self.parser);
                    let args = Args::new(&buffer[begin..begin + length], spans.spans());
                    let is_exchange = is_exchange(args) && self.group.is_none();
                    self.is_closed = is_exchange;
                    if is_exchange && !self.block.is_empty() {
                        // It is parsed again for the next block.
                        break;
                    }
                    self.offset += length as u64;
                    parsed = self.take(args, rule, settling);
                    self.parser = spans;
                    begin += length;
                }
                Err(error) => {
                    let mut text = b"the stream of the source: ".to_vec();
                    error.write_text(&mut text);
                    parsed = Err(String::from_utf8_lossy(&text).into_owned());
                }
            }
        }
        buffer.drain(..begin);
        self.buffer = buffer;
        if std::mem::take(&mut self.has_exchange)
            && let Some(settling) = settling
        {
            settling.walk_again();
        }
        parsed
    }

    /// Adds one command.
    fn take(
        &mut self,
        args: Args<'_>,
        rule: DeadlineRule,
        settling: &mut Option<Settling>,
    ) -> Result<(), String> {
        if !args.is_empty() {
            let added = self.add(args, rule, settling);
            added.map_err(|error| {
                let words = [Some(args.at(0)), args.get(1)].into_iter().flatten();
                let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
                format!("'{}' in the stream of the source: {error}", words.join(" "))
            })?;
        }
        if self.group.is_none() {
            self.end = (self.offset, self.database);
        }
        Ok(())
    }

    fn add(
        &mut self,
        args: Args<'_>,
        rule: DeadlineRule,
        settling: &mut Option<Settling>,
    ) -> Result<(), String> {
        match adapt(args, rule)? {
            StreamCommand::Ping => {}
            StreamCommand::GetAck => self.report_wanted = true,
            StreamCommand::Select(number) if number >= self.limits.databases => {
                return Err(format!(
                    "the target has {} databases: start it with a greater --databases",
                    self.limits.databases
                ));
            }
            StreamCommand::Select(number) => self.database = number,
            StreamCommand::Multi => self.group = Some(TargetBlock::default()),
            StreamCommand::Exec => {
                if let Some(mut group) = self.group.take() {
                    self.block.append(&mut group);
                }
            }
            StreamCommand::SwapDatabases => {
                let (first, second) = (args.get(1), args.get(2));
                let (first, second) = (first.unwrap_or_default(), second.unwrap_or_default());
                let block = self.group.as_mut().unwrap_or(&mut self.block);
                block.push_exchange(first, second);
                self.has_exchange = true;
            }
            StreamCommand::Write(command) => {
                if command.args[1..].iter().any(|arg| arg.as_ref() == KEY) {
                    return Err("the import keeps its position under this key".to_owned());
                }
                let longest = command.args.iter().map(|arg| arg.len() as u64).max();
                if let Some(longest) =
                    longest.filter(|&longest| longest > self.limits.longest_argument)
                {
                    return Err(too_long(longest, self.limits.longest_argument));
                }
                let block = self.group.as_mut().unwrap_or(&mut self.block);
                block.push(self.database, &command.args);
                if let (Some(settling), Some((database, key))) = (settling, command.shifted) {
                    settling.note(database.unwrap_or(self.database), key);
                }
            }
        }
        Ok(())
    }
}

fn is_exchange(args: Args<'_>) -> bool {
    args.get(0)
        .is_some_and(|name| name.eq_ignore_ascii_case(b"swapdb"))
}
