//! `SLOWLOG`: the last commands whose execution took long.

use resp::Args;

use super::arguments::int;
use super::help::help;
use crate::command::CommandKind::{Container, Local};
use crate::command::{CommandDefinition, commands};
use crate::refusal::write_subcommand_syntax;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use crate::unix_time::unix_ms;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "slowlog" -2 "" NONE("") "" ""
        "2.2.12" "Depends on subcommand.",
        Container, SLOWLOG, "About commands that took long.";
};

const SLOWLOG: &[CommandDefinition] = commands! { "server";
    "slowlog|get" -2 "admin loading stale" NONE("") "" "request_policy:all_nodes nondeterministic_output"
        "2.2.12" "O(N) where N is the number of entries returned",
        Local(get), "The newest entries: number, time, microseconds, arguments, client.";
    "slowlog|len" 2 "admin loading stale" NONE("") "" "request_policy:all_nodes response_policy:agg_sum nondeterministic_output"
        "2.2.12" "O(1)",
        Local(len), "How many entries there are.";
    "slowlog|reset" 2 "admin loading stale" NONE("") "" "request_policy:all_nodes response_policy:all_succeeded"
        "2.2.12" "O(N) where N is the number of entries in the slowlog",
        Local(reset), "Drops all entries.";
    "slowlog|help" 2 "loading stale" NONE("") "" ""
        "6.2.0" "O(1)",
        Local(slowlog_help), "What can be asked.";
};

fn slowlog_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("SLOWLOG", SLOWLOG, session);
}

fn get(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if args.len() > 3 {
        return write_subcommand_syntax("SLOWLOG", args, &mut session.writer());
    }
    let most = match args.get(2).map(int) {
        None => 10,
        Some(Ok(-1)) => usize::MAX,
        Some(Ok(count @ 0..)) => usize::try_from(count).unwrap_or(usize::MAX),
        Some(_) => {
            let text = "ERR count should be greater than or equal to -1";
            return session.writer().error(text);
        }
    };
    let entries = context.shared.slow_log.newest(most);
    let mut writer = session.writer();
    writer.array(entries.len());
    for entry in entries {
        writer.array(6);
        writer.int(entry.id as i64);
        writer.int((unix_ms(entry.at) / 1000) as i64);
        writer.int(i64::try_from(entry.took.as_micros()).unwrap_or(i64::MAX));
        writer.array(entry.args.len());
        entry.args.iter().for_each(|arg| writer.bulk(arg));
        writer.bulk(entry.address.to_string().as_bytes());
        writer.bulk(&entry.name);
    }
}

fn len(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let len = context.shared.slow_log.len();
    session.writer().int(len as i64);
}

fn reset(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    context.shared.slow_log.clear();
    session.writer().ok();
}
