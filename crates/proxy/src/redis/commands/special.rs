//! How the proxy treats commands, apart from what the nodes report.

use channels::SubscriptionKind;
use channels::frames::SubscriptionChange;

/// How the proxy treats a command, apart from what the nodes report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    /// Goes to the node of its keys; if it has none, to any node.
    None,
    /// Is split into one command for each part of its keys; the value tells how the replies are joined.
    KeySplit(KeySplit),
    /// Goes to all nodes that have slots.
    ReplyReduction(ReplyReduction),
    /// The proxy answers it.
    Local,
    /// Begins, ends or discards a block, or watches keys.
    Block,
    /// Concerns locks.
    Lock(LockCommand),
    /// Changes the client's subscriptions.
    Subscription(SubscriptionChange, SubscriptionKind),
    /// Goes to the node of its channel.
    Publish,
    /// May wait for an event: goes over a connection of the client's own.
    Waits,
    /// Is refused: it does not work through a proxy.
    Refused(&'static str),
}

/// A command about locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockCommand {
    Acquire,
    Renew,
    Release,
    Info,
    /// The nodes execute it, in a block.
    Guard,
}

/// How a command on several keys is split where the nodes do not do that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeySplit {
    /// Values by key (`MGET`).
    Values,
    /// Keys, each with a value behind it (`MSET`).
    Pairs,
    /// A number that is added up (`DEL`).
    Sum,
}

/// How the replies of all nodes become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyReduction {
    /// A number that is added up.
    Sum,
    /// Lists, appended to each other.
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
    "pubsub",
];

/// Commands of blocks.
pub(super) const BLOCK: &[&str] = &["multi", "exec", "discard", "watch", "unwatch"];

pub(super) const ONE_NODE: &str = "it is about one node: connect to that node for it";

/// Returns how the proxy treats the command of this name; two words are joined by `|`.
pub(super) fn special(name: &str) -> Special {
    let word = name.split('|').next().unwrap_or_default();
    if LOCAL.contains(&word) {
        return Special::Local;
    }
    if BLOCK.contains(&name) {
        return Special::Block;
    }
    if let Some((change, kind)) = SubscriptionChange::of_word(name.as_bytes()) {
        return Special::Subscription(change, kind);
    }
    match name {
        "lock.guard" => Special::Lock(LockCommand::Guard),
        "mget" => Special::KeySplit(KeySplit::Values),
        "mset" => Special::KeySplit(KeySplit::Pairs),
        "del" | "unlink" | "exists" | "touch" => Special::KeySplit(KeySplit::Sum),
        "dbsize" => Special::ReplyReduction(ReplyReduction::Sum),
        "keys" => Special::ReplyReduction(ReplyReduction::Append),
        "flushall" | "flushdb" | "script|load" | "script|flush" | "function|load"
        | "function|delete" | "function|flush" | "function|restore" => {
            Special::ReplyReduction(ReplyReduction::First)
        }
        "scan" => Special::ReplyReduction(ReplyReduction::Scan),
        // Nodes report this by a flag, but only since version 7.
        "blpop" | "brpop" | "brpoplpush" | "blmove" | "blmpop" | "bzpopmin" | "bzpopmax"
        | "bzmpop" | "xread" | "xreadgroup" => Special::Waits,
        "publish" | "spublish" => Special::Publish,
        "script|debug" => Special::Refused("it is about one connection: connect to a node for it"),
        "monitor" | "sync" | "psync" | "replconf" | "replicaof" | "slaveof" | "failover"
        | "migrate" | "move" | "swapdb" | "shutdown" | "debug" | "wait" | "waitaof" => {
            Special::Refused(ONE_NODE)
        }
        _ => match word {
            "memory" if !matches!(name, "memory" | "memory|usage") => Special::Refused(ONE_NODE),
            "config" | "acl" | "module" | "latency" | "slowlog" => Special::Refused(ONE_NODE),
            _ => Special::None,
        },
    }
}
