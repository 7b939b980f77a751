//! A command with its arguments, kept until it executes.

use std::borrow::Cow;

use base::database;
use resp::{Args, Span};

use crate::command::CommandDefinition;

/// See the module's description.
pub(crate) struct CommandCall {
    pub(crate) command: &'static CommandDefinition,
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl CommandCall {
    /// Copies the arguments.
    pub(crate) fn new(command: &'static CommandDefinition, args: Args<'_>) -> CommandCall {
        let mut bytes = Vec::with_capacity(args.total_bytes());
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.iter() {
            spans.push(Span::new(bytes.len(), arg.len()));
            bytes.extend_from_slice(arg);
        }
        CommandCall {
            command,
            bytes: bytes.into(),
            spans: spans.into(),
        }
    }

    /// Copies the arguments, its keys as those of a database.
    pub(crate) fn qualified(
        command: &'static CommandDefinition,
        args: Args<'_>,
        number: u16,
    ) -> CommandCall {
        let (mut bytes, mut spans) = (Vec::new(), Vec::with_capacity(args.len()));
        for (at, arg) in args.iter().enumerate() {
            let is_key = command.keys.indexes(args).any(|index| index == at);
            let arg = match is_key {
                true => Cow::Owned(database::qualified(number, arg)),
                false => Cow::Borrowed(arg),
            };
            spans.push(Span::new(bytes.len(), arg.len()));
            bytes.extend_from_slice(&arg);
        }
        CommandCall {
            command,
            bytes: bytes.into(),
            spans: spans.into(),
        }
    }

    /// Returns the memory that a call with these arguments takes, in bytes.
    pub(crate) fn size_of(args: Args<'_>) -> usize {
        args.total_bytes() + args.len() * size_of::<Span>() + size_of::<CommandCall>()
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}
