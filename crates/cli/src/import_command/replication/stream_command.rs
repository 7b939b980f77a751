//! The commands of a replication stream, and the form in which the target gets them.
//!
//! Most commands are given to the target as they are. Those that set a deadline of a key set another one (see
//! `deadlines`), as a time since the Unix epoch.
//!
//! | in the stream | for the target |
//! |---|---|
//! | `SET … EX`, `PX`, `EXAT`, `PXAT`; `SETEX`, `PSETEX` | `SET … PXAT` |
//! | `GETEX …` | the same, with `PXAT` |
//! | `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT` | `PEXPIREAT` |
//! | `RESTORE`, `RESTORE-ASKING` | `RESTORE … ABSTTL` |

use std::borrow::Cow;

use resp::Args;

use super::super::deadlines::shifted;

/// A command of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamCommand<'a> {
    /// It has no effect.
    Ping,
    /// The source asks how far the import has come.
    GetAck,
    /// The next commands are of this database.
    Select(u64),
    /// The next commands are one transaction, until [`StreamCommand::Exec`].
    Multi,
    Exec,
    /// The databases are exchanged.
    SwapDatabases,
    Write(TargetCommand<'a>),
}

/// A command for the target.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TargetCommand<'a> {
    pub(super) args: Vec<Cow<'a, [u8]>>,
    /// A key whose deadline, or the deadline that it may have taken over from another key, is a shifted one.
    pub(super) shifted: Option<DatabaseKey<'a>>,
}

/// A key, and its database unless that is the selected one.
pub(super) type DatabaseKey<'a> = (Option<u64>, &'a [u8]);

/// The deadlines that the target gets.
#[derive(Clone, Copy)]
pub(super) struct DeadlineRule {
    pub(super) now_ms: u64,
    /// Deadlines behind this time are not shifted.
    pub(super) settled_from_ms: Option<u64>,
}

impl DeadlineRule {
    /// Returns the deadline for the target, and `true` if it is a shifted one.
    fn apply(self, deadline_ms: u64) -> (u64, bool) {
        match self.settled_from_ms {
            Some(from) if deadline_ms > from => (deadline_ms, false),
            _ => (shifted(deadline_ms), true),
        }
    }
}

/// How a number stands for a time.
#[derive(Clone, Copy)]
enum TimeUnit {
    Seconds,
    Milliseconds,
    SecondsAt,
    MillisecondsAt,
}

impl TimeUnit {
    fn of_option(option: &[u8]) -> Option<TimeUnit> {
        Some(match &option.to_ascii_lowercase()[..] {
            b"ex" => TimeUnit::Seconds,
            b"px" => TimeUnit::Milliseconds,
            b"exat" => TimeUnit::SecondsAt,
            b"pxat" => TimeUnit::MillisecondsAt,
            _ => return None,
        })
    }

    /// Returns the time in milliseconds since the Unix epoch. One before it is 0.
    fn deadline(self, number: &[u8], now_ms: u64) -> Result<u64, String> {
        let malformed = || {
            format!(
                "a time that is no number: {}",
                String::from_utf8_lossy(number)
            )
        };
        let number = base::number::parse_int(number).ok_or_else(malformed)?;
        let (scale, since) = match self {
            TimeUnit::Seconds => (1000, now_ms),
            TimeUnit::Milliseconds => (1, now_ms),
            TimeUnit::SecondsAt => (1000, 0),
            TimeUnit::MillisecondsAt => (1, 0),
        };
        let time = i128::from(number) * scale + i128::from(since);
        Ok(u64::try_from(time.clamp(0, i64::MAX.into())).unwrap_or(0))
    }
}

/// Returns a command in the form that the target gets.
///
/// # Errors
/// The text says why it cannot be applied.
pub(super) fn adapt<'a>(args: Args<'a>, rule: DeadlineRule) -> Result<StreamCommand<'a>, String> {
    let name = args.at(0).to_ascii_lowercase();
    let key = args.get(1).unwrap_or_default();
    let adapted = match &name[..] {
        b"ping" => return Ok(StreamCommand::Ping),
        b"replconf" => return Ok(StreamCommand::GetAck),
        b"select" => {
            let number = base::number::parse_int(key).and_then(|number| u64::try_from(number).ok());
            return number
                .map(StreamCommand::Select)
                .ok_or_else(|| "SELECT of what is no number".to_owned());
        }
        b"multi" => return Ok(StreamCommand::Multi),
        b"exec" => return Ok(StreamCommand::Exec),
        b"swapdb" => return Ok(StreamCommand::SwapDatabases),
        b"eval" | b"evalsha" | b"fcall" => {
            return Err(
                "the source replicates scripts and not their effects: set lua-replicate-commands to yes there"
                    .to_owned(),
            );
        }
        b"set" => with_option(args, 3, rule)?,
        b"getex" => with_option(args, 2, rule)?,
        b"setex" => set_with_time(args, TimeUnit::Seconds, rule)?,
        b"psetex" => set_with_time(args, TimeUnit::Milliseconds, rule)?,
        b"expire" => expire(args, TimeUnit::Seconds, rule)?,
        b"pexpire" => expire(args, TimeUnit::Milliseconds, rule)?,
        b"expireat" => expire(args, TimeUnit::SecondsAt, rule)?,
        b"pexpireat" => expire(args, TimeUnit::MillisecondsAt, rule)?,
        b"restore" | b"restore-asking" => restore(args, rule)?,
        b"rename" | b"renamenx" | b"copy" | b"move" => TargetCommand {
            args: owned(args),
            shifted: Some(destination(args)),
        },
        _ => TargetCommand {
            args: owned(args),
            shifted: None,
        },
    };
    Ok(StreamCommand::Write(adapted))
}

