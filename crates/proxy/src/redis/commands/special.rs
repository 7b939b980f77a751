//! What the proxy does with a command, apart from what the nodes tell.

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
pub(super) const BLOCK: &[&str] = &["multi", "exec", "discard", "watch", "unwatch"];

pub(super) const ONE_NODE: &str = "it is about one node: connect to that node for it";
pub(super) const NO_MESSAGES: &str =
    "messages are not passed on by the proxy: connect to a node for PUBLISH and SUBSCRIBE";

/// What the proxy does with the command of this name, of two words joined by `|`.
pub(super) fn special(name: &str) -> Special {
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
