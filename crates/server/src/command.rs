//! The commands: their names, their arguments, and how they run.
//!
//! A command that touches the store is written once, as a *plan*: its arguments become operations
//! and a [`Render`](crate::render::Render) that turns their replies into RESP. Alone it is one
//! transaction; in a `MULTI` block its operations join those of the others. Commands that do not
//! touch the store are *local*: a function of the connection.

use std::sync::LazyLock;

use base::Op;
use resp::Args;
use smallvec::SmallVec;

use crate::connection::Connection;
use crate::refusal::Refusal;
use crate::render::Render;
use crate::shared::Context;

/// Operations of a plan; four fit without allocating.
pub(crate) type Ops<'a> = SmallVec<[Op<'a>; 4]>;
/// Turns arguments into operations.
pub(crate) type Plan = for<'a> fn(Args<'a>, &mut Ops<'a>) -> Result<Render<'a>, Refusal>;
/// Answers without the store, at the end of the connection's output.
pub(crate) type Local = fn(&mut Context, &mut Connection, Args<'_>);

/// How a command runs.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// By operations of the store.
    Store(Plan),
    /// By operations whose first ones are preconditions, each on one key: if one is not met, the
    /// answer is 0. In a block, an unmet precondition must not abort the other commands.
    AllOrNothing(Plan),
    /// Without the store's transactions.
    Local(Local),
    /// `SCAN`, which continues from a remembered position.
    Scan,
    /// `KEYS`, which runs in slices.
    Keys,
    /// Commands that begin, end or give up a block.
    Multi,
    Exec,
    Discard,
    Watch,
    /// `WATCH.VERSION`, which returns the versions that `WATCH` would have seen.
    WatchVersion,
    /// `WATCH.AT`, which watches keys at versions that the client gives.
    WatchAt,
    Unwatch,
    /// `LOCK.GUARD`, which begins a block.
    Guard,
    /// `KUMIKI.SNAPSHOT`, whose view belongs to the connection.
    BeginSnapshot,
    NextOfSnapshot,
    EndSnapshot,
    /// Holds commands that have two words.
    Container,
}

/// Properties of a command, as `COMMAND INFO` shows them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    pub(crate) const WRITE: Flags = Flags::of("write");
    pub(crate) const READ: Flags = Flags::of("readonly");
    /// Refused when memory is short.
    pub(crate) const NEEDS_MEMORY: Flags = Flags::of("denyoom");
    /// Allowed before authentication.
    pub(crate) const NO_AUTH: Flags = Flags::of("no_auth");
    pub(crate) const ADMIN: Flags = Flags::of("admin");
    /// Refused in a block.
    pub(crate) const NO_MULTI: Flags = Flags::of("no_multi");
    /// Runs at once even in a block. Clients do not see this one.
    pub(crate) const IMMEDIATE: Flags = Flags::of("immediate");

    /// The words for flags, in the order in which Redis shows them. The server does not act on some
    /// of them: they tell clients when Redis would accept the command.
    const NAMES: [&'static str; 14] = [
        "write",
        "readonly",
        "denyoom",
        "admin",
        "noscript",
        "loading",
        "stale",
        "skip_slowlog",
        "fast",
        "no_auth",
        "no_async_loading",
        "no_multi",
        "allow_busy",
        "immediate",
    ];

    /// Returns the flags that these words name.
    ///
    /// # Panics
    /// Panics if a word names none, which for the table happens when it is compiled.
    pub(crate) const fn of(words: &str) -> Flags {
        let mut rest = words.as_bytes();
        let mut flags = 0;
        while !rest.is_empty() {
            let mut flag = 0;
            while !begins_with_word(rest, Self::NAMES[flag].as_bytes()) {
                flag += 1;
            }
            flags |= 1 << flag;
            let (_, behind) = rest.split_at(Self::NAMES[flag].len());
            rest = match behind {
                [b' ', next @ ..] => next,
                _ => behind,
            };
        }
        Flags(flags)
    }

    #[inline]
    pub(crate) const fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }

    /// Returns the names of the flags that are set and that clients see.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let flags = self.0 & !Self::IMMEDIATE.0;
        let names = Self::NAMES.into_iter().enumerate();
        names.filter_map(move |(at, name)| (flags & 1 << at != 0).then_some(name))
    }
}

