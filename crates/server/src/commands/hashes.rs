//! Commands on hashes.

use super::values::value;
use crate::command::CommandKind::Store;
use crate::command::{CommandDefinition, commands};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "hash";
    "hset" -4 "write denyoom fast" ONE("RW update") "hash" ""
        "2.0.0" "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.",
        Store(value::<{ values::hashes::HSET }>), "Sets fields of a hash; answers how many are new.";
    "hget" 3 "readonly fast" ONE("RO access") "hash" ""
        "2.0.0" "O(1)",
        Store(value::<{ values::hashes::HGET }>), "The value of a field.";
    "hdel" -3 "write fast" ONE("RW delete") "hash" ""
        "2.0.0" "O(N) where N is the number of fields to be removed.",
        Store(value::<{ values::hashes::HDEL }>), "Removes fields; answers how many there were.";
    "hlen" 2 "readonly fast" ONE("RO") "hash" ""
        "2.0.0" "O(1)",
        Store(value::<{ values::hashes::HLEN }>), "How many fields a hash has.";
    "hgetall" 2 "readonly" ONE("RO access") "hash" "nondeterministic_output_order"
        "2.0.0" "O(N) where N is the size of the hash.",
        Store(value::<{ values::hashes::HGETALL }>), "The fields of a hash and their values.";
};
