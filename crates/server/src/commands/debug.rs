//! `DEBUG`: for tests and for looking into the data. Refused unless `--enable-debug-command` allows it.

use std::time::Duration;

use base::number::parse_int;
use resp::Args;

use super::arguments::is;
use crate::command::CommandKind::Deferred;
use crate::command::{CommandDefinition, DeferredAnswer, commands};
use crate::config::{DebugAccess, is_loopback};
use crate::key_walk::KeyWalk;
use crate::refusal::write_subcommand_syntax;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "debug" -2 "admin noscript loading stale" NONE("") "" ""
        "1.0.0" "Depends on subcommand.",
        Deferred(debug), "SLEEP, SET-ACTIVE-EXPIRE, OBJECT, DIGEST: for tests.";
};

/// The lines of `DEBUG HELP`.
const HELP: [&str; 11] = [
    "DEBUG <subcommand> [<arg> ...]. Subcommands are:",
    "SLEEP <seconds>",
    "    Has the thread that serves this connection sleep; its other connections wait, too.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Whether keys that have expired are removed in the background. No command sees them in either case.",
    "OBJECT <key>",
    "    How a value is kept.",
    "DIGEST",
    "    A digest of all keys with their values and deadlines; 0 if there are none.",
    "HELP",
    "    What can be asked.",
];

const NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
    \"local\", you can run it from a local connection, otherwise you need to set this option in the \
    configuration file, and then restart the server.";

fn debug(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    let allowed = match context.shared.config.debug_access {
        DebugAccess::No => false,
        DebugAccess::Local => is_loopback(session.client.address.ip()),
        DebugAccess::Yes => true,
    };
    if !allowed {
        session.writer().error(NOT_ALLOWED);
        return None;
    }
    let (word, count) = (args.at(1), args.len());
    if is(word, "sleep") && count == 3 {
        sleep(args.at(2));
        session.writer().ok();
        return None;
    }
    if is(word, "set-active-expire") && count == 3 {
        // As in Redis, a text that is no number counts as 0.
        let removes = parse_int(args.at(2)).is_some_and(|number| number != 0);
        context.shared.partition.remove_expired(removes);
        session.writer().ok();
        return None;
    }
    if is(word, "help") && count == 2 {
        let mut writer = session.writer();
        writer.array(HELP.len());
        HELP.iter().for_each(|line| writer.status(line));
        return None;
    }
    let partition = &context.shared.partition;
    let walk = if is(word, "digest") && count == 2 {
        KeyWalk::digest(partition)
    } else if is(word, "object") && count == 3 {
        KeyWalk::description(partition, session.database, args.at(2))
    } else {
        write_subcommand_syntax("DEBUG", args, &mut session.writer());
        return None;
    };
    if context.in_block {
        session
            .writer()
            .error("ERR this is not possible in a MULTI block");
        return None;
    }
    Some(DeferredAnswer::KeyWalk(Box::new(walk)))
}

/// Sleeps for as many seconds as a decimal number says.
fn sleep(seconds: &[u8]) {
    let seconds = std::str::from_utf8(seconds).ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    let time = seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    std::thread::sleep(time.unwrap_or_default());
}
