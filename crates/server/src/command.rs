//! Commands: what each is called, what it takes, and how it runs.
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
/// Answers by itself, at the end of the connection's output.
pub(crate) type Local = fn(&mut Context, &mut Connection, Args<'_>);

/// How a command runs.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// By operations of the store.
    Store(Plan),
    /// By operations whose first ones are preconditions, each on one key: if one is not met, the
    /// answer is 0. In a block that must not abort the others.
    AllOrNothing(Plan),
    /// Without the store's transactions.
    Local(Local),
    /// `SCAN`, which goes on from a remembered position.
    Scan,
    /// `KEYS`, which runs in slices.
    Keys,
    /// Commands that begin, end or give up a block.
    Multi,
    Exec,
    Discard,
    Watch,
    /// `WATCH.VERSION`, which tells the versions that `WATCH` would have seen.
    WatchVersion,
    /// `WATCH.AT`, which watches keys as of versions that were told.
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

/// A property of a command, as `COMMAND INFO` shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);
    pub(crate) const WRITE: Flags = Flags(1);
    pub(crate) const READ: Flags = Flags(2);
    /// Refused when memory is short.
    pub(crate) const NEEDS_MEMORY: Flags = Flags(4);
    pub(crate) const ADMIN: Flags = Flags(8);
    pub(crate) const FAST: Flags = Flags(16);
    /// Allowed before authentication.
    pub(crate) const NO_AUTH: Flags = Flags(32);
    /// Refused in a block.
    pub(crate) const NO_MULTI: Flags = Flags(64);
    /// Runs at once even in a block.
    pub(crate) const IMMEDIATE: Flags = Flags(128);

    const NAMES: [(Flags, &'static str); 7] = [
        (Flags::WRITE, "write"),
        (Flags::READ, "readonly"),
        (Flags::NEEDS_MEMORY, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::NO_MULTI, "no_multi"),
    ];

    pub(crate) const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    #[inline]
    pub(crate) const fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }

    /// The names of the flags that are set.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter(move |(flag, _)| self.has(*flag))
            .map(|(_, name)| name)
    }
}

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

    /// The indexes of the keys among `args` arguments.
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

/// A command.
pub(crate) struct Command {
    /// In lower case; the words of a two-word command are joined by `|`.
    pub(crate) name: &'static str,
    /// How many arguments it takes, its name included; negative: at least so many.
    pub(crate) arity: i32,
    pub(crate) flags: Flags,
    pub(crate) keys: Keys,
    pub(crate) run: Run,
    pub(crate) group: &'static str,
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
}

/// All commands, found by name.
pub(crate) struct Table {
    slots: Vec<Option<&'static Command>>,
}

/// Slots of the table: a power of two, several times the number of commands.
const SLOTS: usize = 1024;

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// The table.
pub(crate) fn table() -> &'static Table {
    &TABLE
}

impl Table {
    fn new() -> Table {
        let mut slots = vec![None; SLOTS];
        for command in crate::commands::all() {
            let mut slot = hash(command.name.as_bytes());
            while slots[slot].is_some() {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = Some(command);
        }
        Table { slots }
    }

    /// The command with this name, in any case.
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

    /// The subcommand of `container` with this name, in any case.
    pub(crate) fn find_sub(container: &'static Command, name: &[u8]) -> Option<&'static Command> {
        let word = container.name.len() + 1;
        container
            .subcommands
            .iter()
            .find(|command| command.name.as_bytes()[word..].eq_ignore_ascii_case(name))
    }
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
        for command in crate::commands::all() {
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
