//! Executes the operations of one-shot transactions: each of them in terms of reads and writes.

use std::borrow::Cow;

use base::database;
use base::epochs::EpochClock;
use base::eviction::KeyAccess;
use base::partition::OwnedReply;
use base::transaction::{OpError, ScanContents, byte_range};
use base::{Abort, Op, Reply};

use crate::access_stamp::{AccessStamp, UseTracking};
use crate::announce::note;
use crate::engine::Engine;
use crate::lookaside::KeyHash;
use crate::record::{RecordRef, VersionRef};
use crate::strings::{bytes_or_nil, int};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::{calls, deadlines, fencing, libraries, strings, version_ids};

/// Executes the operations within the transaction, which gets their replies.
#[inline]
pub(crate) fn run(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    ops: &[Op<'_>],
) -> Result<(), TransactionError> {
    version_ids::draw_for_operations(&thread.engine, txn, ops);
    // One operation alone needs no list of hashes.
    if ops.len() > 1 {
        txn.hash_and_fetch_operations(&thread.engine, ops);
    }
    let listens = thread.engine.listening.is_on();
    // Events that the operations bring are all that there are.
    let notes = listens && !ops.iter().any(|op| matches!(op, Op::Announce { .. }));
    for (at, op) in ops.iter().enumerate() {
        txn.admit_bytes(thread, op.brings())?;
        let reply = if txn.is_swapped(&thread.engine) {
            execute_swapped(thread, txn, (at, op), notes)?
        } else {
            let hash = match ops.len() {
                1 => op.key().map(|key| thread.engine.index.hash(key)),
                _ => txn.hashes[at],
            };
            execute_hashed(thread, txn, (at, op), (hash, notes))?
        };
        txn.replies.push(reply);
    }
    Ok(())
}

/// Executes an operation, of whose key, if it has one, this is the hash. Its event is noted, or not.
#[inline]
fn execute_hashed(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (at, op): (usize, &Op<'_>),
    (hash, notes): (Option<KeyHash>, bool),
) -> Result<Reply<'static>, TransactionError> {
    let Some(hash) = hash else {
        return execute_keyless(thread, txn, at, op);
    };
    let allocated = txn.allocated();
    let notes_use = txn.notes_use;
    txn.notes_use = notes_use && op.uses_key();
    let reply = execute(thread, txn, at, op, hash)?.unwrap_or_else(Reply::Error);
    txn.notes_use = notes_use;
    if notes {
        note(&thread.engine, txn, (op, hash), allocated);
    }
    Ok(reply)
}

/// Executes an operation whose keys are stored under others, because databases were exchanged.
#[cold]
fn execute_swapped(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (at, op): (usize, &Op<'_>),
    notes: bool,
) -> Result<Reply<'static>, TransactionError> {
    let keys = stored_keys(&thread.engine, txn, op);
    let mut stored = op.clone();
    set_keys(&mut stored, &keys);
    let hash = stored.key().map(|key| thread.engine.index.hash(key));
    execute_hashed(thread, txn, (at, &stored), (hash, notes))
}

/// Returns the keys under which those of an operation are stored: its only one, or the two ends of its
/// range.
fn stored_keys(engine: &Engine, txn: &mut TransactionState, op: &Op<'_>) -> [Vec<u8>; 2] {
    let (first, second) = match *op {
        Op::Scan { from, to, .. } => (Some(from), to),
        _ => (op.key(), None),
    };
    [first, second].map(|key| {
        let stored = key.map(|key| txn.stored_key(engine, key));
        stored.map_or(Vec::new(), Cow::into_owned)
    })
}

/// Gives an operation the keys that [`stored_keys`] has returned.
fn set_keys<'k>(op: &mut Op<'k>, [first, second]: &'k [Vec<u8>; 2]) {
    match op {
        Op::Scan { from, to, .. } => {
            *from = first;
            *to = to.map(|_| &second[..]);
        }
        op => {
            if let Some(key) = op.key_mut() {
                *key = first;
            }
        }
    }
}

/// Returns copies of the replies, which do not refer to the engine's memory.
pub(crate) fn owned_replies(txn: &TransactionState) -> Vec<OwnedReply> {
    txn.replies.iter().map(OwnedReply::from).collect()
}

