//! The encoding of commands about locks, and of the replies to them.

use std::time::Duration;

use ::locks::{Answer, Lock, LockError, LockLease, Request};
use base::number::parse_int;
use bytes::Bytes;
use resp::{Args, Protocol, Writer};

use crate::locks::LockOutcome;
use crate::redis::commands::{LockCommand, NodeCommand};

pub(super) const SYNTAX: &str = "syntax error";

pub(super) fn usage(command: &NodeCommand) -> &'static str {
    match &*command.name {
        "lock.acquire" => "LOCK.ACQUIRE key owner PX milliseconds [WAIT milliseconds]",
        _ => "LOCK.RENEW key owner PX milliseconds",
    }
}

/// Reads the request of a command.
pub(super) fn read<'a>(kind: LockCommand, args: Args<'a>) -> Result<Request<'a>, &'static str> {
    let owner = || args.get(2).unwrap_or_default();
    match kind {
        LockCommand::Acquire => {
            let (lease, wait) = times(args, true)?;
            let (owner, lease) = (owner(), LockLease::For(lease));
            Ok(Request::Acquire { owner, lease, wait })
        }
        LockCommand::Renew => {
            let (lease, _) = times(args, false)?;
            let (owner, lease) = (owner(), LockLease::For(lease));
            Ok(Request::Renew { owner, lease })
        }
        LockCommand::Release => Ok(Request::Release { owner: owner() }),
        LockCommand::Info => Ok(Request::Info),
        LockCommand::Guard => Err("LOCK.GUARD without MULTI: it guards the block that it begins"),
    }
}

/// Reads the values after `PX` and `WAIT`, in any order.
fn times(args: Args<'_>, waits: bool) -> Result<(Duration, Duration), &'static str> {
    let (mut lease, mut wait) = (None, None);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let into = if word.eq_ignore_ascii_case(b"PX") {
            &mut lease
        } else if waits && word.eq_ignore_ascii_case(b"WAIT") {
            &mut wait
        } else {
            return Err(SYNTAX);
        };
        if into.is_some() {
            return Err(SYNTAX);
        }
        let number = args.get(at + 1).ok_or(SYNTAX)?;
        let number = parse_int(number).and_then(|number| u64::try_from(number).ok());
        let number = number.ok_or("milliseconds are a number that is not negative")?;
        *into = Some(Duration::from_millis(number));
        at += 2;
    }
    Ok((lease.ok_or(SYNTAX)?, wait.unwrap_or_default()))
}

pub(super) fn encode(outcome: &LockOutcome, kind: LockCommand, protocol: Protocol) -> Bytes {
    let mut out = Vec::new();
    write(outcome, kind, &mut Writer::new(&mut out, protocol));
    out.into()
}

/// Writes the reply to a command.
pub(super) fn write(outcome: &LockOutcome, kind: LockCommand, writer: &mut Writer<'_>) {
    match outcome {
        Err(error) => writer.error(&format!("{} {error}", code(error))),
        Ok(Answer::Granted { token, lease }) => {
            writer.array(3);
            writer.int(1);
            writer.int(token.0 as i64);
            writer.int(milliseconds(*lease, Duration::as_millis));
        }
        Ok(Answer::Released) => writer.int(1),
        Ok(Answer::NotHeld(_)) if kind == LockCommand::Release => writer.int(0),
        Ok(Answer::Held(lock)) => not_granted(Some(lock), writer),
        Ok(Answer::NotHeld(lock)) => not_granted(lock.as_ref(), writer),
        Ok(Answer::Info(None)) => writer.null(),
        Ok(Answer::Info(Some(lock))) => {
            writer.map(4);
            writer.bulk(b"owner");
            writer.bulk(&lock.value);
            let numbers = [
                ("token", lock.token.0 as i64),
                ("left", left(lock)),
                ("waiters", lock.waiters as i64),
            ];
            for (name, number) in numbers {
                writer.bulk(name.as_bytes());
                writer.int(number);
            }
        }
        // No command requests these.
        Ok(Answer::Changed { .. } | Answer::Listing(_)) => writer.null(),
    }
}

fn not_granted(lock: Option<&Lock>, writer: &mut Writer<'_>) {
    writer.array(3);
    writer.int(0);
    match lock {
        Some(lock) => {
            writer.bulk(&lock.value);
            writer.int(left(lock));
        }
        None => {
            writer.null();
            writer.int(0);
        }
    }
}

/// Returns an upper bound of the time that a lock lasts, in milliseconds.
fn left(lock: &Lock) -> i64 {
    milliseconds(lock.left, |time| time.as_nanos().div_ceil(1_000_000))
}

