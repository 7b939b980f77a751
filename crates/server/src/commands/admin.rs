//! Commands about the server.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use base::Op;
use base::size::Size;
use resp::{Args, Writer};

use super::is;
use crate::command::{Command, Flags, Keys, Local, Ops, Plan, Run, Table, table};
use crate::connection::Connection;
use crate::glob;
use crate::refusal::Refusal;
use crate::render::Render;
use crate::shared::{Context, Shared};

/// A command about the server, which touches no keys.
pub(super) const fn local(
    name: &'static str,
    arity: i32,
    flags: Flags,
    run: Local,
    summary: &'static str,
) -> Command {
    let (run, keys) = (Run::Local(run), Keys::NONE);
    Command {
        name,
        arity,
        flags,
        keys,
        run,
        group: "server",
        summary,
        subcommands: &[],
    }
}

const fn store(
    name: &'static str,
    arity: i32,
    flags: Flags,
    plan: Plan,
    summary: &'static str,
) -> Command {
    let (run, keys) = (Run::Store(plan), Keys::NONE);
    Command {
        name,
        arity,
        flags,
        keys,
        run,
        group: "server",
        summary,
        subcommands: &[],
    }
}

pub(super) const COMMANDS: &[Command] = &[
    store(
        "dbsize",
        1,
        Flags::READ.and(Flags::FAST),
        dbsize,
        "How many keys there are.",
    ),
    store("flushdb", -1, Flags::WRITE, flush, "Deletes all keys."),
    store("flushall", -1, Flags::WRITE, flush, "Deletes all keys."),
    local(
        "time",
        1,
        Flags::FAST,
        time,
        "The server's clock: seconds and microseconds.",
    ),
    local("info", -1, Flags::NONE, info, "Figures about the server."),
    Command {
        subcommands: COMMAND,
        ..local("command", -1, Flags::NONE, command_all, "About commands.")
    },
    Command {
        run: Run::Container,
        subcommands: CONFIG,
        ..local(
            "config",
            -2,
            Flags::ADMIN,
            config_help,
            "About the configuration.",
        )
    },
];

const COMMAND: &[Command] = &[
    local(
        "command|count",
        2,
        Flags::NONE,
        command_count,
        "How many commands there are.",
    ),
    local(
        "command|info",
        -2,
        Flags::NONE,
        command_info,
        "Properties of commands.",
    ),
    local(
        "command|docs",
        -2,
        Flags::NONE,
        command_docs,
        "What commands are for.",
    ),
    local(
        "command|list",
        -2,
        Flags::NONE,
        command_list,
        "The names of commands.",
    ),
    local(
        "command|getkeys",
        -4,
        Flags::NONE,
        command_getkeys,
        "The keys of a command.",
    ),
    local(
        "command|help",
        2,
        Flags::NONE,
        command_help,
        "What can be asked.",
    ),
];

const CONFIG: &[Command] = &[
    local(
        "config|get",
        -3,
        Flags::ADMIN,
        config_get,
        "Values of the configuration.",
    ),
    local(
        "config|set",
        -4,
        Flags::ADMIN,
        config_set,
        "Changes the configuration.",
    ),
    local(
        "config|resetstat",
        2,
        Flags::ADMIN,
        config_resetstat,
        "Starts counting anew.",
    ),
    local(
        "config|help",
        2,
        Flags::NONE,
        config_help,
        "What can be asked.",
    ),
];

fn dbsize<'a>(_: Args<'a>, ops: &mut Ops<'a>) -> Result<Render<'a>, Refusal> {
    ops.push(Op::Count);
    Ok(Render::Plain)
}

fn flush<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Result<Render<'a>, Refusal> {
    let option = args
        .get(1)
        .is_none_or(|option| is(option, "async") || is(option, "sync"));
    if args.len() > 2 || !option {
        return Err(Refusal::Syntax);
    }
    ops.push(Op::Flush);
    Ok(Render::Plain)
}

