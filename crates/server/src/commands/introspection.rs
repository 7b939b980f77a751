//! `COMMAND`: the contents of the table of commands, in Redis's form.

use resp::{Args, Writer};

use super::admin::help;
use super::is;
use super::table::COMMAND;
use crate::command::{Command, Table, table};
use crate::connection::Connection;
use crate::glob;
use crate::shared::Context;

pub(super) fn command_help(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    help("COMMAND", COMMAND, connection);
}

pub(super) fn command_count(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    connection.writer().int(table().all().count() as i64);
}

pub(super) fn command_all(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let mut writer = connection.writer();
    writer.array(table().all().count());
    table()
        .all()
        .for_each(|command| write_info(command, &mut writer));
}

pub(super) fn command_info(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if args.len() == 2 {
        return command_all(context, connection, args);
    }
    let mut writer = connection.writer();
    writer.array(args.len() - 2);
    for name in args.from(2).iter() {
        match table().named(name) {
            Some(command) => write_info(command, &mut writer),
            None => writer.null(),
        }
    }
}

fn write_info(command: &Command, writer: &mut Writer<'_>) {
    writer.array(10);
    writer.bulk(command.name.as_bytes());
    writer.int(command.arity.into());
    writer.set(command.flags.names().count());
    command.flags.names().for_each(|name| writer.status(name));
    writer.int(command.keys.first as i64);
    writer.int(command.keys.last.into());
    writer.int(command.keys.step as i64);
    writer.set(command.categories().count());
    for category in command.categories() {
        writer.status(&format!("@{category}"));
    }
    writer.set(command.tips.split_whitespace().count());
    for tip in command.tips.split_whitespace() {
        writer.bulk(tip.as_bytes());
    }
    write_key_specification(command, writer);
    writer.set(command.subcommands.len());
    command
        .subcommands
        .iter()
        .for_each(|sub| write_info(sub, writer));
}

/// Writes where the keys are and what the command does with them: a range that begins at an index,
/// if there are keys.
fn write_key_specification(command: &Command, writer: &mut Writer<'_>) {
    let keys = command.keys;
    if keys.first == 0 {
        return writer.set(0);
    }
    writer.set(1);
    writer.map(3);
    writer.bulk(b"flags");
    write_access(command.access, writer);
    writer.bulk(b"begin_search");
    writer.map(2);
    writer.bulk(b"type");
    writer.bulk(b"index");
    writer.bulk(b"spec");
    writer.map(1);
    writer.bulk(b"index");
    writer.int(keys.first as i64);
    writer.bulk(b"find_keys");
    writer.map(2);
    writer.bulk(b"type");
    writer.bulk(b"range");
    writer.bulk(b"spec");
    // The last key counts from the first one, unless it counts from the end.
    let last = if keys.last < 0 {
        i64::from(keys.last)
    } else {
        i64::from(keys.last) - keys.first as i64
    };
    writer.map(3);
    for (name, value) in [
        ("lastkey", last),
        ("keystep", keys.step as i64),
        ("limit", 0),
    ] {
        writer.bulk(name.as_bytes());
        writer.int(value);
    }
}

fn write_access(access: &str, writer: &mut Writer<'_>) {
    writer.set(access.split_whitespace().count());
    for flag in access.split_whitespace() {
        writer.status(flag);
    }
}

pub(super) fn command_docs(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let commands: Vec<&Command> = match args.len() {
        2 => table().all().collect(),
        _ => args
            .from(2)
            .iter()
            .filter_map(|name| table().named(name))
            .collect(),
    };
    let mut writer = connection.writer();
    writer.map(commands.len());
    commands
        .iter()
        .for_each(|command| write_docs(command, &mut writer));
}

fn write_docs(command: &Command, writer: &mut Writer<'_>) {
    writer.bulk(command.name.as_bytes());
    writer.map(if command.subcommands.is_empty() { 4 } else { 5 });
    for (name, text) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ] {
        writer.bulk(name.as_bytes());
        writer.bulk(text.as_bytes());
    }
    if !command.subcommands.is_empty() {
        writer.bulk(b"subcommands");
        writer.map(command.subcommands.len());
        command
            .subcommands
            .iter()
            .for_each(|sub| write_docs(sub, writer));
    }
}

/// The commands that `COMMAND LIST` shows.
enum Filter<'a> {
    All,
    Pattern(&'a [u8]),
    Category(&'a [u8]),
    /// There are no modules.
    Module,
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>) -> Option<Filter<'a>> {
        match (args.get(0), args.get(1), args.get(2)) {
            (None, ..) => Some(Filter::All),
            (Some(by), Some(how), Some(value)) if args.len() == 3 && is(by, "filterby") => {
                match how.to_ascii_lowercase().as_slice() {
                    b"pattern" => Some(Filter::Pattern(value)),
                    b"aclcat" => Some(Filter::Category(value)),
                    b"module" => Some(Filter::Module),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn takes(&self, command: &Command) -> bool {
        match self {
            Filter::All => true,
            Filter::Pattern(pattern) => glob::matches(pattern, command.name.as_bytes(), true),
            Filter::Category(name) => command.categories().any(|category| is(name, category)),
            Filter::Module => false,
        }
    }
}

pub(super) fn command_list(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let Some(filter) = Filter::parse(args.from(2)) else {
        return connection.writer().error("ERR syntax error");
    };
    let every = table().every();
    let shown: Vec<_> = every.filter(|command| filter.takes(command)).collect();
    let mut writer = connection.writer();
    writer.array(shown.len());
    for command in shown {
        writer.bulk(command.name.as_bytes());
    }
}

/// Returns the command that these arguments call, if it has keys among them. Otherwise answers with
/// the reason why not.
fn called(args: Args<'_>, writer: &mut Writer<'_>) -> Option<&'static Command> {
    let command = table().find(args.at(0));
    let command = match (command, args.get(1)) {
        (Some(command), Some(word)) if !command.subcommands.is_empty() => {
            Table::find_sub(command, word)
        }
        (command, _) => command,
    };
    let Some(command) = command else {
        writer.error("ERR Invalid command specified");
        return None;
    };
    if command.keys.first == 0 {
        writer.error("ERR The command has no key arguments");
        return None;
    }
    if !command.takes(args.len()) {
        writer.error("ERR Invalid number of arguments specified for command");
        return None;
    }
    Some(command)
}

pub(super) fn command_getkeys(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let args = args.from(2);
    let mut writer = connection.writer();
    let Some(command) = called(args, &mut writer) else {
        return;
    };
    let indexes = command.keys.indexes(args.len());
    writer.array(indexes.count());
    for at in command.keys.indexes(args.len()) {
        writer.bulk(args.at(at));
    }
}

pub(super) fn command_getkeysandflags(
    _: &mut Context,
    connection: &mut Connection,
    args: Args<'_>,
) {
    let args = args.from(2);
    let mut writer = connection.writer();
    let Some(command) = called(args, &mut writer) else {
        return;
    };
    let access = access_of(command, args);
    writer.array(command.keys.indexes(args.len()).count());
    for at in command.keys.indexes(args.len()) {
        writer.array(2);
        writer.bulk(args.at(at));
        write_access(access, &mut writer);
    }
}

/// Returns what a call does with its keys. `SET` reads the old value only if the client asks for
/// it.
fn access_of(command: &Command, args: Args<'_>) -> &'static str {
    if !command.access.ends_with("variable_flags") {
        return command.access;
    }
    match args.from(3).iter().any(|option| is(option, "get")) {
        true => "RW access update",
        false => "OW update",
    }
}
