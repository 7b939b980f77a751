//! Which commands there are, and where their keys stand.
//!
//! The nodes are asked (`COMMAND`), so that the proxy knows the commands of the version that runs
//! there, those of its modules included. What that answer does not tell stands here: where the keys
//! of commands are whose keys move, and what the proxy does itself.

use std::collections::HashMap;

use base::number::parse_int;
use resp::{Args, Value};

use super::lock;

/// What the proxy does with a command, apart from what the nodes tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    /// To the node of its keys; if it has none, to any.
    None,
    /// Split into one for each part of its keys; how the replies are joined.
    Split(Split),
    /// To all nodes that have slots.
    Everywhere(Everywhere),
    /// Answered by the proxy.
    Local,
    /// Begins, ends or gives up a block, or watches.
    Block,
    /// About locks.
    Lock(LockCommand),
    /// May wait for something to happen: on a connection of the client's own.
    Waits,
    /// Not through a proxy.
    Refused(&'static str),
}

/// A command about locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockCommand {
    Acquire,
    Renew,
    Release,
    Info,
    /// Executed by the nodes, in a block.
    Guard,
}

/// How a command on several keys is split where the nodes do not do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Split {
    /// Values by key (`MGET`).
    Values,
    /// Keys, each with a value behind it (`MSET`).
    Pairs,
    /// A number that is added up (`DEL`).
    Sum,
}

/// How the replies of all nodes become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Everywhere {
    /// A number that is added up.
    Sum,
    /// Lists behind each other.
    Append,
    /// The first, if none is an error.
    First,
    /// One node after the other, by a cursor that names the node.
    Scan,
}

/// Where the keys of a command stand among its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keys {
    None,
    /// `first`, `last` (negative: from the end), and the step between them.
    Range {
        first: usize,
        last: i64,
        step: usize,
    },
    /// Their number stands at `count`, and they behind it; one more at `also`, if it is not 0.
    Counted {
        count: usize,
        also: usize,
    },
    /// In the first half of what is behind the word `STREAMS`, of all words that are options.
    Streams,
    /// One at 1, and one behind the last word `STORE` or `STOREDIST`, of all words that are options,
    /// which begin at `options`.
    Stored {
        options: usize,
    },
}

/// A command.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// In lower case; the words of a two-word command are joined by `|`.
    pub(crate) name: Box<str>,
    /// How many arguments it takes, its name included; negative: at least so many.
    arity: i64,
    /// It changes nothing.
    pub(crate) read_only: bool,
    keys: Keys,
    pub(crate) special: Special,
    subcommands: Vec<Command>,
}

impl Command {
    /// Whether it can have so many arguments.
    pub(crate) fn takes(&self, args: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => args == exactly,
            Err(_) => args as i64 >= -self.arity,
        }
    }

    /// The index of its key, if it has exactly one, wherever it stands.
    /// Of modules' commands the nodes may tell that they take fewer arguments than that.
    pub(crate) fn only_key(&self, args: usize) -> Option<usize> {
        match self.keys {
            Keys::Range { first, last, .. } if last == first as i64 && first < args => Some(first),
            _ => None,
        }
    }

    /// Whether its author decides what it answers, and not the node.
    pub(crate) fn is_script(&self) -> bool {
        ["eval", "fcall", "tfcall"]
            .iter()
            .any(|begin| self.name.starts_with(begin))
    }

    /// The indexes of the keys among the arguments.
    pub(crate) fn keys(&self, args: Args<'_>) -> Vec<usize> {
        let count = args.len();
        match self.keys {
            Keys::None => Vec::new(),
            Keys::Range { first, last, step } => {
                let last = if last < 0 { count as i64 + last } else { last };
                let end = usize::try_from(last + 1).unwrap_or(0).min(count);
                (first..end).step_by(step.max(1)).collect()
            }
            Keys::Counted { count: at, also } => {
                let number = args.get(at).and_then(parse_int);
                let number = number.and_then(|number| usize::try_from(number).ok());
                let end = at.saturating_add(1).saturating_add(number.unwrap_or(0));
                let also = (also > 0 && also < count).then_some(also);
                also.into_iter().chain(at + 1..end.min(count)).collect()
            }
            Keys::Streams => {
                let word = options(args, 1).find(|&at| is(args, at, b"streams"));
                let Some(word) = word else {
                    return Vec::new();
                };
                let keys = (count - word - 1) / 2;
                (word + 1..word + 1 + keys).collect()
            }
            Keys::Stored { options: first } => {
                let stores = options(args, first)
                    .filter(|&at| is(args, at, b"store") || is(args, at, b"storedist"))
                    .map(|at| at + 1);
                let stored = stores.filter(|&at| at < count).last();
                (1..count.min(2)).chain(stored).collect()
            }
        }
    }

    /// The command that the first two words name, if this one has such.
    fn sub(&self, args: Args<'_>) -> Option<&Command> {
        let word = args.get(1)?;
        self.subcommands.iter().find(|command| {
            let name = command.name.rsplit('|').next().unwrap_or_default();
            name.as_bytes().eq_ignore_ascii_case(word)
        })
    }
}

