//! Announces the changes of a transaction to the engine's listener, after they were made current and
//! within the epoch.
//!
//! The events are those that the operations have noted ([`note`]). Writes without a note, which come from
//! a log or were prepared before a restart, get the event of their effect.

use std::sync::atomic::{Ordering, fence};

use base::key_event::{KeyEvent, KeyListener};
use base::{Op, Tid, database};
use hashbrown::HashSet;

use crate::engine::Engine;
use crate::listening::NotedEvent;
use crate::log::RecordWrite;
use crate::lookaside::KeyHash;
use crate::record::{RecordRef, VersionRef};
use crate::system_record::{DATABASES, is_reserved};
use crate::transaction::TransactionState;
use crate::word::WordValue;

/// Notes the events of an operation that has been executed, if it has written. `allocated` are the
/// bytes that the transaction had allocated before it.
pub(crate) fn note(
    engine: &Engine,
    txn: &mut TransactionState,
    (op, hash): (&Op<'_>, KeyHash),
    allocated: usize,
) {
    if txn.allocated() == allocated {
        return;
    }
    let Some(key) = op.key() else {
        return;
    };
    let record = engine.index.get(hash, key);
    let own = record.and_then(|record| txn.own_write(record));
    let deleted = own.is_some_and(|at| txn.writes[at].version.is_absent());
    for event in op.events(deleted).into_iter().flatten() {
        txn.note_event(key, event);
    }
}

/// Announces writes that are current now; `locked` are the words that they have replaced.
#[inline]
pub(crate) fn announce(
    engine: &Engine,
    (writes, locked): (&[RecordWrite], &[WordValue]),
    events: &[NotedEvent],
    tid: Tid,
) {
    if engine.listening.is_on() {
        announce_all(engine, (writes, locked), events, tid);
    }
}

#[cold]
fn announce_all(
    engine: &Engine,
    (writes, locked): (&[RecordWrite], &[WordValue]),
    events: &[NotedEvent],
    tid: Tid,
) {
    // Invariant 2 of module `listening`.
    fence(Ordering::SeqCst);
    let Some(listener) = engine.listening.listener() else {
        return;
    };
    let noted: HashSet<&[u8]> = events.iter().map(|noted| &*noted.key).collect();
    let mut created: HashSet<&[u8]> = HashSet::new();
    let mut flushed = false;
    for (write, seen) in writes.iter().zip(locked) {
        let key = write.record.key();
        let is_noted = noted.contains(key);
        match announce_write(engine, &*listener, (*write, *seen), is_noted, tid) {
            Some(UnannouncedEffect::Flush) => flushed = true,
            Some(UnannouncedEffect::New) => drop(created.insert(key)),
            None => {}
        }
    }
    if flushed {
        listener.flushed(tid);
    }
    for noted in events {
        let is_new = created.remove(&*noted.key);
        announce_noted(engine, &*listener, noted, is_new, tid);
    }
}

/// What is announced of a write after all writes.
pub(crate) enum UnannouncedEffect {
    /// Keys were flushed, or databases exchanged.
    Flush,
    /// The key is new: that comes before its first noted event.
    New,
}

/// Announces a write that is current now, as far as the transaction has noted no event of its key. `seen` is the word
/// that it has replaced.
pub(crate) fn announce_write(
    engine: &Engine,
    listener: &dyn KeyListener,
    (RecordWrite { record, version }, seen): (RecordWrite, WordValue),
    is_noted: bool,
    tid: Tid,
) -> Option<UnannouncedEffect> {
    if record == engine.generation {
        return Some(UnannouncedEffect::Flush);
    }
    let (key, old) = (record.key(), RecordRef::version(seen));
    if is_system(key) {
        let flushes = key == DATABASES && !old.is_never();
        return flushes.then_some(UnannouncedEffect::Flush);
    }
    announce_expiry(engine, listener, key, old);
    let existed = lives(engine, key, old);
    let is_new = !existed && !version.is_absent();
    if is_noted {
        return is_new.then_some(UnannouncedEffect::New);
    }
    if is_new {
        call(engine, listener, (key, KeyEvent::New, tid));
    }
    if let Some(event) = effect(old, version, existed) {
        call(engine, listener, (key, event, tid));
    }
    None
}

/// Announces an event that a transaction has noted.
pub(crate) fn announce_noted(
    engine: &Engine,
    listener: &dyn KeyListener,
    NotedEvent { key, event }: &NotedEvent,
    is_new: bool,
    tid: Tid,
) {
    if is_new {
        call(engine, listener, (key, KeyEvent::New, tid));
    }
    call(engine, listener, (key, *event, tid));
}

/// Announces that a version has expired, once. The caller has its record locked, or has replaced it.
pub(crate) fn announce_expiry(
    engine: &Engine,
    listener: &dyn KeyListener,
    key: &[u8],
    version: VersionRef,
) {
    let is_current = version.is_key_of(generation_of(engine, key));
    if is_current && !lives(engine, key, version) && version.mark_expiry() {
        call(engine, listener, (key, KeyEvent::Expired, version.tid()));
    }
}

/// Calls the listener with the key as clients name it.
fn call(engine: &Engine, listener: &dyn KeyListener, (key, event, tid): (&[u8], KeyEvent, Tid)) {
    match database::split(key) {
        None => listener.changed((engine.database_of(0), key), event, tid),
        Some((namespace, key)) => {
            listener.changed((engine.database_of(namespace), key), event, tid);
        }
    }
}

/// Returns `true` if a key is the engine's own.
pub(crate) fn is_system(key: &[u8]) -> bool {
    is_reserved(key) && database::split(key).is_none()
}

fn generation_of(engine: &Engine, key: &[u8]) -> u16 {
    engine.current_generation_of(database::number(key))
}

/// Returns `true` if a version is that of a key that exists.
fn lives(engine: &Engine, key: &[u8], version: VersionRef) -> bool {
    let now = engine.epochs.time_ms();
    version.is_key_of(generation_of(engine, key))
        && version.deadline().is_none_or(|deadline| deadline > now)
}

/// Returns `true` if two versions of a key have the same value. Collections that were edited count as others.
fn same_value(old: VersionRef, new: VersionRef) -> bool {
    old.kind() == new.kind()
        && match (old.tree(), new.tree()) {
            (None, None) => old.value() == new.value(),
            (_, Some(tree)) => tree.is_unchanged(),
            (Some(_), None) => false,
        }
}

/// Returns the event of which only the effect is known.
fn effect(old: VersionRef, new: VersionRef, existed: bool) -> Option<KeyEvent> {
    if new.is_absent() {
        return existed.then_some(KeyEvent::Del);
    }
    let same = existed && old.deadline() != new.deadline() && same_value(old, new);
    Some(match new.deadline() {
        Some(_) if same => KeyEvent::Expire,
        None if same => KeyEvent::Persist,
        _ => KeyEvent::Set,
    })
}