fn owned(args: Args<'_>) -> Vec<Cow<'_, [u8]>> {
    (0..args.len())
        .map(|at| Cow::Borrowed(args.at(at)))
        .collect()
}

fn number(time: u64) -> Cow<'static, [u8]> {
    Cow::Owned(time.to_string().into_bytes())
}

/// Returns the arguments with the time of an option behind the first `from` arguments, if there is one.
fn with_option(
    args: Args<'_>,
    from: usize,
    rule: DeadlineRule,
) -> Result<TargetCommand<'_>, String> {
    let mut out = owned(args);
    let mut shifted = None;
    for at in from..args.len().saturating_sub(1) {
        if let Some(unit) = TimeUnit::of_option(args.at(at)) {
            let (deadline, is_shifted) = rule.apply(unit.deadline(args.at(at + 1), rule.now_ms)?);
            out[at] = Cow::Borrowed(b"PXAT");
            out[at + 1] = number(deadline);
            shifted = is_shifted.then(|| (None, args.at(1)));
            break;
        }
    }
    Ok(TargetCommand { args: out, shifted })
}

/// `SETEX key time value`.
fn set_with_time(
    args: Args<'_>,
    unit: TimeUnit,
    rule: DeadlineRule,
) -> Result<TargetCommand<'_>, String> {
    let [key, time, value] = three(args)?;
    let (deadline, is_shifted) = rule.apply(unit.deadline(time, rule.now_ms)?);
    Ok(TargetCommand {
        args: vec![
            Cow::Borrowed(b"SET"),
            Cow::Borrowed(key),
            Cow::Borrowed(value),
            Cow::Borrowed(b"PXAT"),
            number(deadline),
        ],
        shifted: is_shifted.then_some((None, key)),
    })
}