fn time(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut writer = connection.writer();
    writer.array(2);
    writer.bulk_int(now.as_secs() as i64);
    writer.bulk_int(i64::from(now.subsec_micros()));
}

fn info(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let text = crate::info::report(&context.shared, args.from(1));
    connection.writer().verbatim(b"txt", text.as_bytes());
}

/// The lines of a `HELP`.
pub(super) fn help(container: &str, commands: &[Command], connection: &mut Connection) {
    let mut writer = connection.writer();
    writer.array(1 + 2 * commands.len());
    writer.status(&format!(
        "{container} <subcommand> [<arg> ...]. Subcommands are:"
    ));
    for command in commands {
        let word = &command.name[container.len() + 1..];
        writer.status(&word.to_ascii_uppercase());
        writer.status(&format!("    {}", command.summary));
    }
}

fn command_help(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    help("COMMAND", COMMAND, connection);
}

fn config_help(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    help("CONFIG", CONFIG, connection);
}

fn command_count(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    connection.writer().int(super::all().count() as i64);
}

fn command_all(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let mut writer = connection.writer();
    writer.array(super::all().count());
    super::all().for_each(|command| write_info(command, &mut writer));
}

/// A command by its name, which may have two words joined by `|`.
fn named(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|&byte| byte == b'|') {
        Some(at) => Table::find_sub(table().find(&name[..at])?, &name[at + 1..]),
        None => table().find(name),
    }
}

