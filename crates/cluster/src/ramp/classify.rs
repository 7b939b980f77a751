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
use base::versions::ReadAtomic;
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

/// Why a transaction is not executed, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadAtomicRefusal {
    /// Some of its keys are read atomic, and some are not.
    #[error(
        "a transaction cannot have read-atomic keys and others: send one for each, or change \
         which keys are declared read atomic"
    )]
    Mixed,
    /// It reads and writes.
    #[error(
        "a transaction of several read-atomic keys cannot read and write: send what it reads and what \
         it writes each by itself"
    )]
    ReadsAndWrites,
    /// One of its operations is not available for several keys.
    #[error(
        "a transaction of several read-atomic keys can read, set and delete whole values only: \
         conditions, counters and the like need a transaction of one key"
    )]
    Conditional,
    /// It is guarded.
    #[error(
        "a transaction of several read-atomic keys cannot be guarded: nothing is held in it, so that \
         what has an older token could take effect later; guard transactions of one key, or of others"
    )]
    Guarded,
    /// It must be written as read-atomic keys are, and not all of its keys are read atomic.
    #[error(
        "only keys that are declared read atomic can be written like this: put the beginning of the \
         keys into read_atomic in the cluster's file, or write them as an ordinary transaction"
    )]
    NotCovered,
    /// It must only read or only write, and does something else.
    #[error(
        "read-atomic keys can be read like this, or be set and deleted whole, and nothing else"
    )]
    NotOneWay,
    /// It must hold what it reads.
    #[error("a transaction of several read-atomic keys holds nothing: send it as an ordinary one")]
    Holds,
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
        (_, Op::Guard { .. }) => Err(ReadAtomicRefusal::Guarded),
        _ => Err(ReadAtomicRefusal::Conditional),
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
        return Err(ReadAtomicRefusal::Mixed);
    }
    if ops.windows(2).all(|two| two[0].key() == two[1].key()) {
        return Ok(TransactionClass::Ordinary);
    }
    let (reads, writes) = (
        ops.iter().filter(|op| reads(op)).count(),
        ops.iter().filter(|op| writes(op)).count(),
    );
    match (reads == ops.len(), writes == ops.len()) {
        (true, _) => Ok(TransactionClass::Read),
        (_, true) => Ok(TransactionClass::Write),
        _ if reads + writes == ops.len() => Err(ReadAtomicRefusal::ReadsAndWrites),
        _ => Err(ReadAtomicRefusal::Conditional),
    }
}

/// Checks that operations only read read-atomic keys, or only write them unconditionally.
///
/// # Errors
/// [`ReadAtomicRefusal`] says what else they do.
pub fn check_one_kind(read_atomic: &ReadAtomic, ops: &[Op<'_>]) -> Result<(), ReadAtomicRefusal> {
    let is_covered = |op: &Op<'_>| op.key().is_some_and(|key| read_atomic.covers(key));
    if !ops.iter().all(is_covered) {
        Err(ReadAtomicRefusal::NotCovered)
    } else if !ops.iter().all(writes) && !ops.iter().all(reads) {
        Err(ReadAtomicRefusal::NotOneWay)
    } else {
        Ok(())
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
        assert_eq!(classify(&declared, &turned), way);
        way
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
        assert_eq!(
            way(&[get(A), put(B)]),
            Err(ReadAtomicRefusal::ReadsAndWrites)
        );
        assert_eq!(
            way(&[get(A), put(A), get(B)]),
            Err(ReadAtomicRefusal::ReadsAndWrites)
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
            assert_eq!(
                way(&[put(A), op.clone()]),
                Err(ReadAtomicRefusal::Conditional)
            );
            assert_eq!(
                way(&[get(A), op.clone()]),
                Err(ReadAtomicRefusal::Conditional)
            );
            assert_eq!(
                way(&[check.clone(), op]),
                Err(ReadAtomicRefusal::Conditional)
            );
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
            assert_eq!(way(&ops), Err(ReadAtomicRefusal::Mixed), "{ops:?}");
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
        assert_eq!(
            way(&[guard(), put(A), put(B)]),
            Err(ReadAtomicRefusal::Guarded)
        );
        assert_eq!(
            way(&[guard(), get(A), get(B)]),
            Err(ReadAtomicRefusal::Guarded)
        );
        assert_eq!(
            way(&[Op::Now, get(A), get(B)]),
            Err(ReadAtomicRefusal::Conditional)
        );
        assert_eq!(
            way(&[guard(), put(A), put(OTHER)]),
            Err(ReadAtomicRefusal::Mixed)
        );
    }

    #[test]
    fn what_is_to_be_written_is_checked() {
        let declared = ReadAtomic::new([&b"ra:"[..]]);
        let check = |ops: &[Op<'_>]| check_one_kind(&declared, ops);
        assert_eq!(check(&[put(A), Op::Delete { key: B }]), Ok(()));
        assert_eq!(check(&[put(A)]), Ok(()));
        assert_eq!(
            check(&[put(A), put(OTHER)]),
            Err(ReadAtomicRefusal::NotCovered)
        );
        assert_eq!(
            check(&[put(A), Op::Flush]),
            Err(ReadAtomicRefusal::NotCovered)
        );
        assert_eq!(check(&[put(A), get(B)]), Err(ReadAtomicRefusal::NotOneWay));
    }
}