fn milliseconds(lease: LockLease, round: impl FnOnce(&Duration) -> u128) -> i64 {
    match lease {
        LockLease::For(time) => i64::try_from(round(&time)).unwrap_or(i64::MAX),
        LockLease::Endless => -1,
    }
}

fn code(error: &LockError) -> &'static str {
    match error {
        LockError::KeyLength { .. }
        | LockError::ValueLength { .. }
        | LockError::LeaseLength { .. }
        | LockError::NeedsLease => "LOCKLIMIT",
        LockError::TooManyLocks { .. } | LockError::TooManyWaiters { .. } => "LOCKFULL",
        LockError::Settling { .. } => "LOCKSETTLING",
        LockError::Stopping => "LOCKSTOPPING",
        LockError::Unavailable { .. } => "LOCKUNAVAILABLE",
        LockError::Uncertain { .. } => "LOCKUNKNOWN",
        LockError::Refused { .. } => "LOCKREFUSED",
        LockError::Damaged => "LOCKDAMAGED",
    }
}

#[cfg(test)]
mod tests {
    use ::locks::FencingToken;

    use super::*;
    use crate::redis::commands::tests::with_args;

    fn request(kind: LockCommand, words: &str) -> Result<String, String> {
        with_args(words, |args| {
            read(kind, args)
                .map(|request| format!("{request:?}"))
                .map_err(str::to_owned)
        })
    }

    #[test]
    fn commands_are_read() {
        let read = |words: &str| request(LockCommand::Acquire, words);
        let with_wait = read("lock.acquire k me PX 500 WAIT 20").expect("it is one");
        assert!(with_wait.contains("500ms") && with_wait.contains("wait: 20ms"));
        assert_eq!(read("lock.acquire k me wait 20 px 500"), Ok(with_wait));
        let without = read("lock.acquire k me PX 500").expect("it is one");
        assert!(without.contains("wait: 0ns"), "{without}");
        for words in [
            "lock.acquire k me EX 500",
            "lock.acquire k me WAIT 500",
            "lock.acquire k me PX 500 PX 600",
            "lock.acquire k me PX 500 WAIT",
            "lock.acquire k me PX",
        ] {
            assert_eq!(read(words), Err(SYNTAX.to_owned()), "{words}");
        }
        for number in ["-1", "x", "1.5", "99999999999999999999", ""] {
            let words = format!("lock.acquire k me PX {number}");
            let error = read(&words).expect_err("no number");
            assert!(error.contains("milliseconds"), "{words}");
        }
        let renew = "lock.renew k me PX 500 WAIT 20";
        assert_eq!(request(LockCommand::Renew, renew), Err(SYNTAX.to_owned()));
        let guard = request(LockCommand::Guard, "lock.guard k 7");
        assert!(guard.expect_err("no block").contains("without MULTI"));
    }

    #[test]
    fn replies_have_their_shapes() {
        let lock = |left| Lock {
            value: b"you".as_slice().into(),
            token: FencingToken(9),
            left,
            waiters: 2,
        };
        let some = lock(LockLease::For(Duration::from_micros(1500)));
        let endless = lock(LockLease::Endless);
        let granted = Answer::Granted {
            token: FencingToken(8),
            lease: LockLease::For(Duration::from_micros(1900)),
        };
        use LockCommand::{Acquire, Info, Release, Renew};
        for (answer, kind, two, three) in [
            (granted, Acquire, "*3 :1 :8 :1 ", None),
            (
                Answer::Held(some.clone()),
                Acquire,
                "*3 :0 $3 you :2 ",
                None,
            ),
            (Answer::Held(endless), Acquire, "*3 :0 $3 you :-1 ", None),
            (
                Answer::NotHeld(None),
                Renew,
                "*3 :0 $-1 :0 ",
                Some("*3 :0 _ :0 "),
            ),
            (Answer::NotHeld(None), Release, ":0 ", None),
            (Answer::Released, Release, ":1 ", None),
            (Answer::Info(None), Info, "$-1 ", Some("_ ")),
            (
                Answer::Info(Some(some)),
                Info,
                "*8 $5 owner $3 you $5 token :9 $4 left :2 $7 waiters :2 ",
                Some("%4 $5 owner $3 you $5 token :9 $4 left :2 $7 waiters :2 "),
            ),
        ] {
            let outcome = Ok(answer);
            for (protocol, text) in [
                (Protocol::Resp2, two),
                (Protocol::Resp3, three.unwrap_or(two)),
            ] {
                let expected = text.replace(' ', "\r\n");
                assert_eq!(encode(&outcome, kind, protocol), expected, "{outcome:?}");
            }
        }
        let error = Err(LockError::Settling {
            left: Duration::from_millis(7),
        });
        let text = encode(&error, LockCommand::Info, Protocol::Resp2);
        assert!(text.starts_with(b"-LOCKSETTLING the table"), "{text:?}");
    }
}
