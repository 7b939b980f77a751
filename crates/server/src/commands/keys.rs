//! Commands on keys of any type.

use std::sync::Arc;

use base::Op;
use base::eviction::KeyAccess;
use base::number::parse_cursor;
use base::transaction::{ExpireWhen, Expiry, ScanContents};
use resp::Args;

use super::arguments::{in_ms, in_ms_from_now, int, is};
use crate::command::CommandKind::{Scan, Store};
use crate::command::{CommandDefinition, CommandKind, Ops, PlanFromKey, Planned, commands};
use crate::cursors::Cursors;
use crate::refusal::{Refusal, shown};
use crate::render::{Deadline, Render, ScanPage};
use base::glob;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "generic";
    "del" -2 "write" ALL("RM delete") "keyspace" ""
        "1.0.0" "O(N) where N is the number of keys.",
        Store(delete), "Deletes keys; answers how many there were.";
    "unlink" -2 "write fast" ALL("RM delete") "keyspace" ""
        "4.0.0" "O(N) where N is the number of keys.",
        Store(delete), "Deletes keys; answers how many there were.";
    "exists" -2 "readonly fast" ALL("RO") "keyspace" ""
        "1.0.0" "O(N) where N is the number of keys.",
        Store(exists), "How many of the keys there are.";
    "touch" -2 "readonly fast" ALL("RO") "keyspace" ""
        "3.2.1" "O(N) where N is the number of keys.",
        Store(touch), "How many of the keys there are; they count as used.";
    "expire" -3 "write fast" ONE("RW update") "keyspace" ""
        "1.0.0" "O(1)",
        Store(expire), "Has a key expire after some seconds.";
    "pexpire" -3 "write fast" ONE("RW update") "keyspace" ""
        "2.6.0" "O(1)",
        Store(pexpire), "Has a key expire after some milliseconds.";
    "expireat" -3 "write fast" ONE("RW update") "keyspace" ""
        "1.2.0" "O(1)",
        Store(expireat), "Has a key expire at a time in seconds.";
    "pexpireat" -3 "write fast" ONE("RW update") "keyspace" ""
        "2.6.0" "O(1)",
        Store(pexpireat), "Has a key expire at a time in milliseconds.";
    "ttl" 2 "readonly fast" ONE("RO access") "keyspace" "nondeterministic_output"
        "1.0.0" "O(1)",
        Store(ttl), "Seconds until a key expires.";
    "pttl" 2 "readonly fast" ONE("RO access") "keyspace" "nondeterministic_output"
        "2.6.0" "O(1)",
        Store(pttl), "Milliseconds until a key expires.";
    "expiretime" 2 "readonly fast" ONE("RO access") "keyspace" ""
        "7.0.0" "O(1)",
        Store(expiretime), "When a key expires, in seconds.";
    "pexpiretime" 2 "readonly fast" ONE("RO access") "keyspace" ""
        "7.0.0" "O(1)",
        Store(pexpiretime), "When a key expires, in milliseconds.";
    "persist" 2 "write fast" ONE("RW update") "keyspace" ""
        "2.2.0" "O(1)",
        Store(persist), "Has a key never expire.";
    "type" 2 "readonly fast" ONE("RO") "keyspace" ""
        "1.0.0" "O(1)",
        Store(kind), "The type of a key's value.";
    "keys" 2 "readonly" NONE("") "keyspace dangerous" "request_policy:all_shards nondeterministic_output_order"
        "1.0.0" "O(N) where N is the number of keys in the database.",
        CommandKind::Keys(KEYS), "All keys that match a pattern.";
    "scan" -2 "readonly" NONE("") "keyspace" "nondeterministic_output request_policy:special"
        "2.8.0" "O(1) for every call, O(N) for a complete iteration.",
        Scan(SCAN), "KEYS, a page at a time.";
};

const KEYS: PlanFromKey = PlanFromKey {
    key: keys_end,
    plan: plan_keys,
};
const SCAN: PlanFromKey = PlanFromKey {
    key: scan_position,
    plan: plan_scan,
};

fn delete<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.extend(args.from(1).iter().map(|key| Op::Delete { key }));
    Ok(Render::Sum)
}

