//! `XINFO`: descriptions of streams.

use resp::Args;

use super::help::help;
use super::streams::of_second;
use crate::command::CommandKind::{Container, Local, Store};
use crate::command::{CommandDefinition, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "stream";
    "xinfo" -2 "" NONE("") "" ""
        "5.0.0" "Depends on subcommand.",
        Container, XINFO, "About streams.";
};

const XINFO: &[CommandDefinition] = commands! { "stream";
    "xinfo|stream" -3 "readonly" SECOND("RO access") "stream" ""
        "5.0.0" "O(N) where N is the number of nodes of the stream; with FULL also of what it shows.",
        Store(of_second::<{ values::streams::XINFO_STREAM }>), "Properties of a stream; with FULL also its entries and groups.";
    "xinfo|groups" 3 "readonly" SECOND("RO access") "stream" ""
        "5.0.0" "O(N) where N is the number of pending entries of all groups.",
        Store(of_second::<{ values::streams::XINFO_GROUPS }>), "The consumer groups of a stream.";
    "xinfo|consumers" 4 "readonly" SECOND("RO access") "stream" "nondeterministic_output"
        "5.0.0" "O(N) where N is the number of pending entries of the group.",
        Store(of_second::<{ values::streams::XINFO_CONSUMERS }>), "The consumers of a group.";
    "xinfo|help" 2 "loading stale" NONE("") "stream" ""
        "5.0.0" "O(1)",
        Local(xinfo_help), "What can be asked.";
};

fn xinfo_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("XINFO", XINFO, session);
}
