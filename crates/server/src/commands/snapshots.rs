//! `KUMIKI.SNAPSHOT`: a consistent copy of all keys, in pieces. It is Kumiki's own; `kumiki pages
//! export` sends it.

use resp::Args;

use super::help::help;
use crate::command::CommandKind::{Container, Local, SnapshotBegin, SnapshotEnd, SnapshotNext};
use crate::command::{CommandDefinition, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "kumiki.snapshot" -2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "Depends on subcommand.",
        Container, SNAPSHOT, "A consistent copy of all keys, in pieces.";
};

const SNAPSHOT: &[CommandDefinition] = commands! { "server";
    "kumiki.snapshot|begin" -2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        SnapshotBegin, "Begins one for this connection; MATCH pattern: of such keys.";
    "kumiki.snapshot|next" -2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "O(N) where N is the number of entries.",
        SnapshotNext, "The next entries of it, COUNT at most, and whether there may be more.";
    "kumiki.snapshot|end" 2 "readonly admin no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        SnapshotEnd, "Gives it back.";
    "kumiki.snapshot|help" 2 "loading stale" NONE("") "" ""
        "0.1.0" "O(1)",
        Local(snapshot_help), "What can be asked.";
};

fn snapshot_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("KUMIKI.SNAPSHOT", SNAPSHOT, session);
}
