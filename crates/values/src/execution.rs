//! The execution of commands on values.

use base::transaction::{CallError, Kind, OpError, ValueCall};

use crate::call::{CallArguments, CallOutcome, Execute, StoredBlock, StoredValue};
use crate::collection_editor::CollectionEditor;
use crate::commands::{
    hash_deadlines, hashes, hyper_log_logs, lists, places, sets, sorted_sets, streams,
};
use crate::tree::VersionStamp;

/// The numbers of each module's commands, besides their bits, begin at a multiple of this.
const FAMILY: u16 = 256;

/// Returns the function of a command.
#[inline]
fn function_of(command: u16) -> Option<Execute> {
    match (command & !(ValueCall::WRITES | ValueCall::RANDOM)) / FAMILY {
        0 => hashes::function_of(command).or_else(|| hash_deadlines::function_of(command)),
        1 => lists::function_of(command),
        2 => sets::function_of(command),
        3 => sorted_sets::function_of(command),
        4 => streams::function_of(command),
        5 => places::function_of(command),
        6 => hyper_log_logs::function_of(command),
        _ => None,
    }
}

/// The commands that make a collection of their arguments if there is none.
const ADDING: [u16; 6] = [
    hashes::HSET,
    lists::LPUSH,
    lists::RPUSH,
    sets::SADD,
    sorted_sets::ZADD,
    places::GEOADD,
];
/// The most arguments of a command that changes a block: each change of a block takes time in proportion to it.
const BLOCK_ARGUMENTS: usize = 600;

/// Returns an editor for a command on a value, so that its many arguments do not change a block one by one;
/// `None`: it executes on the value as it is. The result is a block or not by its size.
#[must_use]
pub fn editor_for_many(
    call: &ValueCall<'_>,
    value: Option<StoredBlock<'_>>,
) -> Option<CollectionEditor> {
    let kind = match (call.command & !(ValueCall::WRITES | ValueCall::RANDOM)) / FAMILY {
        _ if call.is_read_only() || call.args.len() <= BLOCK_ARGUMENTS => return None,
        0 => Kind::Hash,
        1 => Kind::List,
        2 => Kind::Set,
        3 | 5 => Kind::SortedSet,
        _ => return None,
    };
    let block = match value {
        None if !ADDING.contains(&call.command) => return None,
        None => &b""[..],
        Some(value) if value.kind == kind => value.bytes,
        Some(_) => return None,
    };
    let stamp = VersionStamp(1);
    Some(CollectionEditor::of_packed(kind, block, stamp))
}

/// Executes a command on a value, at the time of its transaction in milliseconds since the Unix epoch; `None`:
/// the key is absent.
///
/// # Errors
/// Returns the reason why the command failed; nothing has changed.
#[inline]
pub fn execute<'v>(
    call: &ValueCall<'_>,
    value: Option<StoredValue<'v>>,
    time_ms: u64,
) -> Result<CallOutcome<'v>, OpError> {
    let execute = function_of(call.command).ok_or(OpError::Call(CallError::UnknownCommand))?;
    let call = CallArguments {
        args: &call.args,
        time_ms,
        seed: call.seed,
    };
    execute(call, value)
}
