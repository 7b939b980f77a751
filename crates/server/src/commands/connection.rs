//! Commands on the connection itself.

use channels::frames::write_subscriber_pong;
use resp::Args;

use crate::command::CommandKind::{Local, Reset};
use crate::command::{CommandDefinition, commands};
use crate::database_selection::parse_database;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "connection";
    "ping" -1 "fast subscriber" NONE("") "connection" "request_policy:all_shards response_policy:all_succeeded"
        "1.0.0" "O(1)",
        Local(ping), "Answers PONG, or its argument.";
    "echo" 2 "loading stale fast" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Local(echo), "Answers its argument.";
    "select" 2 "loading stale fast" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Local(select), "Selects a database by its number.";
    "quit" -1 "noscript loading stale fast no_auth allow_busy immediate subscriber" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Local(quit), "Closes the connection.";
    "reset" 1 "noscript loading stale fast no_auth allow_busy immediate subscriber" NONE("") "connection" ""
        "6.2.0" "O(1)",
        Reset, "Forgets everything about the connection.";
};

fn ping(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    match args.len() {
        1 | 2 if session.takes_only_messages() => {
            write_subscriber_pong(args.get(1), &mut session.writer());
        }
        1 => session.writer().status("PONG"),
        2 => session.writer().bulk(args.at(1)),
        _ => session
            .writer()
            .error("ERR wrong number of arguments for 'ping' command"),
    }
}

fn echo(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    session.writer().bulk(args.at(1));
}

fn select(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    match parse_database(args.at(1), context.shared.config.databases) {
        Ok(number) => {
            session.database = number;
            session.writer().ok();
        }
        Err(refusal) => refusal.write("select", &mut session.writer()),
    }
}

fn quit(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    session.writer().ok();
    session.closing = true;
}