/// Executes an operation on a key. The outer error ends the transaction, the inner one is the reply.
fn execute(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    at: usize,
    op: &Op<'_>,
    hash: KeyHash,
) -> Result<Result<Reply<'static>, OpError>, TransactionError> {
    let precondition = || TransactionError::Abort(Abort::Precondition { op: at });
    let engine = &thread.engine;
    Ok(match *op {
        Op::Check { key, version } => {
            if txn.watch_version(engine, hash, key) != version {
                return Err(precondition());
            }
            Ok(Reply::Ok)
        }
        Op::Require { key, present } => {
            if txn.read(engine, hash, key).live.is_some() != present {
                return Err(precondition());
            }
            Ok(Reply::Ok)
        }
        Op::Announce { key, event } => {
            if engine.listening.is_on() {
                txn.note_event(key, event);
            }
            Ok(Reply::Ok)
        }
        Op::Watch { key } => Ok(Reply::Version(txn.watch_version(engine, hash, key))),
        Op::Get { key } => txn.read(engine, hash, key).string().map(bytes_or_nil),
        Op::GetIfString { key } => {
            let value = txn.read(engine, hash, key).string();
            Ok(bytes_or_nil(value.unwrap_or(None)))
        }
        Op::GetRange { key, start, end } => {
            let value = txn.read(engine, hash, key).string();
            value.map(|value| Reply::Bytes(byte_range(value.unwrap_or(b""), start, end)))
        }
        Op::Len { key } => {
            let value = txn.read(engine, hash, key).string();
            value.map(|value| int(value.map_or(0, <[u8]>::len)))
        }
        Op::Exists { key } => {
            let live = txn.read(engine, hash, key).live;
            Ok(int(usize::from(live.is_some())))
        }
        Op::KindOf { key } => {
            let live = txn.read(engine, hash, key).live;
            Ok(live.map_or(Reply::Nil, |version| Reply::Kind(version.kind())))
        }
        Op::ExpiryOf { key } => {
            let live = txn.read(engine, hash, key).live;
            Ok(live.map_or(Reply::Nil, |version| Reply::Deadline(version.deadline())))
        }
        Op::Delete { key } => {
            let exists = txn.read(engine, hash, key).live.is_some();
            if exists || version_ids::deletes_absent(engine, txn, key) {
                txn.write(thread, hash, key, None);
            }
            Ok(int(usize::from(exists)))
        }
        Op::GetDelete { key } => {
            let value = txn.read(engine, hash, key).string();
            let deletes = match value {
                Ok(Some(_)) => true,
                Ok(None) => version_ids::deletes_absent(engine, txn, key),
                Err(_) => false,
            };
            if deletes {
                txn.write(thread, hash, key, None);
            }
            value.map(bytes_or_nil)
        }
        Op::Call { key, ref call } => return calls::execute(thread, txn, (hash, key), call),
        Op::Access { key, access } => Ok(access_key(engine, txn, (hash, key), access)),
        Op::GetAny { key } | Op::Inspect { key } => {
            let live = txn.read(engine, hash, key).live;
            Ok(live.map_or(Reply::Nil, |version| {
                Reply::Value(version.kind(), version.stored_value())
            }))
        }
        Op::PutAny {
            key,
            kind,
            value,
            expiry,
        } => calls::put(thread, txn, (hash, key), (kind, value, expiry)),
        Op::Put { .. }
        | Op::Append { .. }
        | Op::SetRange { .. }
        | Op::Add { .. }
        | Op::AddDecimal { .. } => strings::execute(thread, txn, op, hash),
        Op::GetExpire { .. } | Op::Expire { .. } | Op::Persist { .. } => {
            deadlines::execute(thread, txn, op, hash)
        }
        Op::Guard { .. }
        | Op::Now
        | Op::Libraries
        | Op::CheckLibraries { .. }
        | Op::SetLibraries { .. }
        | Op::Count { .. }
        | Op::Scan { .. }
        | Op::Flush
        | Op::FlushDatabase { .. }
        | Op::SwapDatabases { .. } => unreachable!("has no key"),
    })
}

