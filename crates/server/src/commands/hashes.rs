//! Commands on hashes.

use super::values::value;
use crate::command::CommandKind::Store;
use crate::command::{CommandDefinition, commands};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "hash";
    "hset" -4 "write denyoom fast" ONE("RW update") "hash" ""
        "2.0.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hashes::HSET }>), "Sets fields of a hash; answers how many are new.";
    "hsetnx" 4 "write denyoom fast" ONE("RW insert") "hash" ""
        "2.0.0" "O(1)",
        Store(value::<{ values::hashes::HSETNX }>), "Sets a field that the hash does not have.";
    "hmset" -4 "write denyoom fast" ONE("RW update") "hash" ""
        "2.0.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hashes::HMSET }>), "Sets fields of a hash.";
    "hget" 3 "readonly fast" ONE("RO access") "hash" ""
        "2.0.0" "O(1)",
        Store(value::<{ values::hashes::HGET }>), "The value of a field.";
    "hmget" -3 "readonly fast" ONE("RO access") "hash" ""
        "2.0.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hashes::HMGET }>), "The values of several fields.";
    "hgetall" 2 "readonly" ONE("RO access") "hash" "nondeterministic_output_order"
        "2.0.0" "O(N) where N is the size of the hash.",
        Store(value::<{ values::hashes::HGETALL }>), "The fields of a hash and their values.";
    "hkeys" 2 "readonly" ONE("RO access") "hash" "nondeterministic_output_order"
        "2.0.0" "O(N) where N is the size of the hash.",
        Store(value::<{ values::hashes::HKEYS }>), "The fields of a hash.";
    "hvals" 2 "readonly" ONE("RO access") "hash" "nondeterministic_output_order"
        "2.0.0" "O(N) where N is the size of the hash.",
        Store(value::<{ values::hashes::HVALS }>), "The values of a hash.";
    "hlen" 2 "readonly fast" ONE("RO") "hash" ""
        "2.0.0" "O(1)",
        Store(value::<{ values::hashes::HLEN }>), "How many fields a hash has.";
    "hexists" 3 "readonly fast" ONE("RO") "hash" ""
        "2.0.0" "O(1)",
        Store(value::<{ values::hashes::HEXISTS }>), "Whether a hash has a field.";
    "hstrlen" 3 "readonly fast" ONE("RO") "hash" ""
        "3.2.0" "O(1)",
        Store(value::<{ values::hashes::HSTRLEN }>), "The length of a field's value.";
    "hdel" -3 "write fast" ONE("RW delete") "hash" ""
        "2.0.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hashes::HDEL }>), "Removes fields; answers how many there were.";
    "hincrby" 4 "write denyoom fast" ONE("RW access update") "hash" ""
        "2.0.0" "O(1)",
        Store(value::<{ values::hashes::HINCRBY }>), "Adds an integer to a field.";
    "hincrbyfloat" 4 "write denyoom fast" ONE("RW access update") "hash" ""
        "2.6.0" "O(1)",
        Store(value::<{ values::hashes::HINCRBYFLOAT }>), "Adds a decimal fraction to a field.";
    "hrandfield" -2 "readonly" ONE("RO access") "hash" "nondeterministic_output"
        "6.2.0" "O(N) where N is the number of fields that are returned.",
        Store(value::<{ values::hashes::HRANDFIELD }>), "Fields that are drawn at random.";
    "hscan" -3 "readonly" ONE("RO access") "hash" "nondeterministic_output"
        "2.8.0" "O(1) for every call, O(N) for a complete iteration.",
        Store(value::<{ values::hashes::HSCAN }>), "The fields of a hash, a page at a time.";
    "hexpire" -6 "write fast" ONE("RW update") "hash" ""
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HEXPIRE }>), "Has fields expire after some seconds.";
    "hpexpire" -6 "write fast" ONE("RW update") "hash" ""
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HPEXPIRE }>), "Has fields expire after some milliseconds.";
    "hexpireat" -6 "write fast" ONE("RW update") "hash" ""
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HEXPIREAT }>), "Has fields expire at a time in seconds.";
    "hpexpireat" -6 "write fast" ONE("RW update") "hash" ""
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HPEXPIREAT }>), "Has fields expire at a time in milliseconds.";
    "httl" -5 "readonly fast" ONE("RO access") "hash" "nondeterministic_output"
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HTTL }>), "Seconds until fields expire.";
    "hpttl" -5 "readonly fast" ONE("RO access") "hash" "nondeterministic_output"
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HPTTL }>), "Milliseconds until fields expire.";
    "hexpiretime" -5 "readonly fast" ONE("RO access") "hash" ""
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HEXPIRETIME }>), "When fields expire, in seconds.";
    "hpexpiretime" -5 "readonly fast" ONE("RO access") "hash" ""
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HPEXPIRETIME }>), "When fields expire, in milliseconds.";
    "hpersist" -5 "write fast" ONE("RW update") "hash" ""
        "7.4.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HPERSIST }>), "Has fields never expire.";
    "hgetex" -5 "write fast" ONE("RW access update") "hash" ""
        "8.0.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HGETEX }>), "The values of fields, which expire at another time then.";
    "hsetex" -6 "write denyoom fast" ONE("RW update") "hash" ""
        "8.0.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HSETEX }>), "Sets fields with a time to live.";
    "hgetdel" -5 "write fast" ONE("RW access delete") "hash" ""
        "8.0.0" "O(N) where N is the number of fields.",
        Store(value::<{ values::hash_deadlines::HGETDEL }>), "The values of fields, which are removed.";
};
