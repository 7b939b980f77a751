//! Commands that give a key's value to another key. The two may be in different slots and on different
//! nodes.

use base::key_event::KeyEvent;
use resp::{Args, Writer};

use super::arguments::{int, is};
use crate::command::CommandKind::Compound;
use crate::command::{CommandDefinition, commands};
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
};

const NO_SUCH_KEY: Refusal = Refusal::Text("ERR no such key");

fn rename(args: Args<'_>, set: &mut WorkingSet, writer: &mut Writer<'_>) -> Result<(), Refusal> {
    move_value(args.at(1), args.at(2), set, writer)?.then(|| writer.ok());
    Ok(())
}

fn renamenx(args: Args<'_>, set: &mut WorkingSet, writer: &mut Writer<'_>) -> Result<(), Refusal> {
    let (from, to) = (args.at(1), args.at(2));
    if set.value(from).is_none() {
        return Err(NO_SUCH_KEY);
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

fn copy(args: Args<'_>, set: &mut WorkingSet, writer: &mut Writer<'_>) -> Result<(), Refusal> {
    let (from, to) = (args.at(1), args.at(2));
    let (mut replaces, mut at) = (false, 3);
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            _ if is(option, "replace") => replaces = true,
            Some(database) if is(option, "db") => {
                if int(database)? != 0 {
                    return Err(Refusal::Text("ERR DB index is out of range"));
                }
                at += 1;
            }
            _ => return Err(Refusal::Syntax),
        }
        at += 1;
    }
    if from == to {
        return Err(Refusal::Text(
            "ERR source and destination objects are the same",
        ));
    }
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
