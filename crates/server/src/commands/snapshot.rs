//! `KUMIKI.SNAPSHOT`: a consistent copy of all keys, in pieces. It is Kumiki's own; `kumiki pages
//! export` gives it.

use resp::Args;

use super::admin::{help, local};
use crate::command::{Command, Flags, Keys, Run};
use crate::connection::Connection;
use crate::shared::Context;

const NAME: &str = "KUMIKI.SNAPSHOT";

/// It is about one node, and about a connection: nothing for a `MULTI` block, nor for those who
/// share connections.
const FLAGS: Flags = Flags::READ.and(Flags::ADMIN).and(Flags::NO_MULTI);

const fn command(name: &'static str, arity: i32, run: Run, summary: &'static str) -> Command {
    Command {
        name,
        arity,
        flags: FLAGS,
        keys: Keys::NONE,
        run,
        group: "server",
        summary,
        subcommands: &[],
    }
}

pub(super) const COMMANDS: &[Command] = &[Command {
    subcommands: SNAPSHOT,
    ..command(
        "kumiki.snapshot",
        -2,
        Run::Container,
        "A consistent copy of all keys, in pieces.",
    )
}];

const SNAPSHOT: &[Command] = &[
    command(
        "kumiki.snapshot|begin",
        -2,
        Run::BeginSnapshot,
        "Begins one for this connection; MATCH pattern: of such keys.",
    ),
    command(
        "kumiki.snapshot|next",
        -2,
        Run::NextOfSnapshot,
        "The next entries of it, COUNT at most, and whether there may be more.",
    ),
    command("kumiki.snapshot|end", 2, Run::EndSnapshot, "Gives it back."),
    local(
        "kumiki.snapshot|help",
        2,
        Flags::NONE,
        snapshot_help,
        "What can be asked.",
    ),
];

fn snapshot_help(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    help(NAME, SNAPSHOT, connection);
}
