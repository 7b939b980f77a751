//! Which transactions are read atomic. This does not depend on where keys lie, so that a transaction
//! that is refused on one cluster is refused on all.
//!
//! | the keys | the operations | way |
//! |---|---|---|
//! | one; or none is read atomic | any | ordinary: serializable |
//! | any | all of them note or compare versions (`WATCH`) | ordinary |
//! | several, all read atomic | all read | [`TransactionClass::Read`] |
//! | several, all read atomic | all set or delete unconditionally | [`TransactionClass::Write`] |
//! | several, all read atomic | others, guards and the time among them | refused |
//! | some read atomic, some not; or operations on no key beside read-atomic ones | any others | refused |
//!
//! Guards and the time have no key, and go along with the other operations: with a single read-atomic
//! key, or with operations that note and compare versions, they are executed as with any key.
//! Transactions of several read-atomic keys hold nothing, so that a guard would not keep an older
//! holder's writes from coming later.

use base::eviction::KeyAccess;
use base::transaction::{Expiry, When};
use base::versions::{ReadAtomic, shown_key};
use base::{Abort, Op};

/// How a transaction is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionClass {
    /// Serializably.
    Ordinary,
    /// It reads several read-atomic keys.
    Read,
    /// It writes several read-atomic keys, and does nothing else.
    Write,
}

/// Why a transaction is not executed, and what to do. The texts are of keys, as refusals show them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadAtomicRefusal {
    /// Some of its keys are read atomic, and some are not.
    #[error(
        "a transaction cannot have read-atomic keys and others ({covered} is one, {other} is not), because \
         read-atomic keys are not held: send one for each, or change which keys are declared read atomic"
    )]
    Mixed {
        /// One that is read atomic.
        covered: String,
        /// One that is not, or an operation without a key.
        other: String,
    },
    /// It reads and writes.
    #[error(
        "a transaction of several read-atomic keys cannot read and write ({read} is read, {written} is written), \
         because nothing is held in between: send what it reads and what it writes each by itself, or use keys \
         that are not declared read atomic"
    )]
    ReadsAndWrites {
        /// A key that it reads.
        read: String,
        /// A key that it writes.
        written: String,
    },
    /// One of its operations is not available for several keys.
    #[error(
        "a transaction of several read-atomic keys can read, set and delete whole values only, because nothing is \
         held in it, and {of} does more: conditions, counters and the like need a transaction of one key"
    )]
    Conditional {
        /// What does more.
        of: String,
    },
    /// It is guarded.
    #[error(
        "a transaction of several read-atomic keys cannot be guarded, as by the lock {lock}: nothing is held in it, \
         so that what has an older token could take effect later; guard transactions of one key, or of others"
    )]
    Guarded {
        /// The lock.
        lock: String,
    },
    /// It must be read or written as read-atomic keys are, and not all of its keys are read atomic.
    #[error(
        "only keys that are declared read atomic can be read or written like this, and {other} is not: put the \
         beginning of the keys into read_atomic in the cluster's file, or use an ordinary transaction"
    )]
    NotCovered {
        /// A key that is not read atomic, or an operation without a key.
        other: String,
    },
    /// It must only read or only write, and does something else.
    #[error(
        "read-atomic keys can all be read like this, or all be set and deleted whole, because nothing is held; an \
         operation on {other} does something else: send it by itself"
    )]
    NotOneWay {
        /// The key of an operation that is of another kind than the first one.
        other: String,
    },
    /// It must hold what it reads.
    #[error(
        "a transaction of several read-atomic keys, such as {key}, holds nothing: send it as an ordinary one"
    )]
    Holds {
        /// One of its keys.
        key: String,
    },
}

impl From<ReadAtomicRefusal> for Abort {
    fn from(refusal: ReadAtomicRefusal) -> Abort {
        Abort::Unsupported {
            what: refusal.to_string(),
        }
    }
}

