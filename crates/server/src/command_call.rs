//! A command with its arguments, kept until it executes.

use std::borrow::Cow;

use base::database;
use resp::{Args, Span};
use smallvec::SmallVec;

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

    /// Copies the arguments, its keys as those of a database; `None`: they are stored as they are.
    pub(crate) fn qualified(
        command: &'static CommandDefinition,
        args: Args<'_>,
        number: u16,
    ) -> Option<CommandCall> {
        let mut keys: SmallVec<[usize; 8]> = command.keys.indexes(args).collect();
        if number == 0
            && !keys
                .iter()
                .any(|at| database::may_be_qualified(args.at(*at)))
        {
            return None;
        }
        keys.sort_unstable();
        let map = |at, arg| match keys.binary_search(&at) {
            Ok(_) => Cow::Owned(database::qualified(number, arg)),
            Err(_) => Cow::Borrowed(arg),
        };
        Some(CommandCall::mapped(command, args, map))
    }

    /// Copies the arguments, but those at these places, for which it has others.
    pub(crate) fn replacing(
        command: &'static CommandDefinition,
        args: Args<'_>,
        others: &[(usize, Vec<u8>)],
    ) -> CommandCall {
        CommandCall::mapped(command, args, |at, arg| {
            let other = others.iter().find(|(place, _)| *place == at);
            other.map_or(Cow::Borrowed(arg), |(_, other)| Cow::Owned(other.clone()))
        })
    }

    /// Copies a call with qualified keys, with the keys as its client has given them.
    pub(crate) fn for_client(&self) -> CommandCall {
        CommandCall::mapped(self.command, self.args(), |_, arg| {
            Cow::Borrowed(database::client_key(arg))
        })
    }

    fn mapped<'a>(
        command: &'static CommandDefinition,
        args: Args<'a>,
        map: impl Fn(usize, &'a [u8]) -> Cow<'a, [u8]>,
    ) -> CommandCall {
        let (mut bytes, mut spans) = (Vec::new(), Vec::with_capacity(args.len()));
        for (at, arg) in args.iter().enumerate() {
            let arg = map(at, arg);
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

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans) + size_of::<CommandCall>()
    }

    /// Returns the bytes of its arguments, and the places of these.
    pub(crate) fn into_request(self) -> (Vec<u8>, Vec<Span>) {
        (self.bytes.into_vec(), self.spans.into_vec())
    }

    /// Returns the first of the keys that it names.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        let args = self.args();
        let mut keys = self.command.keys.indexes(args);
        keys.next().map(|at| args.at(at))
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}