/// Whether an argument is this word, in any case of letters.
fn is(args: Args<'_>, at: usize, word: &[u8]) -> bool {
    args.get(at)
        .is_some_and(|arg| arg.eq_ignore_ascii_case(word))
}

/// The arguments from this one on that are options, without what is behind an option and belongs to
/// it: that may be any word.
fn options(args: Args<'_>, first: usize) -> impl Iterator<Item = usize> {
    let next = move |&at: &usize| {
        let behind = OPTIONS
            .iter()
            .find(|(word, _)| is(args, at, word))
            .map_or(0, |option| option.1);
        Some(at + 1 + behind).filter(|&at| at < args.len())
    };
    std::iter::successors(Some(first).filter(|&at| at < args.len()), next)
}

/// Options, and how many words belong to each.
const OPTIONS: &[(&[u8], usize)] = &[
    (b"count", 1),
    (b"block", 1),
    (b"group", 2),
    (b"by", 1),
    (b"get", 1),
    (b"limit", 2),
    (b"store", 1),
    (b"storedist", 1),
];

/// All commands, found by name.
#[derive(Clone, Debug)]
pub(crate) struct Commands(HashMap<Box<[u8]>, Command, foldhash::fast::RandomState>);

/// The longest name of a command.
const LONGEST: usize = 64;

