//! Commands of `MULTI` blocks. How a block executes is in [`crate::block_transaction`].

use base::Op;
use resp::Args;

use crate::command::CommandKind::{
    Discard, Exec, Guard, Multi, Unwatch, Watch, WatchAt, WatchVersion,
};
use crate::command::{CommandDefinition, Ops, Planned, commands};
use crate::refusal::Refusal;
use crate::render::Render;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "transactions";
    "multi" 1 "noscript loading stale fast allow_busy immediate" NONE("") "transaction" ""
        "1.2.0" "O(1)",
        Multi, "Begins a block of commands that execute as one transaction.";
    "exec" 1 "noscript loading stale skip_slowlog immediate" NONE("") "transaction" ""
        "1.2.0" "Depends on commands in the transaction",
        Exec, "Executes the block, unless a watched key has changed.";
    "discard" 1 "noscript loading stale fast allow_busy immediate" NONE("") "transaction" ""
        "2.0.0" "O(N), when N is the number of queued commands",
        Discard, "Gives the block up.";
    "watch" -2 "noscript loading stale fast allow_busy immediate" ALL("RO") "transaction" ""
        "2.2.0" "O(1) for every key.",
        Watch, "Has EXEC refuse if one of the keys changes until then.";
    "watch.version" -2 "readonly fast immediate" ALL("RO") "transaction" ""
        "0.1.0" "O(1) for every key.",
        WatchVersion, "The versions of keys, for WATCH.AT.";
    "watch.at" -3 "fast immediate" PAIRS("RO") "transaction" ""
        "0.1.0" "O(1) for every key.",
        WatchAt, "Watches keys that must have these versions.";
    "lock.guard" 3 "write denyoom fast" NONE("") "transaction" ""
        "0.1.0" "O(1)",
        Guard(guard), "First in a block: refuses it if a newer token of the lock was seen where its keys are.";
    "unwatch" 1 "noscript loading stale fast allow_busy" NONE("") "transaction" ""
        "2.2.0" "O(1)",
        Unwatch, "Forgets the watched keys.";
};

/// Plans `LOCK.GUARD`.
fn guard<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let (lock, token) = (args.at(1), token(args.at(2)).map_err(Refusal::Text)?);
    ops.push(Op::Guard { lock, token });
    Ok(Render::Ok)
}

/// Returns the token of a guard.
fn token(arg: &[u8]) -> Result<u64, &'static str> {
    let digits = arg.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(arg).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok())
        .ok_or("ERR the token of LOCK.GUARD is not a number from 0 to 18446744073709551615")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_plain_numbers() {
        assert_eq!(token(b"0"), Ok(0));
        assert_eq!(token(b"18446744073709551615"), Ok(u64::MAX));
        for text in ["", "-1", "+1", " 1", "1.0", "18446744073709551616", "x"] {
            assert!(token(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
