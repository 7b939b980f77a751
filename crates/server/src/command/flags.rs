//! The flags of commands, and the categories of access control lists.

/// Properties of a command, as `COMMAND INFO` shows them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandFlags(u32);

impl CommandFlags {
    pub(crate) const WRITE: CommandFlags = CommandFlags::of("write");
    pub(crate) const READ: CommandFlags = CommandFlags::of("readonly");
    /// Refused when memory is short.
    pub(crate) const NEEDS_MEMORY: CommandFlags = CommandFlags::of("denyoom");
    /// Allowed before authentication.
    pub(crate) const NO_AUTH: CommandFlags = CommandFlags::of("no_auth");
    pub(crate) const ADMIN: CommandFlags = CommandFlags::of("admin");
    /// Refused in a script.
    pub(crate) const NO_SCRIPT: CommandFlags = CommandFlags::of("noscript");
    /// Refused in a block.
    pub(crate) const NO_MULTI: CommandFlags = CommandFlags::of("no_multi");
    /// Runs at once even in a block. Clients do not see this one.
    pub(crate) const IMMEDIATE: CommandFlags = CommandFlags::of("immediate");
    /// Runs on a connection of the older protocol that has subscriptions. Clients do not see this one.
    pub(crate) const SUBSCRIBER: CommandFlags = CommandFlags::of("subscriber");
    /// May write: paused with writes, and refused in a script that only reads. Clients do not see this one.
    pub(crate) const MAY_REPLICATE: CommandFlags = CommandFlags::of("may_replicate");
    /// Takes time by the length of a value, and not by that of its reply. Clients do not see this one.
    pub(crate) const WHOLE_VALUE: CommandFlags = CommandFlags::of("whole_value");
    /// Takes a time that hardly depends on the data.
    pub(crate) const FAST: CommandFlags = CommandFlags::of("fast");

    /// The flags that clients do not see.
    const HIDDEN: u32 =
        Self::IMMEDIATE.0 | Self::SUBSCRIBER.0 | Self::WHOLE_VALUE.0 | Self::MAY_REPLICATE.0;

    /// The words for flags, in the order in which Redis shows them. The server does not act on some
    /// of them: they tell clients when Redis would accept the command.
    const NAMES: [&'static str; 22] = [
        "write",
        "readonly",
        "denyoom",
        "admin",
        "pubsub",
        "noscript",
        "blocking",
        "loading",
        "stale",
        "skip_monitor",
        "skip_slowlog",
        "fast",
        "no_auth",
        "no_mandatory_keys",
        "no_async_loading",
        "no_multi",
        "allow_busy",
        "movablekeys",
        "immediate",
        "subscriber",
        "may_replicate",
        "whole_value",
    ];

    /// Returns the flags that these words name.
    ///
    /// # Panics
    /// Panics if a word names none, which for the table happens when it is compiled.
    pub(crate) const fn of(words: &str) -> CommandFlags {
        let mut rest = words.as_bytes();
        let mut flags = 0;
        while !rest.is_empty() {
            let mut flag = 0;
            while !begins_with_word(rest, Self::NAMES[flag].as_bytes()) {
                flag += 1;
            }
            flags |= 1 << flag;
            let (_, behind) = rest.split_at(Self::NAMES[flag].len());
            rest = match behind {
                [b' ', next @ ..] => next,
                _ => behind,
            };
        }
        CommandFlags(flags)
    }

    #[inline]
    pub(crate) const fn has(self, flag: CommandFlags) -> bool {
        self.0 & flag.0 != 0
    }

    /// Returns `true` if a command with these flags writes, or may.
    pub(crate) const fn may_write(self) -> bool {
        self.has(Self::WRITE) || self.has(Self::MAY_REPLICATE)
    }

    /// Returns the names of the flags that are set and that clients see.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let flags = self.0 & !Self::HIDDEN;
        let names = Self::NAMES.into_iter().enumerate();
        names.filter_map(move |(at, name)| (flags & 1 << at != 0).then_some(name))
    }
}

/// Returns `true` if `text` is `word`, or begins with it and a space.
const fn begins_with_word(text: &[u8], word: &[u8]) -> bool {
    if text.len() < word.len() || (text.len() > word.len() && text[word.len()] != b' ') {
        return false;
    }
    let mut at = 0;
    while at < word.len() {
        if text[at] != word[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Categories of access control lists, in Redis's order.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];
