//! Blocks and watches; what they do is in [`crate::block`].

use crate::command::{Command, Flags, Keys, Run};

const fn command(name: &'static str, arity: i32, run: Run, summary: &'static str) -> Command {
    let flags = Flags::FAST.and(Flags::IMMEDIATE);
    let keys = Keys::NONE;
    Command {
        name,
        arity,
        flags,
        keys,
        run,
        group: "transactions",
        summary,
        subcommands: &[],
    }
}

pub(super) const COMMANDS: &[Command] = &[
    command(
        "multi",
        1,
        Run::Multi,
        "Begins a block of commands that execute as one transaction.",
    ),
    command(
        "exec",
        1,
        Run::Exec,
        "Executes the block, unless a watched key has changed.",
    ),
    command("discard", 1, Run::Discard, "Gives the block up."),
    Command {
        keys: Keys::ALL,
        ..command(
            "watch",
            -2,
            Run::Watch,
            "Has EXEC refuse if one of the keys changes until then.",
        )
    },
    Command {
        flags: Flags::FAST.and(Flags::IMMEDIATE).and(Flags::READ),
        keys: Keys::ALL,
        ..command(
            "watch.version",
            -2,
            Run::WatchVersion,
            "The versions of keys, for WATCH.AT.",
        )
    },
    Command {
        keys: Keys::PAIRS,
        ..command(
            "watch.at",
            -3,
            Run::WatchAt,
            "Watches keys that must have these versions.",
        )
    },
    Command {
        // Its argument is the name of a lock, and no key of the store.
        flags: Flags::FAST.and(Flags::WRITE).and(Flags::NEEDS_MEMORY),
        ..command(
            "lock.guard",
            3,
            Run::Guard,
            "First in a block: refuses it if a newer token of the lock was seen where its keys are.",
        )
    },
    Command {
        // Queued in a block, where it has no effect.
        flags: Flags::FAST,
        ..command("unwatch", 1, Run::Unwatch, "Forgets the watched keys.")
    },
];
