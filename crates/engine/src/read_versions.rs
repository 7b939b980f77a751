//! Reads of single versions of read-atomic keys (module [`crate::read_atomic`]), each by itself. They
//! never wait for holds, and are not validated.

use base::TransactionId;
use base::versions::{Ask, Content as FoundContent, Found, Versioned};

use crate::engine::Engine;
use crate::lookaside::KeyHash;
use crate::record::{RecordRef, VersionRef};
use crate::retry::pause;
use crate::system_record::{self, PreparedEffect, SystemRecord};
use crate::transaction::TransactionState;
use crate::word::LOCK;

/// Fetches the memory of the keys that are asked for, origins included.
pub(crate) fn fetch(engine: &Engine, txn: &mut TransactionState, asks: &[Ask<'_>]) {
    txn.hash_and_fetch(engine, asks.iter().map(Ask::key));
    let hints = engine.index.hints();
    let hashes = || txn.hashes.iter().flatten().copied();
    hashes().for_each(|hash| hints.prefetch_origin_name(hash));
    hashes().for_each(|hash| hints.prefetch_origin(hash));
}

/// Finds the version that is asked for.
pub(crate) fn find(
    engine: &Engine,
    txn: &mut TransactionState,
    ask: &Ask<'_>,
    hash: KeyHash,
) -> Found<'static> {
    let key = ask.key();
    let Ask::OneOf { ids, .. } = ask else {
        let whole = matches!(ask, Ask::Newest { .. });
        let newest = txn.newest_version(engine, hash, key);
        return newest.map_or(Found::Nothing, |version| {
            Found::Version(describe(engine, txn, version, whole))
        });
    };
    let mut ids = ids.clone();
    ids.sort_unstable();
    ids.dedup();
    for waits in 0.. {
        // The keys of one entry are all locked first, and then published one by one: a version
        // of another key can be visible, and this key's may be about to be.
        let record = engine.index.get(hash, key);
        let is_written = record.is_some_and(|record| record.word().load().has(LOCK));
        let found = find_newest_of(engine, txn, &ids, hash, key);
        if !is_written || matches!(found, Found::Version(_)) {
            return found;
        }
        pause(waits);
    }
    unreachable!("it is asked until it is answered")
}

/// Returns the newest of these versions of a key.
fn find_newest_of(
    engine: &Engine,
    txn: &mut TransactionState,
    ids: &[TransactionId],
    hash: KeyHash,
    key: &[u8],
) -> Found<'static> {
    // Before the chain: a commit fills the chain before the system record says that it has
    // committed.
    let mut prepared = ids.iter().rev();
    let prepared = prepared.find_map(|id| prepared_version(engine, txn, *id, key));
    let Some(newest) = txn.newest_version(engine, hash, key) else {
        return prepared.map_or(Found::Nothing, Found::Version);
    };
    let least = ids.first().copied().unwrap_or(TransactionId::ZERO);
    let mut is_whole = false;
    let chain = std::iter::successors(Some(newest), |version| version.previous());
    for version in chain.take_while(|version| !version.is_never()) {
        let id = version.origin_id();
        if prepared.is_some_and(|prepared| prepared.id > id) {
            break;
        }
        if ids.binary_search(&id).is_ok() {
            return Found::Version(describe(engine, txn, version, true));
        }
        if id < least {
            is_whole = true;
            break;
        }
    }
    match prepared {
        Some(prepared) => Found::Version(prepared),
        None if is_whole => Found::NotThere,
        None => Found::Gone,
    }
}

/// Returns a version as a reader gets it: the id alone, or with everything if `whole`.
fn describe(
    engine: &Engine,
    txn: &mut TransactionState,
    version: VersionRef,
    whole: bool,
) -> Versioned<'static> {
    // After the version, so that it does not count as one of a flush that is still to come.
    let flush = RecordRef::version(engine.generation.word().load());
    txn.observe(flush.epoch());
    let exists =
        whole && version.is_key_of(flush.generation()) && !txn.has_passed(version.deadline());
    Versioned {
        id: version.origin_id(),
        siblings: match version.origin() {
            Some(origin) if whole => origin.siblings,
            _ => b"",
        },
        // Read-atomic keys have no trees.
        content: exists.then(|| FoundContent {
            value: version.value(),
            kind: version.kind(),
            deadline: version.deadline(),
        }),
    }
}

/// Returns the version that a prepared transaction will write to a key.
fn prepared_version(
    engine: &Engine,
    txn: &mut TransactionState,
    id: TransactionId,
    key: &[u8],
) -> Option<Versioned<'static>> {
    let own = system_record::key(id);
    let record = engine.index.get(engine.index.hash(&own), &own)?;
    let version = RecordRef::version(record.word().load());
    if version.is_absent() {
        return None;
    }
    let entry = system_record::decode(version.value()).expect(system_record::WELL_FORMED);
    let SystemRecord::Pending {
        siblings, effects, ..
    } = entry
    else {
        return None;
    };
    let effect = effects.iter().rev().find(|effect| effect.is_of(key))?;
    txn.observe(version.epoch());
    let content = match *effect {
        PreparedEffect::Put {
            value,
            kind,
            deadline,
            ..
        } => Some(FoundContent {
            value,
            kind,
            deadline,
        }),
        _ => None,
    };
    Some(Versioned {
        id,
        siblings,
        content: content.filter(|content| !txn.has_passed(content.deadline)),
    })
}