fn exists<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.extend(args.from(1).iter().map(|key| Op::Exists { key }));
    Ok(Render::Sum)
}

fn touch<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let access = KeyAccess::Touch;
    ops.extend(args.from(1).iter().map(|key| Op::Access { key, access }));
    Ok(Render::Sum)
}

fn expire<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan_expire(
        args,
        |given| in_ms_from_now(given, true).map(Expiry::InMs),
        ops,
    )
}

fn pexpire<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan_expire(
        args,
        |given| in_ms_from_now(given, false).map(Expiry::InMs),
        ops,
    )
}

fn expireat<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan_expire(args, |given| in_ms(given, true).map(Expiry::AtMs), ops)
}

fn pexpireat<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan_expire(args, |given| in_ms(given, false).map(Expiry::AtMs), ops)
}

fn plan_expire<'a>(
    args: Args<'a>,
    expiry: impl FnOnce(i64) -> Option<Expiry>,
    ops: &mut Ops<'a>,
) -> Planned<'a> {
    let when = expire_when(args.from(3))?;
    let expiry = expiry(int(args.at(2))?).ok_or(Refusal::BadExpiry)?;
    let key = args.at(1);
    ops.push(Op::Expire { key, expiry, when });
    Ok(Render::Plain)
}

/// Parses the conditions of `EXPIRE` and its kin.
fn expire_when(args: Args<'_>) -> Result<ExpireWhen, Refusal> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for arg in args.iter() {
        let known = [
            ("nx", &mut nx),
            ("xx", &mut xx),
            ("gt", &mut gt),
            ("lt", &mut lt),
        ];
        let Some((_, flag)) = known.into_iter().find(|(word, _)| is(arg, word)) else {
            return Err(Refusal::Owned(
                [b"ERR Unsupported option ", shown(arg)].concat(),
            ));
        };
        *flag = true;
    }
    match (nx, xx, gt, lt) {
        (true, false, false, false) => Ok(ExpireWhen::None),
        (true, ..) => Err(Refusal::Text(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        )),
        (_, _, true, true) => Err(Refusal::Text(
            "ERR GT and LT options at the same time are not compatible",
        )),
        (_, true, true, _) => Ok(ExpireWhen::SomeAndLater),
        (_, true, _, true) => Ok(ExpireWhen::SomeAndEarlier),
        (_, true, ..) => Ok(ExpireWhen::Some),
        (_, _, true, _) => Ok(ExpireWhen::Later),
        (.., true) => Ok(ExpireWhen::Earlier),
        _ => Ok(ExpireWhen::Always),
    }
}

fn deadline<'a>(args: Args<'a>, left: bool, seconds: bool, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::ExpiryOf { key: args.at(1) });
    Ok(Render::Deadline(Deadline { left, seconds }))
}

fn ttl<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    deadline(args, true, true, ops)
}

fn pttl<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    deadline(args, true, false, ops)
}

fn expiretime<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    deadline(args, false, true, ops)
}

fn pexpiretime<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    deadline(args, false, false, ops)
}

fn persist<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Persist { key: args.at(1) });
    Ok(Render::Plain)
}

fn kind<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::KindOf { key: args.at(1) });
    Ok(Render::Kind)
}

/// Returns the upper bound of the keys that `KEYS` can match; empty: no bound.
fn keys_end(args: Args<'_>, _: &Cursors) -> Result<Arc<[u8]>, Refusal> {
    let end = glob::behind_prefix(glob::prefix(args.at(1)));
    Ok(end.unwrap_or_default().into())
}

/// Plans `KEYS` in a block: one scan of the transaction, up to the bound that [`keys_end`] returns.
fn plan_keys<'a>(args: Args<'a>, end: &'a [u8], ops: &mut Ops<'a>) -> Planned<'a> {
    let pattern = args.at(1);
    let to = (!end.is_empty()).then_some(end);
    ops.push(Op::Scan {
        from: glob::prefix(pattern),
        to,
        limit: usize::MAX,
        contents: ScanContents::Keys,
    });
    Ok(Render::Keys { pattern })
}

