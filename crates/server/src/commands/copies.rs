//! Commands that give a key's value to another key. The two may be in different slots, on different nodes,
//! and in different databases.

use base::database;
use resp::{Args, Writer};

use super::arguments::is;
use crate::command::CommandKind::Sequence;
use crate::command::{CommandDefinition, CompoundStop, commands};
use crate::database_selection::parse_database;
use crate::refusal::Refusal;
use crate::transaction_keys::TransactionKeys;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "generic";
    "rename" 3 "write" FIRST_TWO("RW access delete; OW update") "keyspace" ""
        "1.0.0" "O(1)",
        Sequence(rename), "Gives a key another name; a key that has the name is replaced.";
    "renamenx" 3 "write fast" FIRST_TWO("RW access delete; OW insert") "keyspace" ""
        "1.0.0" "O(1)",
        Sequence(renamenx), "Gives a key another name, which no key has.";
    "copy" -3 "write denyoom" FIRST_TWO("RO access; OW update") "keyspace" ""
        "6.2.0" "O(N) where N is the length of the value.",
        Sequence(copy), "Gives the value of a key to another key as well.";
    "move" 3 "write fast" ONE("RW access update") "keyspace" ""
        "1.0.0" "O(1)",
        Sequence(move_to_database), "Moves a key to another database.";
};

const SAME_KEY: Refusal = Refusal::Text("ERR source and destination objects are the same");
const NO_SUCH_KEY: Refusal = Refusal::Text("ERR no such key");

fn rename(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let (from, to) = (args.at(1), args.at(2));
    require(from, keys)?;
    if from != to {
        keys.copy(from, to, true)?;
    }
    writer.ok();
    Ok(())
}

fn renamenx(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let (from, to) = (args.at(1), args.at(2));
    require(from, keys)?;
    let is_moved = keys.kind(to)?.is_none() && keys.copy(from, to, true)?;
    writer.int(is_moved.into());
    Ok(())
}

/// Refuses a key that is absent.
fn require(key: &[u8], keys: &mut TransactionKeys<'_, '_>) -> Result<(), CompoundStop> {
    match keys.kind(key)? {
        Some(_) => Ok(()),
        None => Err(NO_SUCH_KEY.into()),
    }
}

fn copy(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let from = args.at(1);
    let (mut replaces, mut database, mut at) = (false, database::number(from), 3);
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            _ if is(option, "replace") => replaces = true,
            Some(number) if is(option, "db") => {
                database = parse_database(number, keys.databases())?;
                at += 1;
            }
            _ => return Err(Refusal::Syntax.into()),
        }
        at += 1;
    }
    let to = &in_database(database, args.at(2))[..];
    if from == to {
        return Err(SAME_KEY.into());
    }
    let may_copy = replaces || keys.kind(to)?.is_none();
    let is_copied = may_copy && keys.copy(from, to, false)?;
    writer.int(is_copied.into());
    Ok(())
}

fn move_to_database(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let from = args.at(1);
    let to = in_database(parse_database(args.at(2), keys.databases())?, from);
    if from == to {
        return Err(SAME_KEY.into());
    }
    let is_moved = keys.kind(&to)?.is_none() && keys.copy(from, &to, true)?;
    writer.int(is_moved.into());
    Ok(())
}

/// Returns the same key of another database.
fn in_database(database: u16, key: &[u8]) -> Vec<u8> {
    database::qualified(database, database::client_key(key))
}
