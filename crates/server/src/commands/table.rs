//! The table of all commands, and the only one: execution, `COMMAND`, the proxy (which asks nodes for
//! it) and the list in `docs/server.md` go by it.
//!
//! | column | what it says |
//! |---|---|
//! | name | in lower case; the words of a two-word command are joined by a bar |
//! | arity | how many arguments it takes, its name included; negative: at least so many |
//! | flags | those of `COMMAND INFO`, and `immediate`, which has it run at once in a block |
//! | keys | where its keys are, and what it does with them: Redis's flags of key specifications |
//! | categories | those of ACLs that do not follow from the flags |
//! | tips | what clients of a cluster should know; see below |
//! | since | the release of Redis that brought it; of Kumiki for its own |
//! | complexity | in the size of its arguments or of what it works on |
//! | run | how it runs; of a command of two words also the second words |
//! | summary | what it does or answers |
//!
//! Commands that concern one node's part of the keys have tips, so that clients of a cluster ask all
//! nodes. Those of several keys do not say that they can be split: a node that gets them whole
//! executes them atomically.

use super::{
    admin, cluster, connection, introspection, key, replication, saving, snapshot, string,
};
use crate::command::Run::{
    AllOrNothing, BeginSnapshot, Container, Discard, EndSnapshot, Exec, Guard, Local, Multi,
    NextOfSnapshot, Scan, Store, Unwatch, Watch, WatchAt, WatchVersion,
};
use crate::command::{Command, Flags, Keys, Run};

/// Returns all rows but those of second words.
pub(crate) fn rows() -> impl Iterator<Item = &'static Command> {
    let tables = [STRINGS, GENERIC, TRANSACTIONS, CONNECTION, SERVER, CLUSTERS];
    tables.into_iter().flatten()
}

macro_rules! commands {
    ($group:literal; $(
        $name:literal $arity:literal $flags:literal $keys:ident($access:literal)
        $categories:literal $tips:literal
        $since:literal $complexity:literal,
        $run:expr $(, $subcommands:ident)?, $summary:literal;
    )*) => {
        &[$(Command {
            number: 0,
            name: $name,
            arity: $arity,
            flags: Flags::of($flags),
            keys: Keys::$keys,
            access: $access,
            own_categories: $categories,
            tips: $tips,
            run: $run,
            group: $group,
            since: $since,
            complexity: $complexity,
            summary: $summary,
            subcommands: one_of(&[$($subcommands)?]),
        }),*]
    };
}

