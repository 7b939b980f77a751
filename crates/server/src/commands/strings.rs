//! Commands on strings.

mod options;
mod subsequence;

use base::Op;
use base::limits::Limits;
use base::number::parse_decimal;
use base::transaction::{Expiry, When};
use resp::Args;

use super::arguments::int;
use crate::command::CommandKind::{AllOrNothing, Store};
use crate::command::{CommandDefinition, Ops, Planned, commands};
use crate::refusal::Refusal;
use crate::render::Render;
use options::{ExpiryUnit, StringCommand, StringOptions, expiry_of};
use subsequence::lcs;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "string";
    "get" 2 "readonly fast" ONE("RO access") "string" ""
        "1.0.0" "O(1)",
        Store(get), "The value of a key.";
    "set" -3 "write denyoom" ONE("RW access update variable_flags") "string" ""
        "1.0.0" "O(1)",
        Store(set), "Sets the value of a key, and when it expires.";
    "setnx" 3 "write denyoom fast" ONE("OW insert") "string" ""
        "1.0.0" "O(1)",
        Store(setnx), "Sets the value of a key that is absent.";
    "setex" 4 "write denyoom" ONE("OW update") "string" ""
        "2.0.0" "O(1)",
        Store(setex), "Sets a value that expires after some seconds.";
    "psetex" 4 "write denyoom" ONE("OW update") "string" ""
        "2.6.0" "O(1)",
        Store(psetex), "Sets a value that expires after some milliseconds.";
    "getset" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(getset), "Sets the value of a key; answers the old one.";
    "getdel" 2 "write fast" ONE("RW access delete") "string" ""
        "6.2.0" "O(1)",
        Store(getdel), "Deletes a key; answers its value.";
    "getex" -2 "write fast" ONE("RW access update") "string" ""
        "6.2.0" "O(1)",
        Store(getex), "The value of a key; sets when it expires.";
    "mget" -2 "readonly fast" ALL("RO access") "string" ""
        "1.0.0" "O(N) where N is the number of keys to retrieve.",
        Store(mget), "The values of several keys, as of one moment.";
    "mset" -3 "write denyoom" PAIRS("OW update") "string" ""
        "1.0.1" "O(N) where N is the number of keys to set.",
        Store(mset), "Sets the values of several keys at one moment.";
    "msetnx" -3 "write denyoom" PAIRS("OW insert") "string" ""
        "1.0.1" "O(N) where N is the number of keys to set.",
        AllOrNothing(msetnx), "Sets the values of several keys if all are absent.";
    "append" 3 "write denyoom fast" ONE("RW insert") "string" ""
        "2.0.0" "O(N) where N is the length of the result.",
        Store(append), "Appends to a value; answers its length.";
    "strlen" 2 "readonly fast" ONE("RO") "string" ""
        "2.2.0" "O(1)",
        Store(strlen), "The length of a value.";
    "getrange" 4 "readonly" ONE("RO access") "string" ""
        "2.4.0" "O(N) where N is the length of the returned string.",
        Store(getrange), "A part of a value.";
    "substr" 4 "readonly" ONE("RO access") "string" ""
        "1.0.0" "O(N) where N is the length of the returned string.",
        Store(getrange), "A part of a value; the old name of GETRANGE.";
    "setrange" 4 "write denyoom" ONE("RW update") "string" ""
        "2.2.0" "O(N) where N is the length of the result.",
        Store(setrange), "Overwrites a part of a value; answers its length.";
    "lcs" -3 "readonly whole_value" FIRST_TWO("RO access") "string" ""
        "7.0.0" "O(N*M) where N and M are the lengths of s1 and s2, respectively",
        Store(lcs), "The longest common subsequence of two values.";
    "incr" 2 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(incr), "Adds one to a number.";
    "incrby" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(incrby), "Adds to a number.";
    "decr" 2 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(decr), "Subtracts one from a number.";
    "decrby" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "1.0.0" "O(1)",
        Store(decrby), "Subtracts from a number.";
    "incrbyfloat" 3 "write denyoom fast" ONE("RW access update") "string" ""
        "2.6.0" "O(1)",
        Store(incrbyfloat), "Adds to a decimal fraction.";
};

