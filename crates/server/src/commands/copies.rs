//! Commands that give a key's value to another key. The two may be in different slots, on different nodes,
//! and in different databases.

use base::database;
use base::key_event::KeyEvent;
use resp::{Args, Writer};

use super::arguments::is;
use crate::command::CommandKind::Compound;
use crate::command::{CommandDefinition, CompoundStop, commands};
use crate::database_selection::parse_database;
use crate::refusal::{Refusal, write_op_error};
use crate::working_set::WorkingSet;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "generic";
    "rename" 3 "write" FIRST_TWO("RW access delete; OW update") "keyspace" ""
        "1.0.0" "O(1)",
        Compound(rename), "Gives a key another name; a key that has the name is replaced.";
    "renamenx" 3 "write fast" FIRST_TWO("RW access delete; OW insert") "keyspace" ""
        "1.0.0" "O(1)",
        Compound(renamenx), "Gives a key another name, which no key has.";
    "copy" -3 "write denyoom" FIRST_TWO("RO access; OW update") "keyspace" ""
        "6.2.0" "O(N) where N is the length of the value.",
        Compound(copy), "Gives the value of a key to another key as well.";
    "move" 3 "write fast" ONE("RW access update") "keyspace" ""
        "1.0.0" "O(1)",
        Compound(move_to_database), "Moves a key to another database.";
};

const SAME_KEY: Refusal = Refusal::Text("ERR source and destination objects are the same");
const NO_SUCH_KEY: Refusal = Refusal::Text("ERR no such key");

fn rename(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    move_value(args.at(1), args.at(2), set, writer)?.then(|| writer.ok());
    Ok(())
}

fn renamenx(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let (from, to) = (args.at(1), args.at(2));
    if set.value(from).is_none() {
        return Err(NO_SUCH_KEY.into());
    }
    if set.value(to).is_some() {
        writer.int(0);
        return Ok(());
    }
    move_value(from, to, set, writer)?.then(|| writer.int(1));
    Ok(())
}

/// Returns `true` if it has moved the value; otherwise it has written an error.
fn move_value(
    from: &[u8],
    to: &[u8],
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<bool, Refusal> {
    let value = set.value(from).ok_or(NO_SUCH_KEY)?.clone();
    if from == to {
        return Ok(true);
    }
    let moved = set.set(to, Some(value)).and_then(|()| set.set(from, None));
    match moved {
        Ok(()) => {
            set.note(from, KeyEvent::RenameFrom);
            set.note(to, KeyEvent::RenameTo);
        }
        Err(error) => write_op_error(error, "rename", writer),
    }
    Ok(moved.is_ok())
}

fn copy(args: Args<'_>, set: &mut WorkingSet, writer: &mut Writer<'_>) -> Result<(), CompoundStop> {
    let from = args.at(1);
    let (mut replaces, mut database, mut at) = (false, database::number(from), 3);
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            _ if is(option, "replace") => replaces = true,
            Some(number) if is(option, "db") => {
                database = parse_database(number, set.databases())?;
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
    set.require([to].into_iter())?;
    let value = set.value(from).cloned();
    if value.is_none() || set.value(to).is_some() && !replaces {
        writer.int(0);
        return Ok(());
    }
    match set.set(to, value) {
        Ok(()) => {
            set.note(to, KeyEvent::CopyTo);
            writer.int(1);
        }
        Err(error) => write_op_error(error, "copy", writer),
    }
    Ok(())
}

fn move_to_database(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let from = args.at(1);
    let to = in_database(parse_database(args.at(2), set.databases())?, from);
    if from == to {
        return Err(SAME_KEY.into());
    }
    set.require([&to[..]].into_iter())?;
    if set.value(from).is_none() || set.value(&to).is_some() {
        writer.int(0);
        return Ok(());
    }
    move_value(from, &to, set, writer)?.then(|| writer.int(1));
    Ok(())
}

/// Returns the same key of another database.
fn in_database(database: u16, key: &[u8]) -> Vec<u8> {
    database::qualified(database, database::client_key(key))
}
