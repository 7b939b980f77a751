//! The definition of a command: its properties, and the function that turns its arguments into what is
//! executed. Commands are data: each is a row that the macro [`commands`] reads.
//!
//! | column | what it says |
//! |---|---|
//! | name | in lower case; the words of a two-word command are joined by a bar |
//! | arity | how many arguments it takes, its name included; negative: at least so many |
//! | flags | those of `COMMAND INFO`; `immediate`, which has it run at once in a block; `subscriber`, which has it run on a connection with subscriptions; `may_replicate`, which has it treated as a write when writes are paused, and in scripts that only read; `whole_value`, which says that its time depends on the length of a value that its reply does not show |
//! | keys | where its keys are, and what it does with them: Redis's flags of key specifications |
//! | categories | those of access control lists that do not follow from the flags |
//! | tips | what clients of a cluster should know; see below |
//! | since | the release of Redis that brought it; of Kumiki for its own |
//! | complexity | in the size of its arguments or of what it works on |
//! | kind | how it runs; of a command of two words also the second words |
//! | summary | what it does or answers |
//!
//! A command that touches the store is written once, as a *plan*: its arguments become operations
//! and a [`Render`] that turns their replies into RESP. Alone it is one transaction; in a `MULTI`
//! block its operations join those of the others. Commands that do not touch the store are *local*: a
//! function of the client's session and the server's state.
//!
//! Commands that concern one node's part of the keys have tips, so that clients of a cluster ask all
//! nodes. Those of several keys do not say that they can be split: a node that gets them whole
//! executes them atomically.

mod flags;
mod key_positions;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base::Op;
use resp::{Args, Writer};
use smallvec::SmallVec;

pub(crate) use flags::{CATEGORIES, CommandFlags};
pub(crate) use key_positions::KeyPositions;

pub(crate) use crate::compound_stop::CompoundStop;

use crate::background_job::BackgroundJob;
use crate::blocked_clients::AwaitedKind;
use crate::cursors::Cursors;
use crate::database_selection::DatabaseLimits;
use crate::function_libraries::FunctionLibraries;
use crate::key_walk::KeyWalk;
use crate::refusal::Refusal;
use crate::render::Render;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use crate::transaction_keys::TransactionKeys;
use crate::working_set::WorkingSet;

/// Operations of a plan; four fit without allocating.
pub(crate) type Ops<'a> = SmallVec<[Op<'a>; 4]>;
/// How the replies of planned operations are written, or why the arguments are refused.
pub(crate) type Planned<'a> = Result<Render<'a>, Refusal>;
/// Turns arguments into operations.
pub(crate) type Plan = for<'a> fn(Args<'a>, &mut Ops<'a>) -> Planned<'a>;
/// As [`Plan`], of a command that names databases.
pub(crate) type DatabasesPlan = for<'a> fn(Args<'a>, DatabaseLimits, &mut Ops<'a>) -> Planned<'a>;
/// Executes a command on the keys of its arguments, which the set has, and writes its reply. The keys are
/// qualified (`base::database`).
pub(crate) type Compound =
    fn(Args<'_>, &mut WorkingSet, &mut Writer<'_>) -> Result<(), CompoundStop>;
/// As [`Compound`], of a command that only executes operations on its keys' values: no values are copied for it
/// where that can be avoided.
pub(crate) type Sequence =
    fn(Args<'_>, &mut TransactionKeys<'_, '_>, &mut Writer<'_>) -> Result<(), CompoundStop>;
