//! `COMMAND`: the contents of the table of commands, in Redis's form.

use resp::{Args, Writer};

use super::arguments::is;
use super::help::help;
use crate::command::CommandKind::{Introspection, Local};
use crate::command::{CommandDefinition, commands};
use crate::glob;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "command" -1 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "2.8.13" "O(N) where N is the number of commands.",
        Introspection(command_all), COMMAND, "About commands.";
};

const COMMAND: &[CommandDefinition] = commands! { "server";
    "command|count" 2 "loading stale" NONE("") "connection" ""
        "2.8.13" "O(1)",
        Introspection(command_count), "How many commands there are.";
    "command|info" -2 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "2.8.13" "O(N) where N is the number of commands to look up.",
        Introspection(command_info), "Properties of commands.";
    "command|docs" -2 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "7.0.0" "O(N) where N is the number of commands to look up.",
        Introspection(command_docs), "What commands are for.";
    "command|list" -2 "loading stale" NONE("") "connection" "nondeterministic_output_order"
        "7.0.0" "O(N) where N is the number of commands.",
        Introspection(command_list), "The names of commands.";
    "command|getkeys" -4 "loading stale" NONE("") "connection" ""
        "2.8.13" "O(N) where N is the number of arguments to the command",
        Introspection(command_getkeys), "The keys of a command.";
    "command|getkeysandflags" -4 "loading stale" NONE("") "connection" ""
        "7.0.0" "O(N) where N is the number of arguments to the command",
        Introspection(command_getkeysandflags), "The keys of a command, and what it does with them.";
    "command|help" 2 "loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(command_help), "What can be asked.";
};

fn command_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("COMMAND", COMMAND, session);
}

/// Returns the command with this name, in any case.
fn find(commands: &'static [CommandDefinition], name: &[u8]) -> Option<&'static CommandDefinition> {
    let mut commands = commands.iter();
    commands.find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the command with this name, which may have two words joined by `|`.
fn named(
    commands: &'static [CommandDefinition],
    name: &[u8],
) -> Option<&'static CommandDefinition> {
    match name.iter().position(|&byte| byte == b'|') {
        Some(at) => find(commands, &name[..at])?.subcommand(&name[at + 1..]),
        None => find(commands, name),
    }
}

fn command_count(commands: &'static [CommandDefinition], _: Args<'_>, writer: &mut Writer<'_>) {
    writer.int(commands.len() as i64);
}

fn command_all(commands: &'static [CommandDefinition], _: Args<'_>, writer: &mut Writer<'_>) {
    writer.array(commands.len());
    commands
        .iter()
        .for_each(|command| write_info(command, writer));
}

fn command_info(commands: &'static [CommandDefinition], args: Args<'_>, writer: &mut Writer<'_>) {
    if args.len() == 2 {
        return command_all(commands, args, writer);
    }
    writer.array(args.len() - 2);
    for name in args.from(2).iter() {
        match named(commands, name) {
            Some(command) => write_info(command, writer),
            None => writer.null(),
        }
    }
}

fn write_info(command: &CommandDefinition, writer: &mut Writer<'_>) {
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
fn write_key_specification(command: &CommandDefinition, writer: &mut Writer<'_>) {
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

fn command_docs(commands: &'static [CommandDefinition], args: Args<'_>, writer: &mut Writer<'_>) {
    let shown: Vec<&CommandDefinition> = match args.len() {
        2 => commands.iter().collect(),
        _ => args
            .from(2)
            .iter()
            .filter_map(|name| named(commands, name))
            .collect(),
    };
    writer.map(shown.len());
    shown.iter().for_each(|command| write_docs(command, writer));
}

fn write_docs(command: &CommandDefinition, writer: &mut Writer<'_>) {
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
enum CommandFilter<'a> {
    All,
    Pattern(&'a [u8]),
    Category(&'a [u8]),
    /// There are no modules.
    Module,
}

impl<'a> CommandFilter<'a> {
    fn parse(args: Args<'a>) -> Option<CommandFilter<'a>> {
        match (args.get(0), args.get(1), args.get(2)) {
            (None, ..) => Some(CommandFilter::All),
            (Some(by), Some(how), Some(value)) if args.len() == 3 && is(by, "filterby") => {
                match how.to_ascii_lowercase().as_slice() {
                    b"pattern" => Some(CommandFilter::Pattern(value)),
                    b"aclcat" => Some(CommandFilter::Category(value)),
                    b"module" => Some(CommandFilter::Module),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn takes(&self, command: &CommandDefinition) -> bool {
        match self {
            CommandFilter::All => true,
            CommandFilter::Pattern(pattern) => {
                glob::matches(pattern, command.name.as_bytes(), true)
            }
            CommandFilter::Category(name) => {
                command.categories().any(|category| is(name, category))
            }
            CommandFilter::Module => false,
        }
    }
}

fn command_list(commands: &'static [CommandDefinition], args: Args<'_>, writer: &mut Writer<'_>) {
    let Some(filter) = CommandFilter::parse(args.from(2)) else {
        return writer.error("ERR syntax error");
    };
    let every = commands
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let shown: Vec<_> = every.filter(|command| filter.takes(command)).collect();
    writer.array(shown.len());
    for command in shown {
        writer.bulk(command.name.as_bytes());
    }
}

/// Returns the command that these arguments call, if it has keys among them. Otherwise answers with
/// the reason why not.
fn called(
    commands: &'static [CommandDefinition],
    args: Args<'_>,
    writer: &mut Writer<'_>,
) -> Option<&'static CommandDefinition> {
    let command = find(commands, args.at(0));
    let command = match (command, args.get(1)) {
        (Some(command), Some(word)) if !command.subcommands.is_empty() => command.subcommand(word),
        (command, _) => command,
    };
    let Some(command) = command else {
        writer.error("ERR Invalid command specified");
        return None;
    };
    if !command.has_keys() {
        writer.error("ERR The command has no key arguments");
        return None;
    }
    if !command.takes(args.len()) {
        writer.error("ERR Invalid number of arguments specified for command");
        return None;
    }
    Some(command)
}

fn command_getkeys(
    commands: &'static [CommandDefinition],
    args: Args<'_>,
    writer: &mut Writer<'_>,
) {
    let args = args.from(2);
    let Some(command) = called(commands, args, writer) else {
        return;
    };
    let indexes = command.keys.indexes(args.len());
    writer.array(indexes.count());
    for at in command.keys.indexes(args.len()) {
        writer.bulk(args.at(at));
    }
}

fn command_getkeysandflags(
    commands: &'static [CommandDefinition],
    args: Args<'_>,
    writer: &mut Writer<'_>,
) {
    let args = args.from(2);
    let Some(command) = called(commands, args, writer) else {
        return;
    };
    let access = access_of(command, args);
    writer.array(command.keys.indexes(args.len()).count());
    for at in command.keys.indexes(args.len()) {
        writer.array(2);
        writer.bulk(args.at(at));
        write_access(access, writer);
    }
}

/// Returns what a call does with its keys. `SET` reads the old value only if the client asks for
/// it.
fn access_of(command: &CommandDefinition, args: Args<'_>) -> &'static str {
    if !command.access.ends_with("variable_flags") {
        return command.access;
    }
    match args.from(3).iter().any(|option| is(option, "get")) {
        true => "RW access update",
        false => "OW update",
    }
}
