//! Counts of the keys that commands look up to read, found or not (`keyspace_hits` and
//! `keyspace_misses` of `INFO`).

use base::Reply;

use crate::command::{CommandDefinition, CommandFlags};
use crate::runtime_context::Lookups;

/// Counts the keys that a command looked up to read, by whether they were there. Commands whose
/// replies do not distinguish an empty value from an absent one (`STRLEN`, `GETRANGE`, `GETBIT`) count it as
/// absent.
// A call of its own would take four in a hundred of the time of a SET.
#[inline(always)]
pub(crate) fn count_lookups(command: &CommandDefinition, replies: &[Reply<'_>], lookups: &Lookups) {
    if command.keys.first == 0 {
        return;
    }
    let reads = command.flags.has(CommandFlags::READ);
    if !reads && matches!(replies, [Reply::Ok | Reply::Int(_)]) {
        return;
    }
    // Commands that write may answer with the value that was there.
    if !reads && !command.access.starts_with("RW access") {
        return;
    }
    let shows_absence = || {
        !matches!(
            command.name,
            "getrange" | "substr" | "getbit" | "bitfield_ro"
        )
    };
    for reply in replies {
        match reply {
            Reply::Bytes(bytes) => lookups.count(!bytes.is_empty() || shows_absence()),
            // For a SET it may mean that a condition was not met.
            Reply::Nil if reads || !command.access.ends_with("variable_flags") => {
                lookups.count(false);
            }
            Reply::Int(number) if reads => lookups.count(*number != 0),
            Reply::Kind(_) | Reply::Deadline(_) => lookups.count(true),
            _ => {}
        }
    }
}
