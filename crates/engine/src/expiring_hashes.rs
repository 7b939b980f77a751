//! Hashes that have fields with deadlines: which of them have fields that have expired.
//!
//! A field is absent as soon as its deadline has passed, whether or not it has been removed. It is removed by a
//! transaction like any other (`values::hash_deadlines::REMOVE_PASSED`), so that the log says so. The engine's user
//! executes it, where keys are written: on replicas the leader.
//!
//! | step | who |
//! |---|---|
//! | notes a hash whose least deadline has become another, earlier one, or had passed | publication, restoration |
//! | keeps it until then ([`AwaitedHashes`]), looks at it, and reports it | the janitor |
//! | removes the fields of the hashes that are reported ([`Engine::take_expiring_hash`]) | the engine's user |
//!
//! The janitor looks at a hash that it has reported again after [`AGAIN_MS`], until its fields are removed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::database;
use hashbrown::HashMap;

use crate::engine::Engine;
use crate::record::{RecordRef, VersionRef};

/// The time after which a hash with fields that have expired is looked at again.
const AGAIN_MS: u64 = 500;

impl Engine {
    /// Notes the deadlines of fields of a version that has replaced another one.
    #[inline]
    pub(crate) fn note_field_deadlines(&self, record: RecordRef, old: VersionRef, new: VersionRef) {
        if let Some(least) = new.next_field_deadline(0) {
            let before = old.next_field_deadline(0).unwrap_or(u64::MAX);
            if least < before || before < least && before <= self.epochs.time_ms() {
                let noted = &self.field_deadlines.noted;
                noted.push((least, record.key().into()));
            }
        }
    }

    /// Returns `true` if there are hashes with fields that will expire, or have expired.
    #[must_use]
    pub fn has_expiring_hashes(&self) -> bool {
        let deadlines = &self.field_deadlines;
        deadlines.has_awaited.load(Ordering::Relaxed) || !deadlines.noted.is_empty()
    }

    /// Takes a hash with fields that have expired, by its key as operations name it.
    #[must_use]
    pub fn take_expiring_hash(&self) -> Option<Vec<u8>> {
        let mut reported = self.field_deadlines.reported.lock();
        let key = reported.iter().next().cloned()?;
        reported.remove(&key);
        drop(reported);
        let (namespace, own) = database::split(&key).unwrap_or((0, &key));
        Some(database::qualified(self.database_of(namespace), own))
    }
}

/// The hashes that the janitor keeps until their fields expire, each at one time.
#[derive(Default)]
pub(crate) struct AwaitedHashes {
    times: HashMap<Arc<[u8]>, u64>,
    /// Also has times that are not those of `times` any more.
    queue: BinaryHeap<Reverse<(u64, Arc<[u8]>)>>,
}

impl AwaitedHashes {
    /// Returns the time at which the next hash is to be looked at, or an earlier one.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    fn add(&mut self, at: u64, key: Arc<[u8]>) {
        let known = self.times.get(&key).copied();
        if known.is_none_or(|known| at < known) {
            self.times.insert(Arc::clone(&key), at);
            self.queue.push(Reverse((at, key)));
        }
    }

    /// Takes the notes, and looks at so many hashes at most whose time has come. Returns the greatest deadline of their
    /// fields that has passed; 0: none. The caller is in an epoch.
    pub(crate) fn look(&mut self, engine: &Engine, now_ms: u64, budget: usize) -> u64 {
        let deadlines = &engine.field_deadlines;
        let notes = std::iter::from_fn(|| deadlines.noted.pop());
        for (at, key) in notes.take(budget) {
            self.add(at, key.into());
        }
        let mut passed_ms = 0;
        for _ in 0..budget {
            if self.next_ms().is_none_or(|at| at > now_ms) {
                break;
            }
            let Some(Reverse((at, key))) = self.queue.pop() else {
                break;
            };
            if self.times.get(&key) != Some(&at) {
                continue;
            }
            self.times.remove(&key);
            let Some(version) = current_version(engine, &key) else {
                continue;
            };
            match version.next_field_deadline(0) {
                Some(least) if least <= now_ms => {
                    let passed = version.last_passed_field_deadline(now_ms);
                    passed_ms = passed_ms.max(passed.unwrap_or(0));
                    if !engine.keeps_expired.load(Ordering::Relaxed) {
                        deadlines.reported.lock().insert(Arc::clone(&key));
                    }
                    self.add(now_ms + AGAIN_MS, key);
                }
                Some(least) => self.add(least, key),
                None => {}
            }
        }
        let has_awaited = !self.times.is_empty();
        deadlines.has_awaited.store(has_awaited, Ordering::Relaxed);
        passed_ms
    }
}

/// Returns the current version of a key, if it exists.
fn current_version(engine: &Engine, key: &[u8]) -> Option<VersionRef> {
    let record = engine.index.get(engine.index.hash(key), key)?;
    let version = RecordRef::version(record.word().load());
    let generation = engine.current_generation_of(database::number(key));
    version.exists_in(generation).then_some(version)
}
