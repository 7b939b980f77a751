//! Commands that write streams, and those that read ranges of one.

use resp::Args;

use super::help::help;
use super::values::{plan, value};
use crate::command::CommandKind::{Container, Local, Store};
use crate::command::{CommandDefinition, Ops, Planned, commands};
use crate::render::Render;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "stream";
    "xadd" -5 "write denyoom fast" ONE("RW update") "stream" "nondeterministic_output"
        "5.0.0" "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
        Store(value::<{ values::streams::XADD }>), "Adds an entry to a stream; answers its id.";
    "xlen" 2 "readonly fast" ONE("RO") "stream" ""
        "5.0.0" "O(1)",
        Store(value::<{ values::streams::XLEN }>), "How many entries a stream has.";
    "xrange" -4 "readonly" ONE("RO access") "stream" ""
        "5.0.0" "O(N) with N being the number of elements being returned.",
        Store(value::<{ values::streams::XRANGE }>), "The entries between two ids.";
    "xrevrange" -4 "readonly" ONE("RO access") "stream" ""
        "5.0.0" "O(N) with N being the number of elements being returned.",
        Store(value::<{ values::streams::XREVRANGE }>), "The entries between two ids, the last one first.";
    "xdel" -3 "write fast" ONE("RW delete") "stream" ""
        "5.0.0" "O(1) for each single item to delete in the stream, regardless of the stream size.",
        Store(value::<{ values::streams::XDEL }>), "Deletes entries; answers how many there were.";
    "xtrim" -4 "write" ONE("RW delete") "stream" "nondeterministic_output"
        "5.0.0" "O(N), with N being the number of evicted entries.",
        Store(value::<{ values::streams::XTRIM }>), "Removes the oldest entries; answers how many.";
    "xsetid" -3 "write denyoom fast" ONE("RW update") "stream" ""
        "5.0.0" "O(1)",
        Store(value::<{ values::streams::XSETID }>), "Sets the last id of a stream.";
    "xack" -4 "write fast" ONE("RW update") "stream" ""
        "5.0.0" "O(1) for each message ID processed.",
        Store(value::<{ values::streams::XACK }>), "Ends that entries are pending; answers how many were.";
    "xpending" -3 "readonly" ONE("RO access") "stream" "nondeterministic_output"
        "5.0.0" "O(N) where N is the number of pending entries of the group.",
        Store(of_group::<{ values::streams::XPENDING }>), "The entries that consumers have got and not acknowledged.";
    "xclaim" -6 "write fast" ONE("RW update") "stream" "nondeterministic_output"
        "5.0.0" "O(log N) with N being the number of messages in the PEL of the consumer group.",
        Store(of_group::<{ values::streams::XCLAIM }>), "Gives pending entries to another consumer.";
    "xautoclaim" -6 "write fast" ONE("RW delete") "stream" "nondeterministic_output"
        "6.2.0" "O(1) if COUNT is small.",
        Store(of_group::<{ values::streams::XAUTOCLAIM }>), "Gives entries that are pending for long to another consumer.";
    "xgroup" -2 "" NONE("") "" ""
        "5.0.0" "Depends on subcommand.",
        Container, XGROUP, "About consumer groups.";
};

const XGROUP: &[CommandDefinition] = commands! { "stream";
    "xgroup|create" -5 "write denyoom" SECOND("RW insert") "stream" ""
        "5.0.0" "O(1)",
        Store(of_second::<{ values::streams::XGROUP_CREATE }>), "Makes a consumer group, and with MKSTREAM its stream.";
    "xgroup|setid" -5 "write" SECOND("RW update") "stream" ""
        "5.0.0" "O(1)",
        Store(of_second::<{ values::streams::XGROUP_SETID }>), "Sets the last id that a group has delivered.";
    "xgroup|destroy" 4 "write" SECOND("RW delete") "stream" ""
        "5.0.0" "O(N) where N is the number of entries in the group's pending entries list (PEL).",
        Store(of_second::<{ values::streams::XGROUP_DESTROY }>), "Removes a consumer group.";
    "xgroup|createconsumer" 5 "write denyoom" SECOND("RW insert") "stream" ""
        "6.2.0" "O(1)",
        Store(of_second::<{ values::streams::XGROUP_CREATECONSUMER }>), "Makes a consumer of a group.";
    "xgroup|delconsumer" 5 "write" SECOND("RW delete") "stream" ""
        "5.0.0" "O(1)",
        Store(of_second::<{ values::streams::XGROUP_DELCONSUMER }>), "Removes a consumer; answers how many entries were pending for it.";
    "xgroup|help" 2 "loading stale" NONE("") "stream" ""
        "5.0.0" "O(1)",
        Local(xgroup_help), "What can be asked.";
};

fn xgroup_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("XGROUP", XGROUP, session);
}

/// Plans a command on a group of the stream that is its first argument.
fn of_group<'a, const COMMAND: u16>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan(COMMAND, args, 1, ops)?;
    Ok(Render::OfStream(args))
}

/// Plans a command of two words.
pub(super) fn of_second<'a, const COMMAND: u16>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan(COMMAND, args, 2, ops)?;
    Ok(Render::OfStream(args))
}