/// `EXPIRE key time [condition]`.
fn expire(args: Args<'_>, unit: TimeUnit, rule: DeadlineRule) -> Result<TargetCommand<'_>, String> {
    let (key, time) = match (args.get(1), args.get(2)) {
        (Some(key), Some(time)) => (key, time),
        _ => return Err("it has too few arguments".to_owned()),
    };
    let (deadline, is_shifted) = rule.apply(unit.deadline(time, rule.now_ms)?);
    let mut out = owned(args);
    out[0] = Cow::Borrowed(b"PEXPIREAT");
    out[2] = number(deadline);
    Ok(TargetCommand {
        args: out,
        shifted: is_shifted.then_some((None, key)),
    })
}

/// `RESTORE key time payload [option …]`.
fn restore(args: Args<'_>, rule: DeadlineRule) -> Result<TargetCommand<'_>, String> {
    let [key, time, _] = three(args)?;
    let is_absolute = |at: usize| args.at(at).eq_ignore_ascii_case(b"absttl");
    let absolute = (4..args.len()).any(is_absolute);
    let mut out = owned(args);
    out[0] = Cow::Borrowed(b"RESTORE");
    let mut shifted = None;
    if time != b"0" {
        let unit = match absolute {
            true => TimeUnit::MillisecondsAt,
            false => TimeUnit::Milliseconds,
        };
        let (deadline, is_shifted) = rule.apply(unit.deadline(time, rule.now_ms)?);
        out[2] = number(deadline);
        if !absolute {
            out.push(Cow::Borrowed(b"ABSTTL"));
        }
        shifted = is_shifted.then_some((None, key));
    }
    Ok(TargetCommand { args: out, shifted })
}

fn three(args: Args<'_>) -> Result<[&[u8]; 3], String> {
    match (args.get(1), args.get(2), args.get(3)) {
        (Some(first), Some(second), Some(third)) => Ok([first, second, third]),
        _ => Err("it has too few arguments".to_owned()),
    }
}

/// Returns the key that `RENAME`, `COPY` or `MOVE` writes.
fn destination(args: Args<'_>) -> DatabaseKey<'_> {
    let second = args.get(2).unwrap_or_default();
    let number =
        |arg: &[u8]| base::number::parse_int(arg).and_then(|number| u64::try_from(number).ok());
    if args.at(0).eq_ignore_ascii_case(b"move") {
        return (number(second), args.get(1).unwrap_or_default());
    }
    let mut database = None;
    for at in 3..args.len().saturating_sub(1) {
        if args.at(at).eq_ignore_ascii_case(b"db") {
            database = number(args.at(at + 1));
        }
    }
    (database, second)
}

#[cfg(test)]
mod tests {
    use resp::command::write_command;
    use resp::{Limits, Parser};

    use super::*;

    const NOW: u64 = 1_700_000_000_000;
    const SHIFT: u64 = 1 << 52;

    /// Returns the command for the target as a text, and the key with a shifted deadline.
    fn adapted(
        text: &str,
        settled_from_ms: Option<u64>,
    ) -> (String, Option<(Option<u64>, String)>) {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        write_command(&mut bytes, &words);
        let mut parser = Parser::new();
        parser
            .parse(&mut bytes, &Limits::default())
            .unwrap()
            .unwrap();
        let rule = DeadlineRule {
            now_ms: NOW,
            settled_from_ms,
        };
        match adapt(Args::new(&bytes, parser.spans()), rule).unwrap() {
            StreamCommand::Write(command) => {
                let words: Vec<String> = command
                    .args
                    .iter()
                    .map(|arg| String::from_utf8_lossy(arg).into_owned())
                    .collect();
                let shifted = command
                    .shifted
                    .map(|(database, key)| (database, String::from_utf8_lossy(key).into_owned()));
                (words.join(" "), shifted)
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn deadlines_of_commands_are_shifted() {
        for (text, expected) in [
            ("SET k v", "SET k v".to_owned()),
            (
                "set k v NX PXAT 5",
                format!("set k v NX PXAT {}", SHIFT + 5),
            ),
            (
                "SET k v ex 5",
                format!("SET k v PXAT {}", SHIFT + NOW + 5000),
            ),
            (
                "SETEX k 5 v",
                format!("SET k v PXAT {}", SHIFT + NOW + 5000),
            ),
            ("PSETEX k 5 v", format!("SET k v PXAT {}", SHIFT + NOW + 5)),
            ("GETEX k PX 7", format!("GETEX k PXAT {}", SHIFT + NOW + 7)),
            (
                "EXPIRE k 5 GT",
                format!("PEXPIREAT k {} GT", SHIFT + NOW + 5000),
            ),
            ("PEXPIREAT k 5", format!("PEXPIREAT k {}", SHIFT + 5)),
            ("EXPIREAT k -5", format!("PEXPIREAT k {SHIFT}")),
            (
                "RESTORE k 5 p ABSTTL",
                format!("RESTORE k {} p ABSTTL", SHIFT + 5),
            ),
            (
                "RESTORE-ASKING k 5 p",
                format!("RESTORE k {} p ABSTTL", SHIFT + NOW + 5),
            ),
        ] {
            let (found, shifted) = adapted(text, None);
            assert_eq!(found, expected, "{text}");
            assert_eq!(shifted.is_some(), text != "SET k v", "{text}");
        }
        let (found, shifted) = adapted("RESTORE k 0 p REPLACE", None);
        assert_eq!((found.as_str(), shifted), ("RESTORE k 0 p REPLACE", None));
    }

    #[test]
    fn late_deadlines_are_not_shifted_any_more_where_keys_are_settled() {
        let (found, shifted) = adapted("PEXPIREAT k 101", Some(100));
        assert_eq!((found.as_str(), shifted), ("PEXPIREAT k 101", None));
        let (found, shifted) = adapted("PEXPIREAT k 100", Some(100));
        assert_eq!(found, format!("PEXPIREAT k {}", SHIFT + 100));
        assert_eq!(shifted, Some((None, "k".to_owned())));
    }

    #[test]
    fn keys_that_take_over_a_deadline_are_named() {
        for (text, expected) in [
            ("RENAME a b", (None, "b")),
            ("MOVE a 3", (Some(3), "a")),
            ("COPY a b DB 2 REPLACE", (Some(2), "b")),
            ("COPY a b", (None, "b")),
        ] {
            let (found, shifted) = adapted(text, Some(0));
            assert_eq!(found, text);
            assert_eq!(shifted, Some((expected.0, expected.1.to_owned())), "{text}");
        }
    }
}