impl Commands {
    /// Commands as a node tells them in its reply to `COMMAND`, whole.
    ///
    /// # Errors
    /// What is wrong with the reply.
    pub(crate) fn read(reply: &[u8]) -> Result<Commands, String> {
        let list = match Value::decode(reply) {
            Ok(Value::Array(list)) => list,
            Ok(Value::Error(text)) => return Err(String::from_utf8_lossy(&text).into_owned()),
            _ => return Err("its reply to COMMAND is not a list".to_owned()),
        };
        let mut commands = Commands(HashMap::default());
        for command in list.iter().filter_map(command) {
            commands.add(command);
        }
        for name in LOCAL.iter().chain(BLOCK) {
            // The proxy has these even if the nodes do not.
            if commands.find_name(name.as_bytes()).is_none() {
                commands.add(Command {
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
        let own = lock::COMMANDS
            .iter()
            .map(|&(name, arity, kind)| (name, arity, Special::Lock(kind)));
        for (name, arity, special) in own.chain(guard) {
            commands.add(Command {
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

    fn add(&mut self, command: Command) {
        self.0.insert(command.name.as_bytes().into(), command);
    }

    fn find_name(&self, name: &[u8]) -> Option<&Command> {
        let mut lower = [0; LONGEST];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.0.get(&*lower)
    }

    /// The command that these arguments call, in any case of letters; of a command of two words
    /// that one.
    pub(crate) fn find(&self, args: Args<'_>) -> Option<&Command> {
        let command = self.find_name(args.get(0)?)?;
        if command.subcommands.is_empty() {
            return Some(command);
        }
        Some(command.sub(args).unwrap_or(command))
    }
}

/// One element of the reply to `COMMAND`: name, arity, flags, first key, last key, step, and from
/// Redis 7 on categories, tips, key specifications and subcommands.
fn command(value: &Value) -> Option<Command> {
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
        // Before version 7 nodes do not tell them.
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
        Special::None if has("pubsub") => Special::Refused(NO_MESSAGES),
        Special::None if has("admin") => Special::Refused(ONE_NODE),
        special => special,
    };
    Some(Command {
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

/// A subcommand without keys of which the nodes tell nothing.
fn subcommand(name: &str) -> Command {
    Command {
        name: name.into(),
        arity: -2,
        read_only: false,
        keys: Keys::None,
        special: special(name),
        subcommands: Vec::new(),
    }
}

/// Where the keys are of commands whose keys move.
fn moving_keys(name: &str) -> Option<Keys> {
    let counted = |count, also| Some(Keys::Counted { count, also });
    match name {
        "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "fcall" | "fcall_ro" => counted(2, 0),
        "zunion" | "zinter" | "zdiff" | "sintercard" | "zintercard" | "lmpop" | "zmpop" => {
            counted(1, 0)
        }
        "blmpop" | "bzmpop" => counted(2, 0),
        "zunionstore" | "zinterstore" | "zdiffstore" => counted(2, 1),
        "xread" | "xreadgroup" => Some(Keys::Streams),
        "sort" => Some(Keys::Stored { options: 2 }),
        "georadius" | "georadiusbymember" => Some(Keys::Stored { options: 5 }),
        _ => None,
    }
}

/// Commands that the proxy answers.
pub(crate) const LOCAL: &[&str] = &[
    "ping",
    "echo",
    "hello",
    "auth",
    "select",
    "quit",
    "reset",
    "client",
    "info",
    "readonly",
    "readwrite",
    "asking",
    "cluster",
];

/// Commands of blocks.
const BLOCK: &[&str] = &["multi", "exec", "discard", "watch", "unwatch"];

const ONE_NODE: &str = "it is about one node: connect to that node for it";
const NO_MESSAGES: &str =
    "messages are not passed on by the proxy: connect to a node for PUBLISH and SUBSCRIBE";

fn special(name: &str) -> Special {
    let word = name.split('|').next().unwrap_or_default();
    if LOCAL.contains(&word) {
        return Special::Local;
    }
    if BLOCK.contains(&name) {
        return Special::Block;
    }
    match name {
        "lock.guard" => Special::Lock(LockCommand::Guard),
        "mget" => Special::Split(Split::Values),
        "mset" => Special::Split(Split::Pairs),
        "del" | "unlink" | "exists" | "touch" => Special::Split(Split::Sum),
        "dbsize" => Special::Everywhere(Everywhere::Sum),
        "keys" => Special::Everywhere(Everywhere::Append),
        "flushall" | "flushdb" | "script|load" | "script|flush" | "function|load"
        | "function|delete" | "function|flush" | "function|restore" => {
            Special::Everywhere(Everywhere::First)
        }
        "scan" => Special::Everywhere(Everywhere::Scan),
        // Nodes tell so by a flag, but only from version 7 on.
        "blpop" | "brpop" | "brpoplpush" | "blmove" | "blmpop" | "bzpopmin" | "bzpopmax"
        | "bzmpop" | "xread" | "xreadgroup" => Special::Waits,
        "subscribe" | "unsubscribe" | "psubscribe" | "punsubscribe" | "ssubscribe"
        | "sunsubscribe" => Special::Refused(NO_MESSAGES),
        "script|debug" => Special::Refused("it is about one connection: connect to a node for it"),
        "monitor" | "sync" | "psync" | "replconf" | "replicaof" | "slaveof" | "failover"
        | "migrate" | "move" | "swapdb" | "shutdown" | "debug" | "wait" | "waitaof" => {
            Special::Refused(ONE_NODE)
        }
        _ => match word {
            "config" | "acl" | "module" | "latency" | "slowlog" => Special::Refused(ONE_NODE),
            _ => Special::None,
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use resp::{Protocol, Span, Writer};

    /// Some commands, as a node tells them.
    pub(crate) fn some() -> Commands {
        let all: &[(&str, i64, &[&str], [i64; 3])] = &[
            ("get", 2, &["readonly", "fast"], [1, 1, 1]),
            ("set", -3, &["write"], [1, 1, 1]),
            ("incr", 2, &["write"], [1, 1, 1]),
            ("mget", -2, &["readonly"], [1, -1, 1]),
            ("mset", -3, &["write"], [1, -1, 2]),
            ("msetnx", -3, &["write"], [1, -1, 2]),
            ("del", -2, &["write"], [1, -1, 1]),
            ("dbsize", 1, &["readonly"], [0, 0, 0]),
            ("keys", 2, &["readonly"], [0, 0, 0]),
            ("scan", -2, &["readonly"], [0, 0, 0]),
            ("time", 1, &["fast"], [0, 0, 0]),
            ("ping", -1, &["fast"], [0, 0, 0]),
            ("eval", -3, &["movablekeys"], [0, 0, 0]),
            (
                "xread",
                -4,
                &["readonly", "blocking", "movablekeys"],
                [0, 0, 0],
            ),
            ("zunionstore", -4, &["write", "movablekeys"], [1, 1, 1]),
            ("blpop", -3, &["write", "blocking"], [1, -2, 1]),
            ("publish", 3, &["pubsub"], [0, 0, 0]),
            ("save", 1, &["admin", "noscript"], [0, 0, 0]),
            ("bf.add", -1, &["write"], [1, 1, 1]),
            ("script", -2, &["noscript"], [0, 0, 0]),
            ("xreadgroup", -7, &["write", "movablekeys"], [0, 0, 0]),
            ("sort", -2, &["write", "movablekeys"], [1, 1, 1]),
            ("georadius", -6, &["write", "movablekeys"], [1, 1, 1]),
            ("shutdown", -1, &["admin"], [0, 0, 0]),
        ];
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, Protocol::Resp2);
        writer.array(all.len() + 1);
        for (name, arity, flags, keys) in all {
            writer.array(6);
            writer.bulk(name.as_bytes());
            writer.int(*arity);
            writer.array(flags.len());
            for flag in *flags {
                writer.status(flag);
            }
            for key in keys {
                writer.int(*key);
            }
        }
        // Object and its subcommand, as from Redis 7 on.
        writer.array(10);
        writer.bulk(b"object");
        writer.int(-2);
        for _ in 0..7 {
            writer.array(0);
        }
        writer.array(1);
        writer.array(6);
        writer.bulk(b"object|encoding");
        writer.int(3);
        writer.array(1);
        writer.status("readonly");
        for key in [2, 2, 1] {
            writer.int(key);
        }
        Commands::read(&out).expect("it is a list")
    }

    /// Calls `look` with the words as arguments.
    pub(crate) fn with_args<T>(words: &str, look: impl FnOnce(Args<'_>) -> T) -> T {
        let mut spans = Vec::new();
        let mut at = 0;
        for word in words.split(' ') {
            spans.push(Span::new(at, word.len()));
            at += word.len() + 1;
        }
        look(Args::new(words.as_bytes(), &spans))
    }

    #[test]
    fn keys_are_found() {
        let commands = some();
        for (words, keys) in [
            ("GET a", &[1][..]),
            ("mget a b c", &[1, 2, 3]),
            ("MSET a 1 b 2", &[1, 3]),
            ("object encoding a", &[2]),
            ("eval return 2 a b c", &[3, 4]),
            ("eval return x a", &[]),
            ("eval return 99 a", &[3]),
            ("zunionstore to 2 a b WEIGHTS 1 2", &[1, 3, 4]),
            ("xread COUNT 2 streams a b 0 0", &[4, 5]),
            ("blpop a b 0", &[1, 2]),
            ("dbsize", &[]),
            // Options' words may be anything.
            ("xread count streams streams a 0", &[4]),
            (
                "xreadgroup group streams streams block 5 streams a b > >",
                &[7, 8],
            ),
            ("sort a", &[1]),
            ("sort a by store get store limit 0 1 store b", &[1, 10]),
            ("sort a get store", &[1]),
            ("georadius a 1 2 3 km storedist b", &[1, 7]),
            // Fewer arguments than its keys ask for.
            ("bf.add", &[]),
            ("object encoding", &[]),
        ] {
            let found = with_args(words, |args| commands.find(args).map(|it| it.keys(args)));
            assert_eq!(found.as_deref(), Some(keys), "{words}");
        }
        assert!(with_args("nosuch a", |args| commands.find(args).is_none()));
        let long = "x".repeat(LONGEST + 1);
        assert!(with_args(&long, |args| commands.find(args).is_none()));
    }

    #[test]
    fn what_the_proxy_does_itself() {
        let commands = some();
        let special = |words| with_args(words, |args| commands.find(args).map(|it| it.special));
        assert_eq!(special("PING"), Some(Special::Local));
        assert_eq!(special("HELLO"), Some(Special::Local));
        assert_eq!(special("WATCH"), Some(Special::Block));
        assert_eq!(special("BLPOP"), Some(Special::Waits));
        assert_eq!(special("GET"), Some(Special::None));
        assert!(matches!(special("PUBLISH"), Some(Special::Refused(_))));
        assert!(matches!(special("SAVE"), Some(Special::Refused(_))));
        assert!(matches!(
            special("script Debug yes"),
            Some(Special::Refused(_))
        ));
        let first = Some(Special::Everywhere(Everywhere::First));
        assert_eq!(special("SCRIPT LOAD x"), first);
        assert_eq!(special("XREADGROUP"), Some(Special::Waits));
        assert!(matches!(special("SHUTDOWN"), Some(Special::Refused(_))));
        let takes =
            |words, count| with_args(words, |args| commands.find(args).unwrap().takes(count));
        assert!(takes("get", 2) && !takes("get", 3));
        assert!(takes("mget", 5) && !takes("mget", 1));
    }

    /// A connection that clients share must be for each of them as if it were new.
    #[test]
    fn nothing_that_changes_a_connection_goes_onto_a_shared_one() {
        for name in [
            "asking",
            "auth",
            "client|caching",
            "client|reply",
            "client|tracking",
            "discard",
            "exec",
            "hello",
            "monitor",
            "multi",
            "psubscribe",
            "psync",
            "punsubscribe",
            "quit",
            "readonly",
            "readwrite",
            "replconf",
            "reset",
            "script|debug",
            "select",
            "ssubscribe",
            "subscribe",
            "sunsubscribe",
            "sync",
            "unsubscribe",
            "unwatch",
            "watch",
        ] {
            let special = special(name);
            assert!(
                matches!(
                    special,
                    Special::Local | Special::Block | Special::Refused(_)
                ),
                "{name}: {special:?}"
            );
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for reply in [&b"-NOAUTH x\r\n"[..], b":1\r\n", b"*1"] {
            assert!(Commands::read(reply).is_err());
        }
    }
}