/// Executes a command on the libraries of functions, which it may change, and writes its reply.
pub(crate) type LibraryCommand = fn(
    &RuntimeContext,
    Args<'_>,
    &mut Arc<FunctionLibraries>,
    &mut Writer<'_>,
) -> Result<(), Refusal>;
/// Finds the key that a [`PlanFromKey`] needs.
pub(crate) type FindKey = fn(Args<'_>, &Cursors) -> Result<Arc<[u8]>, Refusal>;
/// Answers without the store, at the end of the session's output.
pub(crate) type Local = fn(&mut RuntimeContext, &mut ClientSession, Args<'_>);
/// As [`Local`], of a command whose answer may come later.
pub(crate) type DeferredLocal =
    fn(&mut RuntimeContext, &mut ClientSession, Args<'_>) -> Option<DeferredAnswer>;
/// Answers from the table of commands.
pub(crate) type Introspection = fn(&'static [CommandDefinition], Args<'_>, &mut Writer<'_>);

/// How a command runs.
#[derive(Clone, Copy)]
pub(crate) enum CommandKind {
    /// By operations of the store.
    Store(Plan),
    /// By operations whose first ones are preconditions, each on one key: if one is not met, the
    /// answer is 0. In a block, an unmet precondition must not abort the other commands.
    AllOrNothing(Plan),
    /// By operations, as [`CommandKind::Store`], of a command that names databases.
    Databases(DatabasesPlan),
    /// By a function on what its keys have, which are read first: a transaction in several steps.
    Compound(Compound),
    /// By operations on its keys, of which later ones depend on the replies to earlier ones.
    Sequence(Sequence),
    /// As `Sequence`, of a command that waits if its keys have nothing for it.
    Blocking(BlockingCommand),
    /// By a script, which is one transaction of all the keys that it touches.
    Script(ScriptCommand),
    /// By a function on the libraries of functions: a transaction in several steps.
    Libraries(LibraryCommand),
    /// `SCAN`: by operations from a remembered position on.
    Scan(PlanFromKey),
    /// `KEYS`: alone it walks a snapshot in slices; in a block it is one operation.
    Keys(PlanFromKey),
    /// Without the store's transactions.
    Local(Local),
    /// As `Local`, of a command whose answer may come later. None of these is allowed in a block but
    /// those that then answer at once.
    Deferred(DeferredLocal),
    /// By the table of commands.
    Introspection(Introspection),
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
    Guard(Plan),
    /// `RESET`, which ends all that belongs to the connection.
    Reset,
    /// `KUMIKI.SNAPSHOT`, whose view belongs to the connection.
    SnapshotBegin,
    SnapshotNext,
    SnapshotEnd,
    /// Holds commands that have two words.
    Container,
}

impl CommandKind {
    /// Returns `true` if such a command, in a block, runs as a long transaction.
    pub(crate) fn is_long(self) -> bool {
        match self {
            CommandKind::Blocking(blocking) => blocking.plan.is_none(),
            CommandKind::Compound(_)
            | CommandKind::Sequence(_)
            | CommandKind::Script(_)
            | CommandKind::Libraries(_) => true,
            _ => false,
        }
    }

    /// Returns the plan of a command that runs by operations, where it does not wait.
    pub(crate) fn plan(self) -> Option<Plan> {
        match self {
            CommandKind::Store(plan) | CommandKind::AllOrNothing(plan) => Some(plan),
            CommandKind::Blocking(blocking) => blocking.plan,
            _ => None,
        }
    }
}

/// A command that waits until one of its keys has something for it. In a block, and in a script, it does not
/// wait.
#[derive(Clone, Copy)]
pub(crate) struct BlockingCommand {
    /// Executes it where it does not wait, if it needs no transaction in several steps.
    pub(crate) plan: Option<Plan>,
    /// Checks the arguments; `None`: with these it does not wait.
    pub(crate) terms: fn(Args<'_>) -> Result<Option<WaitTerms>, Refusal>,
    /// Executes it, as [`Sequence`]. It looks only at keys that the turns have, and passes over those of another
    /// type unless it looks for the first time. If there is nothing, it writes the reply that says so.
    pub(crate) execute: fn(
        Args<'_>,
        &KeyTurns,
        &mut TransactionKeys<'_, '_>,
        &mut Writer<'_>,
    ) -> Result<WaitFinding, CompoundStop>,
}

/// How a command waits.
pub(crate) struct WaitTerms {
    pub(crate) awaits: AwaitedKind,
    /// `None`: for ever.
    pub(crate) timeout: Option<Duration>,
    /// Where the keys that it waits for are among the arguments.
    pub(crate) keys: Range<usize>,
}

/// The keys at which a command that waits may look.
pub(crate) struct KeyTurns {
    /// It has not waited yet.
    pub(crate) is_first: bool,
    /// `None`: all keys.
    pub(crate) keys: Option<Vec<Box<[u8]>>>,
}

impl KeyTurns {
    /// All keys, of a command that has not waited.
    pub(crate) const ALL: KeyTurns = KeyTurns {
        is_first: true,
        keys: None,
    };

    /// Returns `true` if a key, as it is stored, is among them.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        let mut keys = self.keys.iter().flatten();
        self.keys.is_none() || keys.any(|own| **own == *key)
    }
}

/// What a command that waits has found.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum WaitFinding {
    Found,
    Nothing,
    /// Nothing. When it executes again, it has other arguments at these places: what they meant this time (`$` of
    /// `XREAD`).
    NothingYet(Vec<(usize, Vec<u8>)>),
}

/// A command that runs a script.
#[derive(Clone, Copy)]
pub(crate) struct ScriptCommand {
    pub(crate) source: ScriptSource,
    /// The script must not write.
    pub(crate) reads_only: bool,
}

/// What names the script, in the first argument.
#[derive(Clone, Copy)]
pub(crate) enum ScriptSource {
    Body,
    Checksum,
    /// The name of a function of a library.
    Function,
}

/// A plan that needs a key which is not among the arguments: where a scan continues, or its upper
/// bound. The key must live as long as the operations.
#[derive(Clone, Copy)]
pub(crate) struct PlanFromKey {
    /// Finds the key.
    pub(crate) key: FindKey,
    /// Turns the arguments and the key into operations.
    pub(crate) plan: for<'a> fn(Args<'a>, &'a [u8], &mut Ops<'a>) -> Planned<'a>,
}

/// What the answer of a local command waits for.
pub(crate) enum DeferredAnswer {
    /// A job of another thread.
    Job(BackgroundJob),
    /// A walk through keys, in slices.
    KeyWalk(Box<KeyWalk>),
    /// A password was wrong: the answer comes at this time, since the server's start.
    WrongPassword { until: Duration },
}

/// A command: a row of the table.
#[derive(Clone, Copy)]
pub(crate) struct CommandDefinition {
    /// Among all commands, second words included; given when the table is made.
    pub(crate) number: usize,
    /// In lower case; the words of a two-word command are joined by `|`.
    pub(crate) name: &'static str,
    /// How many arguments it takes, its name included; negative: at least so many.
    pub(crate) arity: i32,
    pub(crate) flags: CommandFlags,
    pub(crate) keys: KeyPositions,
    /// The access to its keys, in words; if it differs, that to each key, separated by `;`, the last one for all
    /// that follow.
    pub(crate) access: &'static str,
    /// Categories that do not follow from its flags, in words.
    pub(crate) own_categories: &'static str,
    /// The tips for clients of a cluster, in words.
    pub(crate) tips: &'static str,
    pub(crate) kind: CommandKind,
    pub(crate) group: &'static str,
    /// The release that brought it.
    pub(crate) since: &'static str,
    pub(crate) complexity: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) subcommands: &'static [CommandDefinition],
}

impl CommandDefinition {
    #[inline]
    pub(crate) fn takes(&self, args: usize) -> bool {
        if self.arity >= 0 {
            args == self.arity as usize
        } else {
            args >= -self.arity as usize
        }
    }

    /// Returns `true` if it takes keys: names of shard channels have slots, and are none.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.first > 0 && self.access != "not_key"
    }

    /// Returns its accesses to keys: to the first, to the second, and so on; the last is that to all others.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = &'static str> {
        let parts = self.access.split(';').map(str::trim);
        parts.filter(|access| !access.is_empty())
    }

    /// Returns its categories of access control lists.
    pub(crate) fn categories(&self) -> impl Iterator<Item = &'static str> {
        let (flags, own) = (self.flags, self.own_categories);
        let fast = flags.has(CommandFlags::FAST);
        CATEGORIES.into_iter().filter(move |category| {
            let follows = match *category {
                "write" => flags.has(CommandFlags::WRITE),
                "read" => flags.has(CommandFlags::READ) && own != "scripting",
                "admin" | "dangerous" => flags.has(CommandFlags::ADMIN),
                "pubsub" => flags.has(CommandFlags::of("pubsub")),
                "fast" => fast,
                "slow" => !fast,
                _ => false,
            };
            follows || own.split_whitespace().any(|word| word == *category)
        })
    }

    /// Returns the subcommand with this name, in any case.
    pub(crate) fn subcommand(&'static self, name: &[u8]) -> Option<&'static CommandDefinition> {
        let word = self.name.len() + 1;
        self.subcommands
            .iter()
            .find(|command| command.name.as_bytes()[word..].eq_ignore_ascii_case(name))
    }
}

/// Makes commands of a group from rows of the table in the module's description.
macro_rules! commands {
    ($group:literal; $(
        $name:literal $arity:literal $flags:literal $keys:ident($access:literal)
        $categories:literal $tips:literal
        $since:literal $complexity:literal,
        $kind:expr $(, $subcommands:ident)?, $summary:literal;
    )*) => {
        &[$($crate::command::CommandDefinition {
            number: 0,
            name: $name,
            arity: $arity,
            flags: $crate::command::CommandFlags::of($flags),
            keys: $crate::command::KeyPositions::$keys,
            access: $access,
            own_categories: $categories,
            tips: $tips,
            kind: $kind,
            group: $group,
            since: $since,
            complexity: $complexity,
            summary: $summary,
            subcommands: $crate::command::only_list(&[$($subcommands)?]),
        }),*]
    };
}
pub(crate) use commands;

/// Returns the only list of second words, or an empty one.
pub(crate) const fn only_list(
    lists: &[&'static [CommandDefinition]],
) -> &'static [CommandDefinition] {
    match lists {
        [list, ..] => list,
        [] => &[],
    }
}
