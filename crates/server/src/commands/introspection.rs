//! `COMMAND`: the contents of the table of commands, in Redis's form.

use resp::{Args, Writer};

use super::arguments::is;
use super::bit_fields::{FieldAction, FieldStep, field_steps};
use super::help::help;
use crate::command::CommandKind::{Introspection, Local};
use crate::command::{CommandDefinition, KeyPositions, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use base::glob;

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
    // Of counted keys clients see the specification below.
    let keys = match command.keys.first_key() {
        Some(_) => command.keys,
        None => KeyPositions::NONE,
    };
    writer.int(keys.first as i64);
    writer.int(keys.last.into());
    writer.int(keys.step as i64);
    writer.set(command.categories().count());
    for category in command.categories() {
        writer.status(&format!("@{category}"));
    }
    writer.set(command.tips.split_whitespace().count());
    for tip in command.tips.split_whitespace() {
        writer.bulk(tip.as_bytes());
    }
    write_key_specifications(command, writer);
    writer.set(command.subcommands.len());
    command
        .subcommands
        .iter()
        .for_each(|sub| write_info(sub, writer));
}

/// Writes where the keys are and what the command does with them: for each kind of access a range that
/// begins at an index, or behind an option. Keys in other places follow.
fn write_key_specifications(command: &CommandDefinition, writer: &mut Writer<'_>) {
    let keys = command.keys;
    let options = keys.options.map_or(&[][..], |options| options.names);
    let count = match keys.stored {
        0 => command.accesses().count(),
        _ => 1,
    };
    let fixed = count - options.len();
    writer.set(count + keys.hidden.len());
    for (number, access) in command.accesses().take(count).enumerate() {
        writer.map(3);
        writer.bulk(b"flags");
        write_access(access, writer);
        let option = number.checked_sub(fixed).map(|at| options[at]);
        let first = keys.first + number * keys.step;
        write_begin_search(keys, option, first, writer);
        writer.bulk(b"find_keys");
        writer.map(2);
        writer.bulk(b"type");
        if keys.follow_streams() {
            // The keys are one half of the arguments.
            let numbers = [("lastkey", -1), ("keystep", 1), ("limit", 2)];
            write_numbers(b"range", &numbers, writer);
            continue;
        }
        if keys.counted && first == keys.number() {
            let numbers = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
            write_numbers(b"keynum", &numbers, writer);
            continue;
        }
        // The last key counts from the first one, unless it counts from the end.
        let last = match i64::from(keys.last) {
            _ if number + 1 != fixed => 0,
            last if last < 0 => last,
            last => last - first as i64,
        };
        let step = keys.step as i64;
        let numbers = [("lastkey", last), ("keystep", step), ("limit", 0)];
        write_numbers(b"range", &numbers, writer);
    }
    for access in keys.hidden {
        writer.map(3);
        writer.bulk(b"flags");
        write_access(access, writer);
        for part in ["begin_search", "find_keys"] {
            writer.bulk(part.as_bytes());
            writer.map(2);
            writer.bulk(b"type");
            write_numbers(b"unknown", &[], writer);
        }
    }
}

/// Writes where the search for keys begins: behind an option, or at an index.
fn write_begin_search(
    keys: KeyPositions,
    option: Option<&str>,
    index: usize,
    writer: &mut Writer<'_>,
) {
    writer.bulk(b"begin_search");
    writer.map(2);
    writer.bulk(b"type");
    let keyword = match (option, keys.options) {
        (Some(name), Some(options)) => Some((name, options.first)),
        _ => keys.follow_streams().then_some(("STREAMS", index)),
    };
    match keyword {
        Some((name, first)) => {
            writer.bulk(b"keyword");
            writer.bulk(b"spec");
            writer.map(2);
            writer.bulk(b"keyword");
            writer.bulk(name.as_bytes());
            writer.bulk(b"startfrom");
            writer.int(first as i64);
        }
        None => write_numbers(b"index", &[("index", index as i64)], writer),
    }
}

/// Writes the rest of a specification: its kind, and its numbers by name.
fn write_numbers(kind: &[u8], numbers: &[(&str, i64)], writer: &mut Writer<'_>) {
    writer.bulk(kind);
    writer.bulk(b"spec");
    writer.map(numbers.len());
    for (name, value) in numbers {
        writer.bulk(name.as_bytes());
        writer.int(*value);
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
    writer.array(command.keys.indexes(args).count());
    for at in command.keys.indexes(args) {
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
    writer.array(command.keys.indexes(args).count());
    for (number, at) in command.keys.indexes(args).enumerate() {
        let of_key = command.accesses().take(number + 1).last();
        writer.array(2);
        writer.bulk(args.at(at));
        write_access(access_of(of_key.unwrap_or_default(), args), writer);
    }
}

/// Returns the access of a call, given that of the command. `SET` reads the old value only if the client asks for
/// it; `BITFIELD` may only read.
fn access_of(access: &'static str, args: Args<'_>) -> &'static str {
    if !access.ends_with("variable_flags") {
        return access;
    }
    let is_get = |step: &FieldStep| step.action == FieldAction::Get;
    let asks = || args.from(3).iter().any(|option| is(option, "get"));
    match is(args.at(0), "bitfield") {
        true if field_steps(args).is_ok_and(|steps| steps.iter().all(is_get)) => "RO access",
        false if !asks() => "OW update",
        _ => "RW access update",
    }
}