/// Returns `true` if `text` is `word`, or begins with it and a space.
const fn begins_with_word(text: &[u8], word: &[u8]) -> bool {
    if text.len() < word.len() || (text.len() > word.len() && text[word.len()] != b' ') {
        return false;
    }
    let mut at = 0;
    while at < word.len() {
        if text[at] != word[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Categories of access control lists, in Redis's order.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Where a command's keys stand among its arguments: `first` (0: it has none), `last` (negative:
/// from the end) and the `step` between them.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    pub(crate) first: usize,
    pub(crate) last: i32,
    pub(crate) step: usize,
}

impl Keys {
    pub(crate) const NONE: Keys = Keys {
        first: 0,
        last: 0,
        step: 0,
    };
    pub(crate) const ONE: Keys = Keys {
        first: 1,
        last: 1,
        step: 1,
    };
    pub(crate) const ALL: Keys = Keys {
        first: 1,
        last: -1,
        step: 1,
    };
    pub(crate) const PAIRS: Keys = Keys {
        first: 1,
        last: -1,
        step: 2,
    };

    /// Returns the indexes of the keys among `args` arguments.
    pub(crate) fn indexes(self, args: usize) -> impl Iterator<Item = usize> {
        let last = if self.last < 0 {
            args as i64 + i64::from(self.last)
        } else {
            self.last.into()
        };
        let end = if self.first == 0 {
            0
        } else {
            (last + 1).max(0) as usize
        };
        (self.first..end.min(args)).step_by(self.step.max(1))
    }
}

/// A command: a row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// Among all commands, second words included; given when the table is made.
    pub(crate) number: usize,
    /// In lower case; the words of a two-word command are joined by `|`.
    pub(crate) name: &'static str,
    /// How many arguments it takes, its name included; negative: at least so many.
    pub(crate) arity: i32,
    pub(crate) flags: Flags,
    pub(crate) keys: Keys,
    /// The access to its keys, in words.
    pub(crate) access: &'static str,
    /// Categories that do not follow from its flags, in words.
    pub(crate) own_categories: &'static str,
    /// The tips for clients of a cluster, in words.
    pub(crate) tips: &'static str,
    pub(crate) run: Run,
    pub(crate) group: &'static str,
    /// The release that brought it.
    pub(crate) since: &'static str,
    pub(crate) complexity: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) subcommands: &'static [Command],
}

impl Command {
    #[inline]
    pub(crate) fn takes(&self, args: usize) -> bool {
        if self.arity >= 0 {
            args == self.arity as usize
        } else {
            args >= -self.arity as usize
        }
    }

    /// Returns its categories of access control lists.
    pub(crate) fn categories(&self) -> impl Iterator<Item = &'static str> {
        let (flags, own) = (self.flags, self.own_categories);
        let fast = flags.has(Flags::of("fast"));
        CATEGORIES.into_iter().filter(move |category| {
            let follows = match *category {
                "write" => flags.has(Flags::WRITE),
                "read" => flags.has(Flags::READ),
                "admin" | "dangerous" => flags.has(Flags::ADMIN),
                "fast" => fast,
                "slow" => !fast,
                _ => false,
            };
            follows || own.split_whitespace().any(|word| word == *category)
        })
    }
}

/// All commands, found by name.
pub(crate) struct Table {
    commands: &'static [Command],
    /// How many there are, second words included.
    count: usize,
    slots: Vec<Option<&'static Command>>,
}

/// Slots of the table: a power of two, several times the number of commands.
const SLOTS: usize = 1024;

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// Returns the table of commands, which the first call builds.
pub(crate) fn table() -> &'static Table {
    &TABLE
}

impl Table {
    fn new() -> Table {
        let mut count = 0;
        let commands = numbered(crate::commands::rows(), &mut count);
        let mut slots = vec![None; SLOTS];
        for command in commands {
            let mut slot = hash(command.name.as_bytes());
            while slots[slot].is_some() {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = Some(command);
        }
        Table {
            commands,
            count,
            slots,
        }
    }

    /// Returns all commands.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Command> {
        self.commands.iter()
    }

    /// Returns all commands and their second words, by number.
    pub(crate) fn every(&self) -> impl Iterator<Item = &'static Command> {
        self.all()
            .flat_map(|command| std::iter::once(command).chain(command.subcommands))
    }

    /// Returns the number of commands, second words included.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the command with this name, in any case.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut slot = hash(name);
        while let Some(command) = self.slots[slot] {
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(command);
            }
            slot = (slot + 1) % SLOTS;
        }
        None
    }

    /// Returns the command with this name, which may have two words joined by `|`.
    pub(crate) fn named(&self, name: &[u8]) -> Option<&'static Command> {
        match name.iter().position(|&byte| byte == b'|') {
            Some(at) => Table::find_sub(self.find(&name[..at])?, &name[at + 1..]),
            None => self.find(name),
        }
    }

    /// Returns the subcommand of `container` with this name, in any case.
    pub(crate) fn find_sub(container: &'static Command, name: &[u8]) -> Option<&'static Command> {
        let word = container.name.len() + 1;
        container
            .subcommands
            .iter()
            .find(|command| command.name.as_bytes()[word..].eq_ignore_ascii_case(name))
    }
}

/// Returns the rows with their numbers, from `next` on. They live as long as the process.
fn numbered<'r>(
    rows: impl IntoIterator<Item = &'r Command>,
    next: &mut usize,
) -> &'static [Command] {
    let number = |row: &Command| {
        let number = *next;
        *next += 1;
        Command {
            number,
            subcommands: numbered(row.subcommands, next),
            ..*row
        }
    };
    let commands: Vec<Command> = rows.into_iter().map(number).collect();
    commands.leak()
}

/// Spreads names by their first eight letters and their length.
#[inline]
fn hash(name: &[u8]) -> usize {
    let mut word = [0; 8];
    let len = name.len().min(8);
    word[..len].copy_from_slice(&name[..len]);
    let folded = u64::from_le_bytes(word) | 0x2020_2020_2020_2020;
    let mixed = (folded ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in table().all() {
            let upper = command.name.to_ascii_uppercase();
            for name in [command.name, upper.as_str()] {
                assert_eq!(
                    table().find(name.as_bytes()).map(|c| c.name),
                    Some(command.name)
                );
            }
            for sub in command.subcommands {
                assert!(sub.name.starts_with(&format!("{}|", command.name)));
                let word = &sub.name[command.name.len() + 1..];
                assert!(Table::find_sub(command, word.as_bytes()).is_some());
            }
        }
        for name in ["", "ge", "gett", "nosuchcommand", "\u{0}\u{0}\u{0}"] {
            assert!(table().find(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn keys_are_where_they_should_be() {
        let indexes = |keys: Keys, args| keys.indexes(args).collect::<Vec<_>>();
        assert!(indexes(Keys::NONE, 3).is_empty());
        assert_eq!(indexes(Keys::ONE, 3), [1]);
        assert_eq!(indexes(Keys::ALL, 4), [1, 2, 3]);
        assert_eq!(indexes(Keys::PAIRS, 5), [1, 3]);
    }
}