/// Returns the position at which a `SCAN` continues.
fn scan_position(args: Args<'_>, cursors: &Cursors) -> Result<Arc<[u8]>, Refusal> {
    let cursor = parse_cursor(args.at(1)).ok_or(Refusal::Text("ERR invalid cursor"))?;
    if cursor == 0 {
        return Ok([].into());
    }
    cursors.find(cursor).ok_or(Refusal::Text(
        "ERR unknown cursor: too many others were handed out since, or the server was restarted; \
         begin again from 0",
    ))
}

/// Plans `SCAN` from a position: reads one key more than requested, which says where the next page
/// begins.
fn plan_scan<'a>(args: Args<'a>, from: &'a [u8], ops: &mut Ops<'a>) -> Planned<'a> {
    let mut page = ScanPage {
        pattern: None,
        count: 10,
        kind: None,
    };
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let value = args.get(at + 1).ok_or(Refusal::Syntax)?;
        if is(option, "count") {
            page.count = usize::try_from(int(value)?).map_err(|_| Refusal::Syntax)?;
            if page.count == 0 {
                return Err(Refusal::Syntax);
            }
        } else if is(option, "match") {
            page.pattern = Some(value);
        } else if is(option, "type") {
            page.kind = Some(value);
        } else {
            return Err(Refusal::Syntax);
        }
        at += 2;
    }
    let limit = page.count.saturating_add(1);
    let contents = match page.kind {
        None => ScanContents::Keys,
        Some(_) => ScanContents::Kinds,
    };
    ops.push(Op::Scan {
        from,
        to: None,
        limit,
        contents,
    });
    Ok(Render::ScanPage(page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::Span;

    fn with_args<T>(words: &[&str], body: impl FnOnce(Args<'_>) -> T) -> T {
        let bytes = words.concat().into_bytes();
        let mut at = 0;
        let spans: Vec<Span> = words
            .iter()
            .map(|word| {
                at += word.len();
                Span::new(at - word.len(), word.len())
            })
            .collect();
        body(Args::new(&bytes, &spans))
    }

    #[test]
    fn conditions_of_expire_combine_as_in_redis() {
        for (words, expected) in [
            (&[][..], ExpireWhen::Always),
            (&["nx"], ExpireWhen::None),
            (&["XX"], ExpireWhen::Some),
            (&["gt", "xx"], ExpireWhen::SomeAndLater),
            (&["lt"], ExpireWhen::Earlier),
        ] {
            assert_eq!(with_args(words, expire_when), Ok(expected), "{words:?}");
        }
        for words in [&["nx", "xx"][..], &["gt", "lt"], &["nx", "gt"], &["what"]] {
            assert!(with_args(words, expire_when).is_err(), "{words:?}");
        }
    }

    #[test]
    fn scan_takes_its_options() {
        let plan = |words: &[&str]| {
            with_args(words, |args| {
                let mut ops = Ops::new();
                plan_scan(args, b"", &mut ops).map(|render| match render {
                    Render::ScanPage(page) => {
                        let owned = |text: Option<&[u8]>| text.map(<[u8]>::to_vec);
                        (page.count, owned(page.kind), owned(page.pattern))
                    }
                    other => unreachable!("{other:?}"),
                })
            })
        };
        assert_eq!(plan(&["scan", "0"]), Ok((10, None, None)));
        let options = ["scan", "0", "COUNT", "5", "TYPE", "hash", "match", "a*"];
        let [kind, pattern] = ["hash", "a*"].map(|text| Some(text.as_bytes().to_vec()));
        assert_eq!(plan(&options), Ok((5, kind, pattern)));
        for words in [
            &["scan", "0", "count"][..],
            &["scan", "0", "count", "0"],
            &["scan", "0", "x", "y"],
        ] {
            assert_eq!(plan(words), Err(Refusal::Syntax), "{words:?}");
        }
        let position = |cursor| {
            with_args(&["scan", cursor], |args| {
                scan_position(args, &Cursors::new(1, 1))
            })
        };
        assert!(position("0").is_ok() && position("x").is_err() && position("77").is_err());
    }
}
