//! The commands of the nodes, and the positions of their keys.
//!
//! The proxy asks the nodes (`COMMAND`), so it knows the commands of their version, including those of
//! modules. This module has what that reply does not tell: where the keys of commands with movable keys
//! are (`keys`), and how the proxy treats certain commands (`special`).

mod keys;
pub(crate) mod lock;
mod special;
#[cfg(test)]
pub(crate) mod tests;

use crate::error::ProxyError;
use std::collections::HashMap;

use resp::{Args, Value};

use keys::{Keys, moving_keys};
use special::{BLOCK, ONE_NODE, special};
pub(crate) use special::{KeySplit, LOCAL, LockCommand, ReplyReduction, Special};

/// A command.
#[derive(Clone, Debug)]
pub(crate) struct NodeCommand {
    /// In lower case; the words of a two-word command are joined by `|`.
    pub(crate) name: Box<str>,
    /// How many arguments it takes, including its name; negative: at least that many.
    arity: i64,
    /// It changes nothing.
    pub(crate) read_only: bool,
    keys: Keys,
    pub(crate) special: Special,
    subcommands: Vec<NodeCommand>,
}

impl NodeCommand {
    /// Returns `true` if it can have this many arguments.
    pub(crate) fn takes(&self, args: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => args == exactly,
            Err(_) => args as i64 >= -self.arity,
        }
    }

    /// Returns the index of its key, if it has exactly one, at any position. For modules' commands the
    /// nodes may report fewer arguments than this index.
    pub(crate) fn only_key(&self, args: usize) -> Option<usize> {
        self.keys.only(args)
    }

    /// Returns `true` if the command's author, not the node, decides its replies.
    pub(crate) fn is_script(&self) -> bool {
        ["eval", "fcall", "tfcall"]
            .iter()
            .any(|begin| self.name.starts_with(begin))
    }

    /// Returns the indexes of the keys among the arguments.
    pub(crate) fn keys(&self, args: Args<'_>) -> Vec<usize> {
        self.keys.among(args)
    }

    /// Returns `true` if the second word names none of the commands that this one consists of.
    pub(crate) fn lacks(&self, args: Args<'_>) -> bool {
        !self.subcommands.is_empty() && args.len() > 1 && self.sub(args).is_none()
    }

    /// Returns the command that the first two words name, if this one has subcommands.
    fn sub(&self, args: Args<'_>) -> Option<&NodeCommand> {
        let word = args.get(1)?;
        self.subcommands.iter().find(|command| {
            let name = command.name.rsplit('|').next().unwrap_or_default();
            name.as_bytes().eq_ignore_ascii_case(word)
        })
    }
}

/// All commands, found by name.
#[derive(Clone, Debug)]
pub(crate) struct Commands(HashMap<Box<[u8]>, NodeCommand, foldhash::fast::RandomState>);

/// The longest name of a command.
const LONGEST: usize = 64;

impl Commands {
    /// Reads the commands from a node's whole reply to `COMMAND`.
    ///
    /// # Errors
    /// Returns an error that describes the fault in the reply.
    pub(crate) fn read(reply: &[u8]) -> Result<Commands, ProxyError> {
        let list = match Value::decode(reply) {
            Ok(Value::Array(list)) => list,
            Ok(Value::Error(text)) => {
                return Err(ProxyError::refused(String::from_utf8_lossy(&text)));
            }
            _ => return Err(ProxyError::malformed("its reply to COMMAND is not a list")),
        };
        let mut commands = Commands(HashMap::default());
        for command in list.iter().filter_map(command) {
            commands.add(command);
        }
        for name in LOCAL.iter().chain(BLOCK) {
            // The proxy has these even if the nodes do not have them.
            if commands.find_name(name.as_bytes()).is_none() {
                commands.add(NodeCommand {
                    name: (*name).into(),
                    arity: -1,
                    read_only: true,
                    keys: Keys::None,
                    special: special(name),
                    subcommands: Vec::new(),
                });
            }
        }
        let guard = commands.find_name(b"lock.guard").map_or(
            Some(("lock.guard", 3, Special::Refused(lock::NO_GUARD))),
            |_| None,
        );
        let own = lock::LOCK_COMMANDS
            .iter()
            .map(|&(name, arity, kind)| (name, arity, Special::Lock(kind)));
        for (name, arity, special) in own.chain(guard) {
            commands.add(NodeCommand {
                name: name.into(),
                arity,
                read_only: false,
                keys: Keys::None,
                special,
                subcommands: Vec::new(),
            });
        }
        Ok(commands)
    }

    fn add(&mut self, command: NodeCommand) {
        self.0.insert(command.name.as_bytes().into(), command);
    }

    fn find_name(&self, name: &[u8]) -> Option<&NodeCommand> {
        let mut lower = [0; LONGEST];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.0.get(&*lower)
    }

    /// Returns the command that these arguments call, in upper or lower case; for a command of two
    /// words, its subcommand.
    pub(crate) fn find(&self, args: Args<'_>) -> Option<&NodeCommand> {
        let command = self.find_name(args.get(0)?)?;
        if command.subcommands.is_empty() {
            return Some(command);
        }
        Some(command.sub(args).unwrap_or(command))
    }
}

/// Reads one element of the reply to `COMMAND`: name, arity, flags, first key, last key, step, and
/// since Redis 7 categories, tips, key specifications and subcommands.
fn command(value: &Value) -> Option<NodeCommand> {
    let Value::Array(fields) = value else {
        return None;
    };
    let name = String::from_utf8(bytes(fields.first()?)?).ok()?;
    let name = name.to_ascii_lowercase();
    let number = |at: usize| match fields.get(at) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    };
    let flags = match fields.get(2)? {
        Value::Array(flags) | Value::Set(flags) => flags.iter().filter_map(bytes).collect(),
        _ => Vec::new(),
    };
    let has = |flag: &str| flags.iter().any(|one| one == flag.as_bytes());
    let subcommands = match fields.get(9) {
        Some(Value::Array(list) | Value::Set(list)) => list.iter().filter_map(command).collect(),
        _ => Vec::new(),
    };
    let first = usize::try_from(number(3)).ok()?;
    let subcommands = match (&*name, subcommands.is_empty()) {
        // Before version 7 nodes do not report them.
        ("script", true) => SCRIPT.iter().map(|name| subcommand(name)).collect(),
        _ => subcommands,
    };
    let range = Keys::Range {
        first,
        last: number(4),
        step: usize::try_from(number(5)).unwrap_or(1),
    };
    let keys = moving_keys(&name).unwrap_or(if first == 0 { Keys::None } else { range });
    let special = match special(&name) {
        Special::None if has("blocking") => Special::Waits,
        Special::None if has("admin") => Special::Refused(ONE_NODE),
        // Some clients read settings first (redis-benchmark does); any node returns its own.
        Special::Refused(_) if name == "config|get" => Special::None,
        special => special,
    };
    Some(NodeCommand {
        arity: number(1),
        read_only: has("readonly"),
        keys,
        special,
        subcommands,
        name: name.into(),
    })
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bulk(bytes) | Value::Status(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// The subcommands of `SCRIPT`.
const SCRIPT: &[&str] = &[
    "script|load",
    "script|flush",
    "script|exists",
    "script|debug",
    "script|kill",
];

/// Returns a subcommand without keys which the nodes do not report.
fn subcommand(name: &str) -> NodeCommand {
    NodeCommand {
        name: name.into(),
        arity: -2,
        read_only: false,
        keys: Keys::None,
        special: special(name),
        subcommands: Vec::new(),
    }
}