/// Returns or changes what is known of the use of a key.
fn access_key(
    engine: &Engine,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    access: KeyAccess,
) -> Reply<'static> {
    let live = txn.read(engine, hash, key).live;
    let record = live.and_then(|_| engine.index.get(hash, key));
    let Some(record) = record else {
        return match access {
            KeyAccess::Touch => Reply::Int(0),
            _ => Reply::Nil,
        };
    };
    let (tracking, since_ms) = (engine.eviction.tracking(), engine.eviction.since_ms());
    let time_ms = txn.time_ms;
    match (access, tracking) {
        (KeyAccess::Touch, _) => {
            txn.note_use_now(engine, record);
            Reply::Int(1)
        }
        (KeyAccess::IdleSeconds, UseTracking::LastUse) => {
            let seconds = record.stamp().idle_seconds(time_ms, since_ms);
            Reply::Int(seconds.into())
        }
        (KeyAccess::IdleSeconds, UseTracking::Frequency) => Reply::Int(KeyAccess::NO_LRU[0]),
        (KeyAccess::IdleSeconds, UseTracking::None) => Reply::Int(KeyAccess::NO_LRU[1]),
        (KeyAccess::Frequency, UseTracking::Frequency) => {
            let settings = engine.eviction.settings();
            let counter = record.stamp().counter(&settings, time_ms, since_ms);
            Reply::Int(counter.into())
        }
        (KeyAccess::Frequency, _) => Reply::Int(KeyAccess::NO_LFU),
        (KeyAccess::SetIdleSeconds(seconds), UseTracking::LastUse) => {
            let stamp = AccessStamp::idle_for(time_ms, seconds);
            txn.stamps.push((record, stamp));
            Reply::Ok
        }
        (KeyAccess::SetFrequency(counter), UseTracking::Frequency) => {
            let stamp = AccessStamp::counted_at(time_ms, counter);
            txn.stamps.push((record, stamp));
            Reply::Ok
        }
        (KeyAccess::SetIdleSeconds(_) | KeyAccess::SetFrequency(_), _) => Reply::Ok,
    }
}

/// Executes an operation that has no key.
fn execute_keyless(
    thread: &ThreadContext,
    txn: &mut TransactionState,
    at: usize,
    op: &Op<'_>,
) -> Result<Reply<'static>, TransactionError> {
    let engine = &thread.engine;
    match *op {
        Op::Guard { lock, token } => fencing::guard(thread, txn, lock, token).map(|()| Reply::Ok),
        Op::Libraries => libraries::read(engine, txn).map(bytes_or_nil),
        Op::CheckLibraries { generation } => libraries::check(engine, txn, at, generation),
        Op::SetLibraries {
            generation,
            libraries,
        } => libraries::set(thread, txn, at, (generation, libraries)),
        Op::Now => Ok(Reply::Int(fencing::return_time(txn))),
        Op::Count { database } if txn.is_deterministic => {
            Ok(Reply::Int(count_by_scan(engine, txn, database)))
        }
        Op::Count { database } => {
            let count = count(engine, txn, database);
            // Counters have no version: the reply waits for everything up to now.
            txn.observed = engine.epochs.current();
            Ok(Reply::Int(count as i64))
        }
        Op::FlushDatabase { database } => {
            txn.flush_database(thread, database)?;
            Ok(Reply::Ok)
        }
        Op::SwapDatabases { first, second } => {
            txn.swap_databases(thread, (first, second))?;
            Ok(Reply::Ok)
        }
        Op::Scan {
            from,
            to,
            limit,
            contents,
        } => {
            let mut pairs: Vec<(&'static [u8], &'static [u8])> = Vec::new();
            txn.scan(engine, from, to, limit, |record, version| {
                let content = match contents {
                    ScanContents::Keys => b"",
                    ScanContents::Values => version.string().unwrap_or_default(),
                    ScanContents::Kinds => version.kind().number_bytes(),
                };
                pairs.push((record.key(), content));
            });
            Ok(Reply::Pairs(pairs))
        }
        _ => {
            txn.flush(thread)?;
            Ok(Reply::Ok)
        }
    }
}

/// Returns the number of keys of a database that the transaction sees, one by one: expired keys do not
/// count, even if the janitor has not removed them yet.
fn count_by_scan(engine: &Engine, txn: &mut TransactionState, of: u16) -> i64 {
    let mut keys = 0;
    let namespace = txn.namespace_of(engine, of);
    let from = database::qualified(namespace, b"");
    txn.scan(engine, &from, None, usize::MAX, |_, _| keys += 1);
    keys
}

/// Returns the number of keys of a database that the transaction sees, its own writes included.
fn count(engine: &Engine, txn: &mut TransactionState, of: u16) -> u64 {
    let namespace = txn.namespace_of(engine, of);
    let generation = txn.generation_of_namespace(engine, namespace);
    let is_of = |record: &RecordRef| {
        database::number(record.key()) == namespace && *record != engine.generation
    };
    let writes = txn.writes.iter().filter(|write| is_of(&write.record));
    let own = writes.map(|write| {
        let old = RecordRef::version(write.record.word().load());
        let of = |version: VersionRef| i64::from(version.is_key_of(generation));
        of(write.version) - of(old)
    });
    engine
        .count_keys_of(namespace, generation)
        .saturating_add_signed(own.sum())
}