/// Returns the way of a transaction.
///
/// # Errors
/// [`ReadAtomicRefusal`] says why it has none.
pub fn classify(
    read_atomic: &ReadAtomic,
    ops: &[Op<'_>],
) -> Result<TransactionClass, ReadAtomicRefusal> {
    if read_atomic.is_empty() {
        return Ok(TransactionClass::Ordinary);
    }
    let Some(along) = ops.iter().find(|op| op.goes_along()) else {
        return classify_placed(read_atomic, ops);
    };
    let placed: Vec<Op<'_>> = ops.iter().filter(|op| !op.goes_along()).cloned().collect();
    match (classify_placed(read_atomic, &placed)?, along) {
        (TransactionClass::Ordinary, _) => Ok(TransactionClass::Ordinary),
        (_, Op::Guard { lock, .. }) => {
            let lock = shown_key(lock);
            Err(ReadAtomicRefusal::Guarded { lock })
        }
        _ => {
            let of = "an operation without a key".to_owned();
            Err(ReadAtomicRefusal::Conditional { of })
        }
    }
}

/// As [`classify`], for operations that have a place.
fn classify_placed(
    read_atomic: &ReadAtomic,
    ops: &[Op<'_>],
) -> Result<TransactionClass, ReadAtomicRefusal> {
    let is_covered = |op: &Op<'_>| op.key().is_some_and(|key| read_atomic.covers(key));
    let covered = ops.iter().filter(|op| is_covered(op)).count();
    let watches = |op: &Op<'_>| matches!(op, Op::Watch { .. } | Op::Check { .. });
    if covered == 0 || ops.iter().all(watches) {
        return Ok(TransactionClass::Ordinary);
    }
    if covered < ops.len() {
        return Err(ReadAtomicRefusal::Mixed {
            covered: shown_first(ops, is_covered),
            other: shown_first(ops, |op| !is_covered(op)),
        });
    }
    if ops.windows(2).all(|two| two[0].key() == two[1].key()) {
        return Ok(TransactionClass::Ordinary);
    }
    let (of_reads, of_writes) = (
        ops.iter().filter(|op| reads(op)).count(),
        ops.iter().filter(|op| writes(op)).count(),
    );
    match (of_reads == ops.len(), of_writes == ops.len()) {
        (true, _) => Ok(TransactionClass::Read),
        (_, true) => Ok(TransactionClass::Write),
        _ if of_reads + of_writes == ops.len() => Err(ReadAtomicRefusal::ReadsAndWrites {
            read: shown_first(ops, reads),
            written: shown_first(ops, writes),
        }),
        _ => {
            let key = shown_first(ops, |op| !reads(op) && !writes(op));
            let of = format!("an operation on {key}");
            Err(ReadAtomicRefusal::Conditional { of })
        }
    }
}

/// Returns the key of the first operation that is such a one, as refusals show it.
#[cold]
fn shown_first(ops: &[Op<'_>], is_such: impl Fn(&Op<'_>) -> bool) -> String {
    let key = ops.iter().find(|op| is_such(op)).and_then(Op::key);
    key.map_or_else(|| "an operation without a key".to_owned(), shown_key)
}

/// Checks that operations only read read-atomic keys, or only write them unconditionally.
///
/// # Errors
/// [`ReadAtomicRefusal`] says what else they do.
pub fn check_one_kind(read_atomic: &ReadAtomic, ops: &[Op<'_>]) -> Result<(), ReadAtomicRefusal> {
    let is_covered = |op: &Op<'_>| op.key().is_some_and(|key| read_atomic.covers(key));
    if !ops.iter().all(is_covered) {
        let other = shown_first(ops, |op| !is_covered(op));
        return Err(ReadAtomicRefusal::NotCovered { other });
    }
    if ops.iter().all(writes) || ops.iter().all(reads) {
        return Ok(());
    }
    let writes_first = ops.first().is_some_and(writes);
    let other = match writes_first {
        true => shown_first(ops, |op| !writes(op)),
        false => shown_first(ops, |op| !reads(op)),
    };
    Err(ReadAtomicRefusal::NotOneWay { other })
}

impl ReadAtomicRefusal {
    /// Returns the refusal to read a key as a read-atomic one.
    #[must_use]
    pub fn not_covered(key: &[u8]) -> ReadAtomicRefusal {
        let other = shown_key(key);
        ReadAtomicRefusal::NotCovered { other }
    }

    /// Returns the refusal to hold what operations read.
    #[must_use]
    pub fn holds(ops: &[Op<'_>]) -> ReadAtomicRefusal {
        let key = shown_first(ops, |op| op.key().is_some());
        ReadAtomicRefusal::Holds { key }
    }
}

/// Returns `true` if the operation only reads what its key holds.
fn reads(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Get { .. }
            | Op::GetIfString { .. }
            | Op::Len { .. }
            | Op::Exists { .. }
            | Op::Access {
                access: KeyAccess::Touch,
                ..
            }
            | Op::KindOf { .. }
            | Op::ExpiryOf { .. }
    )
}

/// Returns `true` if the result of the operation does not depend on the earlier value.
fn writes(op: &Op<'_>) -> bool {
    match op {
        Op::Put {
            when, expiry, get, ..
        } => *when == When::Always && *expiry != Expiry::Keep && !get,
        Op::Delete { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::discriminant;

    use super::*;

    const A: &[u8] = b"ra:a";
    const B: &[u8] = b"ra:b";
    const OTHER: &[u8] = b"other";

    fn get(key: &[u8]) -> Op<'_> {
        Op::Get { key }
    }

    fn put(key: &[u8]) -> Op<'_> {
        Op::put(key, b"v")
    }

    fn way(ops: &[Op<'_>]) -> Result<TransactionClass, ReadAtomicRefusal> {
        let declared = ReadAtomic::new([&b"feed:"[..], b"ra:"]);
        // Without declared keys nothing is refused; and the order of operations does not matter.
        assert_eq!(
            classify(&ReadAtomic::default(), ops),
            Ok(TransactionClass::Ordinary)
        );
        let turned: Vec<Op<'_>> = ops.iter().rev().cloned().collect();
        let way = classify(&declared, ops);
        let kind =
            |way: Result<TransactionClass, ReadAtomicRefusal>| way.map_err(|it| discriminant(&it));
        assert_eq!(kind(classify(&declared, &turned)), kind(way.clone()));
        way
    }

    /// Returns the text of the refusal.
    fn refused(ops: &[Op<'_>]) -> String {
        way(ops).expect_err("it is refused").to_string()
    }

    #[track_caller]
    fn names(text: &str, words: &[&str]) {
        for word in words {
            assert!(text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn several_keys_are_read_or_written_and_one_is_ordinary() {
        let exists = Op::Exists { key: B };
        assert_eq!(way(&[get(A), exists]), Ok(TransactionClass::Read));
        assert_eq!(
            way(&[get(A), Op::Len { key: b"feed:1" }]),
            Ok(TransactionClass::Read)
        );
        assert_eq!(
            way(&[put(A), Op::Delete { key: B }]),
            Ok(TransactionClass::Write)
        );
        assert_eq!(
            way(&[get(A), put(A), get(A)]),
            Ok(TransactionClass::Ordinary)
        );
        assert_eq!(
            way(&[get(OTHER), put(b"r"), Op::Count { database: 0 }]),
            Ok(TransactionClass::Ordinary)
        );
        assert_eq!(way(&[Op::Flush]), Ok(TransactionClass::Ordinary));
        assert_eq!(way(&[]), Ok(TransactionClass::Ordinary));
    }

    #[test]
    fn reads_with_writes_and_conditions_are_refused() {
        let both = "cannot read and write";
        let why = "nothing is held";
        names(
            &refused(&[get(A), put(B)]),
            &[
                both,
                "'ra:a' is read",
                "'ra:b' is written",
                why,
                "each by itself",
            ],
        );
        names(
            &refused(&[get(B), put(A), get(A)]),
            &[both, "'ra:b' is read", "'ra:a' is written"],
        );
        let version = base::Version::from_bits(0);
        let check = Op::Check { key: A, version };
        let put_if = |when, expiry, get| Op::Put {
            key: B,
            value: b"v",
            when,
            expiry,
            get,
        };
        for op in [
            Op::Add { key: B, delta: 1 },
            Op::GetDelete { key: B },
            put_if(When::Absent, Expiry::Never, false),
            put_if(When::Always, Expiry::Keep, false),
            put_if(When::Always, Expiry::Never, true),
        ] {
            let more = [
                "an operation on 'ra:b' does more",
                why,
                "a transaction of one key",
            ];
            names(&refused(&[put(A), op.clone()]), &more);
            names(&refused(&[get(A), op.clone()]), &more);
            names(&refused(&[check.clone(), op]), &more[1..]);
        }
        let blind = put_if(When::Always, Expiry::InMs(5), false);
        assert_eq!(way(&[put(A), blind]), Ok(TransactionClass::Write));
    }

    #[test]
    fn keys_of_both_kinds_are_refused_unless_their_versions_are_only_noted() {
        for ops in [
            [get(A), get(OTHER)],
            [put(A), put(OTHER)],
            [put(A), Op::Flush],
            [get(A), Op::Count { database: 0 }],
            [get(A), Op::Watch { key: OTHER }],
        ] {
            let other = match ops[1].key() {
                Some(_) => "'other' is not",
                None => "an operation without a key is not",
            };
            names(
                &refused(&ops),
                &["'ra:a' is one", other, "not held", "send one for each"],
            );
        }
        let version = base::Version::from_bits(0);
        let watches = [Op::Watch { key: A }, Op::Watch { key: OTHER }];
        let compares = [Op::Check { key: A, version }, Op::Watch { key: B }];
        assert_eq!(way(&watches), Ok(TransactionClass::Ordinary));
        assert_eq!(way(&compares), Ok(TransactionClass::Ordinary));
    }

    #[test]
    fn guards_and_the_time_go_with_one_key_alone() {
        let guard = || Op::Guard {
            lock: b"ra:lock",
            token: 1,
        };
        assert_eq!(
            way(&[guard(), get(A), put(A)]),
            Ok(TransactionClass::Ordinary)
        );
        assert_eq!(
            way(&[guard(), Op::Now, put(OTHER)]),
            Ok(TransactionClass::Ordinary)
        );
        assert_eq!(way(&[Op::Now, put(A)]), Ok(TransactionClass::Ordinary));
        let guarded = ["cannot be guarded", "'ra:lock'", "older token"];
        names(&refused(&[guard(), put(A), put(B)]), &guarded);
        names(&refused(&[guard(), get(A), get(B)]), &guarded);
        names(
            &refused(&[Op::Now, get(A), get(B)]),
            &["an operation without a key does more"],
        );
        names(
            &refused(&[guard(), put(A), put(OTHER)]),
            &["'ra:a' is one", "'other' is not"],
        );
    }

    #[test]
    fn what_is_to_be_written_is_checked() {
        let declared = ReadAtomic::new([&b"ra:"[..]]);
        let check = |ops: &[Op<'_>]| check_one_kind(&declared, ops);
        assert_eq!(check(&[put(A), Op::Delete { key: B }]), Ok(()));
        assert_eq!(check(&[put(A)]), Ok(()));
        let refused = |ops: &[Op<'_>]| check(ops).expect_err("refused").to_string();
        let not_covered = ["like this", "read_atomic", "ordinary transaction"];
        names(&refused(&[put(A), put(OTHER)]), &["'other' is not"]);
        names(&refused(&[put(A), put(OTHER)]), &not_covered);
        names(
            &refused(&[put(A), Op::Flush]),
            &["an operation without a key is not"],
        );
        let other = ["an operation on 'ra:b' does something else", "by itself"];
        names(&refused(&[put(A), get(B)]), &other);
        names(&refused(&[get(A), put(B)]), &other);
    }

    #[test]
    fn refusals_of_held_and_uncovered_keys_name_them() {
        let holds = ReadAtomicRefusal::holds(&[get(A), get(B)]).to_string();
        names(&holds, &["'ra:a'", "holds nothing", "ordinary one"]);
        let line = ReadAtomicRefusal::not_covered(b"a\r\n").to_string();
        names(&line, &["'a\\r\\n' is not", "read_atomic"]);
        let long = ReadAtomicRefusal::not_covered(&[b'k'; 5000]).to_string();
        assert!(long.len() < 400, "{}", long.len());
    }
}