fn get<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Get { key: args.at(1) });
    Ok(Render::Plain)
}

/// Returns an unconditional `Put`.
fn put<'a>(key: &'a [u8], value: &'a [u8], expiry: Expiry) -> Op<'a> {
    Op::Put {
        key,
        value,
        when: When::Always,
        expiry,
        get: false,
    }
}

fn set<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let (key, value) = (args.at(1), args.at(2));
    if args.len() == 3 {
        ops.push(put(key, value, Expiry::Never));
        return Ok(Render::Plain);
    }
    let options = StringOptions::parse(args.from(3), StringCommand::Set)?;
    let expiry = options.expiry.unwrap_or_default();
    ops.push(Op::Put {
        key,
        value,
        when: options.when,
        expiry,
        get: options.get,
    });
    Ok(Render::Plain)
}

fn setnx<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let (key, value) = (args.at(1), args.at(2));
    ops.push(Op::Put {
        key,
        value,
        when: When::Absent,
        expiry: Expiry::Never,
        get: false,
    });
    Ok(Render::OneIfDone)
}

fn setex<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let expiry = expiry_of(
        args.at(2),
        ExpiryUnit {
            seconds: true,
            date: false,
        },
    )?;
    ops.push(put(args.at(1), args.at(3), expiry));
    Ok(Render::Plain)
}

fn psetex<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let expiry = expiry_of(
        args.at(2),
        ExpiryUnit {
            seconds: false,
            date: false,
        },
    )?;
    ops.push(put(args.at(1), args.at(3), expiry));
    Ok(Render::Plain)
}

fn getset<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let (key, value) = (args.at(1), args.at(2));
    ops.push(Op::Put {
        key,
        value,
        when: When::Always,
        expiry: Expiry::Never,
        get: true,
    });
    Ok(Render::Plain)
}

fn getdel<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::GetDelete { key: args.at(1) });
    Ok(Render::Plain)
}

fn getex<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let key = args.at(1);
    match StringOptions::parse(args.from(2), StringCommand::GetEx) {
        Ok(options) => {
            let expiry = options.expiry.unwrap_or(Expiry::Keep);
            ops.push(Op::GetExpire { key, expiry });
            Ok(Render::Plain)
        }
        Err(Refusal::Syntax) => Err(Refusal::Syntax),
        Err(refusal) => {
            // A missing key is answered before its expiry is checked.
            ops.push(Op::Get { key });
            Ok(Render::RefusedIfThere(refusal))
        }
    }
}

fn mget<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.extend(args.from(1).iter().map(|key| Op::GetIfString { key }));
    Ok(Render::List)
}

/// Adds the pairs of `MSET`, as `Put`s.
fn put_pairs<'a>(args: Args<'a>, ops: &mut Ops<'a>) {
    let pairs = (1..args.len()).step_by(2);
    ops.extend(pairs.map(|at| put(args.at(at), args.at(at + 1), Expiry::Never)));
}

fn mset<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    if args.len().is_multiple_of(2) {
        return Err(Refusal::Arity);
    }
    put_pairs(args, ops);
    Ok(Render::Ok)
}

fn msetnx<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    if args.len().is_multiple_of(2) {
        return Err(Refusal::Arity);
    }
    let keys = (1..args.len()).step_by(2);
    ops.extend(keys.map(|at| Op::Require {
        key: args.at(at),
        present: false,
    }));
    put_pairs(args, ops);
    Ok(Render::AllDone)
}

fn append<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Append {
        key: args.at(1),
        value: args.at(2),
    });
    Ok(Render::Plain)
}

fn strlen<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Len { key: args.at(1) });
    Ok(Render::Plain)
}

fn getrange<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::GetRange {
        key: args.at(1),
        start: int(args.at(2))?,
        end: int(args.at(3))?,
    });
    Ok(Render::Plain)
}