/// Returns the only list of second words, or an empty one.
const fn one_of(lists: &[&'static [Command]]) -> &'static [Command] {
    match lists {
        [list, ..] => list,
        [] => &[],
    }
}

const STRINGS: &[Command] = commands! { "string";
    "get" 2 "readonly fast" ONE("RO access") "string" ""
        "1.0.0" "O(1)",
        Store(string::get), "The value of a key.";
    "set" -3 "write denyoom" ONE("RW access update variable_flags") "string" ""
        "1.0.0" "O(1)",
        Store(string::set), "Sets the value of a key, and when it expires.";
    "setnx" 3 "write denyoom fast" ONE("OW insert") "string" ""
        "1.0.0" "O(1)",
        Store(string::setnx), "Sets the value of a key that is absent.";
    "setex" 4 "write denyoom" ONE("OW update") "string" ""
        "2.0.0" "O(1)",
        Store(string::setex), "Sets a value that expires after some seconds.";
    "psetex" 4 "write denyoom" ONE("OW update") "string" ""
        "2.6.0" "O(1)",
        Store(string::psetex), "Sets a value that expires after some milliseconds.";
    "getset" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(string::getset), "Sets the value of a key; answers the old one.";
    "getdel" 2 "write fast" ONE("RW access delete") "string" ""
        "6.2.0" "O(1)",
        Store(string::getdel), "Deletes a key; answers its value.";
    "getex" -2 "write fast" ONE("RW access update") "string" ""
        "6.2.0" "O(1)",
        Store(string::getex), "The value of a key; sets when it expires.";
    "mget" -2 "readonly fast" ALL("RO access") "string" ""
        "1.0.0" "O(N) where N is the number of keys to retrieve.",
        Store(string::mget), "The values of several keys, as of one moment.";
    "mset" -3 "write denyoom" PAIRS("OW update") "string" ""
        "1.0.1" "O(N) where N is the number of keys to set.",
        Store(string::mset), "Sets the values of several keys at one moment.";
    "msetnx" -3 "write denyoom" PAIRS("OW insert") "string" ""
        "1.0.1" "O(N) where N is the number of keys to set.",
        AllOrNothing(string::msetnx), "Sets the values of several keys if all are absent.";
    "append" 3 "write denyoom fast" ONE("RW insert") "string" ""
        "2.0.0" "O(N) where N is the length of the result.",
        Store(string::append), "Appends to a value; answers its length.";
    "strlen" 2 "readonly fast" ONE("RO") "string" ""
        "2.2.0" "O(1)",
        Store(string::strlen), "The length of a value.";
    "getrange" 4 "readonly" ONE("RO access") "string" ""
        "2.4.0" "O(N) where N is the length of the returned string.",
        Store(string::getrange), "A part of a value.";
    "substr" 4 "readonly" ONE("RO access") "string" ""
        "1.0.0" "O(N) where N is the length of the returned string.",
        Store(string::getrange), "A part of a value; the old name of GETRANGE.";
    "setrange" 4 "write denyoom" ONE("RW update") "string" ""
        "2.2.0" "O(N) where N is the length of the result.",
        Store(string::setrange), "Overwrites a part of a value; answers its length.";
    "incr" 2 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(string::incr), "Adds one to a number.";
    "incrby" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(string::incrby), "Adds to a number.";
    "decr" 2 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(string::decr), "Subtracts one from a number.";
    "decrby" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(string::decrby), "Subtracts from a number.";
    "incrbyfloat" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "2.6.0" "O(1)",
        Store(string::incrbyfloat), "Adds to a decimal fraction.";
};

const GENERIC: &[Command] = commands! { "generic";
    "del" -2 "write" ALL("RM delete") "keyspace" ""
        "1.0.0" "O(N) where N is the number of keys.",
        Store(key::delete), "Deletes keys; answers how many there were.";
    "unlink" -2 "write fast" ALL("RM delete") "keyspace" ""
        "4.0.0" "O(N) where N is the number of keys.",
        Store(key::delete), "Deletes keys; answers how many there were.";
    "exists" -2 "readonly fast" ALL("RO") "keyspace" ""
        "1.0.0" "O(N) where N is the number of keys.",
        Store(key::exists), "How many of the keys there are.";
    "touch" -2 "readonly fast" ALL("RO") "keyspace" ""
        "3.2.1" "O(N) where N is the number of keys.",
        Store(key::exists), "How many of the keys there are.";
    "expire" -3 "write fast" ONE("RW update") "keyspace" ""
        "1.0.0" "O(1)",
        Store(key::expire), "Has a key expire after some seconds.";
    "pexpire" -3 "write fast" ONE("RW update") "keyspace" ""
        "2.6.0" "O(1)",
        Store(key::pexpire), "Has a key expire after some milliseconds.";
    "expireat" -3 "write fast" ONE("RW update") "keyspace" ""
        "1.2.0" "O(1)",
        Store(key::expireat), "Has a key expire at a time in seconds.";
    "pexpireat" -3 "write fast" ONE("RW update") "keyspace" ""
        "2.6.0" "O(1)",
        Store(key::pexpireat), "Has a key expire at a time in milliseconds.";
    "ttl" 2 "readonly fast" ONE("RO access") "keyspace" "nondeterministic_output"
        "1.0.0" "O(1)",
        Store(key::ttl), "Seconds until a key expires.";
    "pttl" 2 "readonly fast" ONE("RO access") "keyspace" "nondeterministic_output"
        "2.6.0" "O(1)",
        Store(key::pttl), "Milliseconds until a key expires.";
    "expiretime" 2 "readonly fast" ONE("RO access") "keyspace" ""
        "7.0.0" "O(1)",
        Store(key::expiretime), "When a key expires, in seconds.";
    "pexpiretime" 2 "readonly fast" ONE("RO access") "keyspace" ""
        "7.0.0" "O(1)",
        Store(key::pexpiretime), "When a key expires, in milliseconds.";
    "persist" 2 "write fast" ONE("RW update") "keyspace" ""
        "2.2.0" "O(1)",
        Store(key::persist), "Has a key never expire.";
    "type" 2 "readonly fast" ONE("RO") "keyspace" ""
        "1.0.0" "O(1)",
        Store(key::kind), "The type of a key's value.";
    "keys" 2 "readonly" NONE("") "keyspace dangerous" "request_policy:all_shards nondeterministic_output_order"
        "1.0.0" "O(N) where N is the number of keys in the database.",
        Run::Keys, "All keys that match a pattern.";
    "scan" -2 "readonly" NONE("") "keyspace" "nondeterministic_output request_policy:special"
        "2.8.0" "O(1) for every call, O(N) for a complete iteration.",
        Scan, "Run::Keys, a page at a time.";
};

const TRANSACTIONS: &[Command] = commands! { "transactions";
    "multi" 1 "noscript loading stale fast allow_busy immediate" NONE("") "transaction" ""
        "1.2.0" "O(1)",
        Multi, "Begins a block of commands that execute as one transaction.";
    "exec" 1 "noscript loading stale skip_slowlog immediate" NONE("") "transaction" ""
        "1.2.0" "Depends on commands in the transaction",
        Exec, "Executes the block, unless a watched key has changed.";
    "discard" 1 "noscript loading stale fast allow_busy immediate" NONE("") "transaction" ""
        "2.0.0" "O(N), when N is the number of queued commands",
        Discard, "Gives the block up.";
    "watch" -2 "noscript loading stale fast allow_busy immediate" ALL("RO") "transaction" ""
        "2.2.0" "O(1) for every key.",
        Watch, "Has EXEC refuse if one of the keys changes until then.";
    "watch.version" -2 "readonly fast immediate" ALL("RO") "transaction" ""
        "0.1.0" "O(1) for every key.",
        WatchVersion, "The versions of keys, for WATCH.AT.";
    "watch.at" -3 "fast immediate" PAIRS("RO") "transaction" ""
        "0.1.0" "O(1) for every key.",
        WatchAt, "Watches keys that must have these versions.";
    "lock.guard" 3 "write denyoom fast" NONE("") "transaction" ""
        "0.1.0" "O(1)",
        Guard, "First in a block: refuses it if a newer token of the lock was seen where its keys are.";
    "unwatch" 1 "noscript loading stale fast allow_busy" NONE("") "transaction" ""
        "2.2.0" "O(1)",
        Unwatch, "Forgets the watched keys.";
};

const CONNECTION: &[Command] = commands! { "connection";
    "ping" -1 "fast" NONE("") "connection" "request_policy:all_shards response_policy:all_succeeded"
        "1.0.0" "O(1)",
        Local(connection::ping), "Answers PONG, or its argument.";
    "echo" 2 "loading stale fast" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Local(connection::echo), "Answers its argument.";
    "hello" -1 "noscript loading stale fast no_auth allow_busy" NONE("") "connection" ""
        "6.0.0" "O(1)",
        Local(connection::hello), "Chooses the protocol; may authenticate too.";
    "auth" -2 "noscript loading stale fast no_auth allow_busy" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Local(connection::auth), "Authenticates by password.";
    "select" 2 "loading stale fast" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Local(connection::select), "Chooses a database; there is one, number 0.";
    "quit" -1 "noscript loading stale fast no_auth allow_busy immediate" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Local(connection::quit), "Closes the connection.";
    "reset" 1 "noscript loading stale fast no_auth allow_busy immediate" NONE("") "connection" ""
        "6.2.0" "O(1)",
        Local(connection::reset), "Forgets everything about the connection.";
    "client" -2 "" NONE("") "" ""
        "2.4.0" "Depends on subcommand.",
        Container, CLIENT, "About clients.";
};

pub(super) const CLIENT: &[Command] = commands! { "connection";
    "client|id" 2 "noscript loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(connection::client_id), "The number of this client.";
    "client|info" 2 "noscript loading stale" NONE("") "connection" "nondeterministic_output"
        "6.2.0" "O(1)",
        Local(connection::client_info), "What is known of this client.";
    "client|list" -2 "admin noscript loading stale" NONE("") "connection" "nondeterministic_output"
        "2.4.0" "O(N) where N is the number of client connections",
        Local(connection::client_list), "What is known of all clients.";
    "client|setname" 3 "noscript loading stale" NONE("") "connection" ""
        "2.6.9" "O(1)",
        Local(connection::client_setname), "Names this client.";
    "client|getname" 2 "noscript loading stale" NONE("") "connection" ""
        "2.6.9" "O(1)",
        Local(connection::client_getname), "The name of this client.";
    "client|setinfo" 4 "noscript loading stale" NONE("") "connection" ""
        "7.2.0" "O(1)",
        Local(connection::client_setinfo), "Names this client's library.";
    "client|no-evict" 3 "admin noscript loading stale" NONE("") "connection" ""
        "7.0.0" "O(1)",
        Local(connection::client_switch), "Accepted; no client is ever evicted.";
    "client|no-touch" 3 "noscript loading stale" NONE("") "connection" ""
        "7.2.0" "O(1)",
        Local(connection::client_switch), "Accepted; no access times are kept.";
    "client|reply" 3 "noscript loading stale" NONE("") "connection" ""
        "3.2.0" "O(1)",
        Local(connection::client_reply), "Says whether this client gets replies: ON, OFF, or SKIP the next one.";
    "client|pause" -3 "admin noscript loading stale" NONE("") "connection" ""
        "2.9.50" "O(1)",
        Local(connection::client_pause), "Has commands wait for some milliseconds: ALL, or those that WRITE.";
    "client|unpause" 2 "admin noscript loading stale" NONE("") "connection" ""
        "6.2.0" "O(N) where N is the number of paused clients.",
        Local(connection::client_unpause), "Ends a pause.";
    "client|unblock" -3 "admin noscript loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(connection::client_unblock), "Answers 0: no command blocks its client.";
    "client|kill" -3 "admin noscript loading stale" NONE("") "connection" ""
        "2.4.0" "O(N) where N is the number of client connections",
        Local(connection::client_kill), "Closes connections.";
    "client|help" 2 "loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(connection::client_help), "What can be asked.";
};

const SERVER: &[Command] = commands! { "server";
    "dbsize" 1 "readonly fast" NONE("") "keyspace" "request_policy:all_shards response_policy:agg_sum"
        "1.0.0" "O(1)",
        Store(admin::dbsize), "How many keys there are.";
    "flushdb" -1 "write" NONE("") "keyspace dangerous" "request_policy:all_shards response_policy:all_succeeded"
        "1.0.0" "O(N) where N is the number of keys.",
        Store(admin::flush), "Deletes all keys.";
    "flushall" -1 "write" NONE("") "keyspace dangerous" "request_policy:all_shards response_policy:all_succeeded"
        "1.0.0" "O(N) where N is the number of keys.",
        Store(admin::flush), "Deletes all keys.";
    "time" 1 "loading stale fast" NONE("") "" "nondeterministic_output"
        "2.6.0" "O(1)",
        Local(admin::time), "The server's clock: seconds and microseconds.";
    "info" -1 "loading stale" NONE("") "dangerous" "nondeterministic_output request_policy:all_shards response_policy:special"
        "1.0.0" "O(1)",
        Local(admin::info), "Figures about the server.";
    "command" -1 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "2.8.13" "O(N) where N is the number of commands.",
        Local(introspection::command_all), COMMAND, "About commands.";
    "config" -2 "" NONE("") "" ""
        "2.0.0" "Depends on subcommand.",
        Container, CONFIG, "About the configuration.";
    "role" 1 "noscript loading stale fast" NONE("") "admin dangerous" ""
        "2.8.12" "O(1)",
        Local(replication::role), "Whether this node leads its partition, and who else has it.";
    "bgsave" -1 "admin noscript no_async_loading" NONE("") "" ""
        "1.0.0" "O(1)",
        Local(saving::bgsave), "Begins a checkpoint in the background.";
    "save" 1 "admin noscript no_multi no_async_loading" NONE("") "" ""
        "1.0.0" "O(N) where N is the number of keys.",
        Local(saving::save), "Makes a checkpoint, and answers when it is there.";
    "lastsave" 1 "loading stale fast" NONE("") "admin dangerous" "nondeterministic_output"
        "1.0.0" "O(1)",
        Local(saving::lastsave), "When the last checkpoint was finished.";
    "shutdown" -1 "admin noscript loading stale no_multi allow_busy immediate" NONE("") "" ""
        "1.0.0" "O(1), with SAVE O(N) where N is the number of keys.",
        Local(saving::shutdown), "Stops the server once what it has received is answered and durable.";
    "kumiki.snapshot" -2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "Depends on subcommand.",
        Container, SNAPSHOT, "A consistent copy of all keys, in pieces.";
};

pub(super) const COMMAND: &[Command] = commands! { "server";
    "command|count" 2 "loading stale" NONE("") "connection" ""
        "2.8.13" "O(1)",
        Local(introspection::command_count), "How many commands there are.";
    "command|info" -2 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "2.8.13" "O(N) where N is the number of commands to look up.",
        Local(introspection::command_info), "Properties of commands.";
    "command|docs" -2 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "7.0.0" "O(N) where N is the number of commands to look up.",
        Local(introspection::command_docs), "What commands are for.";
    "command|list" -2 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "7.0.0" "O(N) where N is the number of commands.",
        Local(introspection::command_list), "The names of commands.";
    "command|getkeys" -4 "loading stale" NONE("") "connection" ""
        "2.8.13" "O(N) where N is the number of arguments to the command",
        Local(introspection::command_getkeys), "The keys of a command.";
    "command|getkeysandflags" -4 "loading stale" NONE("") "connection" ""
        "7.0.0" "O(N) where N is the number of arguments to the command",
        Local(introspection::command_getkeysandflags), "The keys of a command, and what it does with them.";
    "command|help" 2 "loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(introspection::command_help), "What can be asked.";
};

pub(super) const CONFIG: &[Command] = commands! { "server";
    "config|get" -3 "admin noscript loading stale" NONE("") "" ""
        "2.0.0" "O(N) where N is the number of parameters.",
        Local(admin::config_get), "Values of the configuration.";
    "config|set" -4 "admin noscript loading stale" NONE("") "" "request_policy:all_nodes response_policy:all_succeeded"
        "2.0.0" "O(N) where N is the number of parameters.",
        Local(admin::config_set), "Changes the configuration.";
    "config|resetstat" 2 "admin noscript loading stale" NONE("") "" ""
        "2.0.0" "O(1)",
        Local(admin::config_resetstat), "Starts counting anew.";
    "config|help" 2 "loading stale" NONE("") "" ""
        "5.0.0" "O(1)",
        Local(admin::config_help), "What can be asked.";
};

pub(super) const SNAPSHOT: &[Command] = commands! { "server";
    "kumiki.snapshot|begin" -2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        BeginSnapshot, "Begins one for this connection; MATCH pattern: of such keys.";
    "kumiki.snapshot|next" -2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "O(N) where N is the number of entries.",
        NextOfSnapshot, "The next entries of it, COUNT at most, and whether there may be more.";
    "kumiki.snapshot|end" 2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        EndSnapshot, "Gives it back.";
    "kumiki.snapshot|help" 2 "loading stale" NONE("") "" ""
        "0.1.0" "O(1)",
        Local(snapshot::snapshot_help), "What can be asked.";
};

const CLUSTERS: &[Command] = commands! { "cluster";
    "cluster" -2 "" NONE("") "" ""
        "3.0.0" "Depends on subcommand.",
        Container, CLUSTER, "About the cluster.";
    "readonly" 1 "loading stale fast" NONE("") "connection" ""
        "3.0.0" "O(1)",
        Local(cluster::readonly), "Lets this connection read what a replica has, which may be a little old.";
    "readwrite" 1 "loading stale fast" NONE("") "connection" ""
        "3.0.0" "O(1)",
        Local(cluster::readwrite), "Ends READONLY.";
    "asking" 1 "fast" NONE("") "connection" ""
        "3.0.0" "O(1)",
        Local(cluster::asking), "Accepted; slots do not move between nodes yet.";
};

pub(super) const CLUSTER: &[Command] = commands! { "cluster";
    "cluster|slots" 2 "stale" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(N) where N is the total number of Cluster nodes",
        Local(cluster::slots), "Ranges of slots and the node of each.";
    "cluster|shards" 2 "stale" NONE("") "" "nondeterministic_output"
        "7.0.0" "O(N) where N is the total number of cluster nodes",
        Local(cluster::shards), "Nodes and their ranges of slots.";
    "cluster|nodes" 2 "stale" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(N) where N is the total number of Cluster nodes",
        Local(cluster::nodes), "The nodes, one a line.";
    "cluster|info" 2 "stale" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(1)",
        Local(cluster::info), "Figures about the cluster.";
    "cluster|myid" 2 "stale" NONE("") "" ""
        "3.0.0" "O(1)",
        Local(cluster::myid), "The name of this node.";
    "cluster|keyslot" 3 "stale" NONE("") "" ""
        "3.0.0" "O(N) where N is the number of bytes in the key",
        Local(cluster::keyslot), "The slot of a key.";
    "cluster|countkeysinslot" 3 "stale no_multi" NONE("") "" ""
        "3.0.0" "O(N) where N is the number of keys of the node.",
        Local(cluster::countkeysinslot), "How many keys of a slot this node has.";
    "cluster|getkeysinslot" 4 "stale no_multi" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(N) where N is the number of keys of the node.",
        Local(cluster::getkeysinslot), "Some keys of a slot that this node has.";
    "cluster|replication" -3 "admin no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        Local(cluster::replication), "About the replicas of this node's partition: STATUS, ADD, REMOVE, TRANSFER.";
    "cluster|help" 2 "loading stale" NONE("") "" ""
        "5.0.0" "O(1)",
        Local(cluster::cluster_help), "What can be asked.";
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::command::{CATEGORIES, table};

    #[test]
    fn words_of_the_table_are_known() {
        const ACCESS: [&str; 9] = [
            "RO",
            "RW",
            "OW",
            "RM",
            "access",
            "update",
            "insert",
            "delete",
            "variable_flags",
        ];
        let every = table().every();
        for command in every {
            let name = command.name;
            assert_eq!(command.keys.first == 0, command.access.is_empty(), "{name}");
            assert!(
                command
                    .access
                    .split_whitespace()
                    .all(|word| ACCESS.contains(&word)),
                "{name}"
            );
            let mut categories = command.own_categories.split_whitespace();
            assert!(categories.all(|word| CATEGORIES.contains(&word)), "{name}");
            for text in [command.complexity, command.summary] {
                assert!(!text.is_empty() && !text.contains('\n'), "{name}");
            }
            assert_eq!(command.since.split('.').count(), 3, "{name}");
        }
    }

    /// Returns the names in the list of `docs/server.md`. Second words stand in brackets behind the
    /// first.
    fn documented() -> BTreeSet<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (_, list) = page.split_once("\n## Commands\n").expect("the list");
        let (list, _) = list.split_once("\n## ").expect("the next section");
        let mut names = BTreeSet::new();
        for row in list.lines().filter(|line| line.starts_with('|')) {
            let (mut first, mut inside) = (String::new(), false);
            for (at, part) in row.split('`').enumerate() {
                if at % 2 == 0 {
                    inside = (inside || part.contains('(')) && !part.contains(')');
                    continue;
                }
                let name = part
                    .to_ascii_lowercase()
                    .replace("select 0", "select")
                    .replace(' ', "|");
                if inside {
                    names.insert(format!("{first}|{name}"));
                } else {
                    first.clone_from(&name);
                    names.insert(name);
                }
            }
        }
        names
    }

    #[test]
    fn the_documentation_lists_every_command() {
        let every = table().every();
        // The list leaves out the HELP of commands with several words.
        let names = every
            .map(|command| command.name)
            .filter(|name| !name.ends_with("|help"));
        let own: BTreeSet<String> = names.map(str::to_owned).collect();
        assert_eq!(documented(), own);
    }
}
