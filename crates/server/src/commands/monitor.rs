//! `MONITOR`: shows the commands of all clients.

use std::sync::atomic::Ordering;

use resp::Args;

use crate::command::CommandKind::Local;
use crate::command::{CommandDefinition, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "monitor" 1 "admin noscript loading stale" NONE("") "" ""
        "1.0.0" "O(1)",
        Local(monitor), "Shows the commands that clients give from now on, one a line.";
};

fn monitor(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    if context.in_block {
        let text = "ERR MONITOR isn't allowed for DENY BLOCKING client";
        return session.writer().error(text);
    }
    context.begin_monitor(session.key);
    session.monitors = true;
    session.client.monitors.store(true, Ordering::Relaxed);
    session.writer().ok();
}