fn setrange<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let (key, value) = (args.at(1), args.at(3));
    let offset = usize::try_from(int(args.at(2))?)
        .map_err(|_| Refusal::Text("ERR offset is out of range"))?;
    if !value.is_empty() && offset.saturating_add(value.len()) > Limits::MAX_VALUE {
        // The type of the value is judged first.
        ops.push(Op::Len { key });
        return Ok(Render::RefusedIfThere(Refusal::TooLong));
    }
    ops.push(Op::SetRange { key, offset, value });
    Ok(Render::Plain)
}

fn add<'a>(key: &'a [u8], delta: i64, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Add { key, delta });
    Ok(Render::Plain)
}

fn incr<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    add(args.at(1), 1, ops)
}

fn incrby<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    add(args.at(1), int(args.at(2))?, ops)
}

fn decr<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    add(args.at(1), -1, ops)
}

fn decrby<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let delta = int(args.at(2))?;
    let delta = delta
        .checked_neg()
        .ok_or(Refusal::Text("ERR decrement would overflow"))?;
    add(args.at(1), delta, ops)
}

fn incrbyfloat<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let delta = args.at(2);
    parse_decimal(delta).ok_or(Refusal::NotFloat)?;
    ops.push(Op::AddDecimal {
        key: args.at(1),
        delta,
    });
    Ok(Render::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandKind;
    use resp::Span;

    fn planned(line: &str) -> Result<Vec<String>, Refusal> {
        let words: Vec<&str> = line.split(' ').collect();
        let mut spans = Vec::new();
        let mut at = 0;
        for word in &words {
            spans.push(Span::new(at, word.len()));
            at += word.len() + 1;
        }
        let args = Args::new(line.as_bytes(), &spans);
        let command = crate::commands::table().find(words[0].as_bytes()).unwrap();
        let mut ops = Ops::new();
        let (CommandKind::Store(plan) | CommandKind::AllOrNothing(plan)) = command.kind else {
            unreachable!()
        };
        plan(args, &mut ops)?;
        Ok(ops.iter().map(|op| format!("{op:?}")).collect())
    }

    #[test]
    fn options_exclude_each_other_as_in_redis() {
        for line in [
            "SET k v NX XX",
            "SET k v EX",
            "SET k v EX 1 PX 1",
            "SET k v KEEPTTL EX 1",
            "SET k v PERSIST",
            "SET k v WHAT",
            "GETEX k NX",
            "GETEX k KEEPTTL",
            "GETEX k PERSIST EX 1",
        ] {
            assert_eq!(planned(line), Err(Refusal::Syntax), "{line}");
        }
        for line in [
            "SET k v NX NX",
            "SET k v GET NX",
            "SET k v EX 1 EX 2",
            "SET k v xx get px 5",
            "GETEX k",
        ] {
            assert!(planned(line).is_ok(), "{line}");
        }
        for line in [
            "SET k v EX 0",
            "SET k v PX -1",
            "SETEX k 9223372036854775807 v",
        ] {
            assert_eq!(planned(line), Err(Refusal::BadExpiry), "{line}");
        }
        assert_eq!(planned("SET k v EX x"), Err(Refusal::NotInteger));
    }

    #[test]
    fn pairs_must_be_pairs() {
        assert_eq!(planned("MSET a 1 b"), Err(Refusal::Arity));
        assert_eq!(planned("MSETNX a 1 b"), Err(Refusal::Arity));
        assert_eq!(planned("MSETNX a 1 b 2").unwrap().len(), 4);
    }

    #[test]
    fn numbers_keep_to_their_range() {
        assert!(planned("DECRBY k -9223372036854775808").is_err());
        assert!(planned("DECRBY k 9223372036854775807").is_ok());
        assert_eq!(
            planned("SETRANGE k -1 x"),
            Err(Refusal::Text("ERR offset is out of range"))
        );
        let too_long = planned("SETRANGE k 536870912 x").expect("its key is looked at first");
        assert!(too_long[0].starts_with("Len"), "{too_long:?}");
        assert_eq!(planned("INCRBYFLOAT k nan"), Err(Refusal::NotFloat));
        assert!(planned("INCRBYFLOAT k inf").is_ok());
    }
}