fn command_info(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if args.len() == 2 {
        return command_all(context, connection, args);
    }
    let mut writer = connection.writer();
    writer.array(args.len() - 2);
    for name in args.from(2).iter() {
        match named(name) {
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
    // Categories and key specifications are not told.
    writer.set(0);
    let tips = tips(command.name);
    writer.set(tips.len());
    tips.iter().for_each(|tip| writer.bulk(tip.as_bytes()));
    writer.set(0);
    writer.set(command.subcommands.len());
    command
        .subcommands
        .iter()
        .for_each(|sub| write_info(sub, writer));
}

/// What clients of a cluster should know of commands that concern one node's part of the keys. Those
/// of several keys are not to be split: a node that gets them whole executes them atomically.
fn tips(name: &str) -> &'static [&'static str] {
    match name {
        "dbsize" => &["request_policy:all_shards", "response_policy:agg_sum"],
        "keys" => &["request_policy:all_shards", "nondeterministic_output_order"],
        "scan" => &["nondeterministic_output", "request_policy:special"],
        "flushall" | "flushdb" => &["request_policy:all_shards", "response_policy:all_succeeded"],
        _ => &[],
    }
}

fn command_docs(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let commands: Vec<&Command> = match args.len() {
        2 => super::all().collect(),
        _ => args.from(2).iter().filter_map(named).collect(),
    };
    let mut writer = connection.writer();
    writer.map(commands.len());
    commands
        .iter()
        .for_each(|command| write_docs(command, &mut writer));
}

fn write_docs(command: &Command, writer: &mut Writer<'_>) {
    writer.bulk(command.name.as_bytes());
    writer.map(if command.subcommands.is_empty() { 3 } else { 4 });
    for (name, text) in [
        ("summary", command.summary),
        ("since", "1.0.0"),
        ("group", command.group),
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

fn command_list(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let pattern = match (args.get(2), args.get(3), args.get(4)) {
        (None, ..) => None,
        (Some(by), Some(how), Some(pattern))
            if args.len() == 5 && is(by, "filterby") && is(how, "pattern") =>
        {
            Some(pattern)
        }
        _ => return connection.writer().error("ERR syntax error"),
    };
    let shown = |command: &&Command| {
        pattern.is_none_or(|pattern| glob::matches(pattern, command.name.as_bytes(), true))
    };
    let mut writer = connection.writer();
    writer.array(super::all().filter(|command| shown(command)).count());
    super::all()
        .filter(|command| shown(command))
        .for_each(|command| writer.bulk(command.name.as_bytes()));
}

fn command_getkeys(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let args = args.from(2);
    let mut writer = connection.writer();
    let Some(command) = table().find(args.at(0)) else {
        return writer.error("ERR Invalid command specified");
    };
    if command.keys.first == 0 {
        return writer.error("ERR The command has no key arguments");
    }
    if !command.takes(args.len()) {
        return writer.error("ERR Invalid number of arguments specified for command");
    }
    let indexes = command.keys.indexes(args.len());
    writer.array(indexes.count());
    command
        .keys
        .indexes(args.len())
        .for_each(|at| writer.bulk(args.at(at)));
}

/// What `CONFIG GET` knows: Redis's names, so that its tools understand the answer.
fn parameters(shared: &Shared) -> Vec<(&'static str, String)> {
    let config = &shared.config;
    let yes = |flag| if flag { "yes" } else { "no" }.to_owned();
    let text = |text: &str| text.to_owned();
    vec![
        (
            "appendfsync",
            text(if config.data.is_some() {
                "always"
            } else {
                "no"
            }),
        ),
        ("appendonly", yes(config.data.is_some())),
        ("bind", config.listen.ip().to_string()),
        (
            "client-query-buffer-limit",
            config.limits.query_buffer.to_string(),
        ),
        ("cluster-enabled", yes(config.cluster.is_some())),
        ("databases", text("1")),
        (
            "dir",
            config
                .data
                .as_ref()
                .map_or(String::new(), |dir| dir.display().to_string()),
        ),
        ("io-threads", config.threads.to_string()),
        ("maxclients", config.limits.clients.to_string()),
        ("maxmemory-clients", config.limits.in_flight.to_string()),
        (
            "maxmemory",
            shared.memory.most.load(Ordering::Relaxed).to_string(),
        ),
        ("maxmemory-policy", text("noeviction")),
        ("port", shared.port.to_string()),
        ("proto-max-bulk-len", config.limits.request.bulk.to_string()),
        ("protected-mode", yes(!config.insecure)),
        ("requirepass", config.password.clone().unwrap_or_default()),
        ("save", String::new()),
        ("tcp-keepalive", text("300")),
        (
            "timeout",
            config
                .limits
                .idle
                .map_or(0, |idle| idle.as_secs())
                .to_string(),
        ),
    ]
}

fn config_get(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let mut chosen = parameters(&context.shared);
    chosen.retain(|(name, _)| {
        args.from(2)
            .iter()
            .any(|pattern| glob::matches(pattern, name.as_bytes(), true))
    });
    let mut writer = connection.writer();
    writer.map(chosen.len());
    for (name, value) in chosen {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
}

fn config_set(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let mut writer = connection.writer();
    if !args.len().is_multiple_of(2) {
        return writer.error("ERR syntax error");
    }
    let mut most = None;
    for at in (2..args.len()).step_by(2) {
        let (name, value) = (args.at(at), args.at(at + 1));
        let shown = || String::from_utf8_lossy(name).into_owned();
        if is(name, "maxmemory") {
            let size = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<Size>().ok());
            let Some(size) = size else {
                return writer.error(
                    "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument \
                     must be a memory value",
                );
            };
            most = Some(size.0);
        } else if parameters(&context.shared)
            .iter()
            .any(|(known, _)| is(name, known))
        {
            return writer.error(&format!(
                "ERR CONFIG SET failed (possibly related to argument '{}') - can't set immutable \
                 config",
                shown()
            ));
        } else {
            let text = format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                shown()
            );
            return writer.error(&text);
        }
    }
    if let Some(most) = most {
        context.shared.limit_memory(most);
    }
    writer.ok();
}

fn config_resetstat(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let counters = &context.shared.counters;
    for counter in [
        &counters.connections,
        &counters.rejected,
        &counters.commands,
        &counters.reads,
        &counters.writes,
        &counters.bytes_in,
        &counters.bytes_out,
        &counters.errors,
    ] {
        counter.store(0, Ordering::Relaxed);
    }
    connection.writer().ok();
}
