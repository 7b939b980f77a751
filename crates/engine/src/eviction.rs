//! The choice of keys to evict, as Redis makes it: of some random keys those that the policy prefers come into a pool
//! of the best ones seen so far, and the best of the pool is evicted.
//!
//! Only keys of clients are chosen. Records that are locked or held, and read-atomic keys, are left alone: an older
//! version of a read-atomic key may be asked for as long as the key is kept.

use std::sync::atomic::Ordering;

use base::database;
use base::eviction::{EvictionOrder, EvictionSettings};

use crate::announce::is_system;
use crate::engine::Engine;
use crate::record::{RecordRef, VersionRef};
use crate::word::{DEAD, HELD, LOCK, SHARED, STAGED, STAGING};

/// The keys that a pool has.
const POOL: usize = 16;
/// The number of samples that are taken before it counts as certain that no key can be evicted: the first ones at
/// random, the others in the order of keys. Many records may be those of keys that were just deleted.
const TRIES: u32 = 16;
const RANDOM_TRIES: u32 = 8;
/// The records of a sample in the order of keys.
const WALKED: usize = 512;

/// A key that may be evicted.
struct Candidate {
    key: Vec<u8>,
    /// The greater, the sooner it is evicted.
    score: u64,
}

/// The best candidates that a thread has seen, the best one last.
#[derive(Default)]
pub(crate) struct EvictionPool {
    candidates: Vec<Candidate>,
    /// The policy that has chosen them.
    settings: EvictionSettings,
    /// Records of the current sample, kept for its memory.
    sample: Vec<RecordRef>,
    /// Buffers of keys that have left.
    spare: Vec<Vec<u8>>,
    /// The key behind the one that a walk in the order of keys came to.
    walked: Vec<u8>,
}

impl EvictionPool {
    /// Returns the key to evict next, or `None` if no sample had one. The thread is in an epoch.
    pub(crate) fn choose(
        &mut self,
        engine: &Engine,
        random: &mut fastrand::Rng,
    ) -> Option<Vec<u8>> {
        let settings = engine.eviction.settings();
        if settings != self.settings {
            self.settings = settings;
            self.candidates.clear();
        }
        let order = settings.policy.order()?;
        for attempt in 0..TRIES {
            self.take_sample(engine, random, attempt);
            let best = match order {
                EvictionOrder::Random => self.any_of_sample(engine),
                _ => self.best_of_pool(engine),
            };
            if best.is_some() {
                return best;
            }
        }
        None
    }

    /// Takes back the buffer of a key.
    pub(crate) fn recycle(&mut self, mut key: Vec<u8>) {
        if self.spare.len() < POOL {
            key.clear();
            self.spare.push(key);
        }
    }

    /// Takes random records.
    fn take_sample(&mut self, engine: &Engine, random: &mut fastrand::Rng, attempt: u32) {
        let EvictionPool {
            sample, settings, ..
        } = self;
        let count = settings.samples;
        sample.clear();
        if settings.policy.is_volatile() {
            engine.expiring.sample(random, count, sample);
            return;
        }
        engine.index.hints().sample(random.u64(..), |record| {
            sample.push(record);
            sample.len() < count
        });
        if sample.is_empty() || attempt >= RANDOM_TRIES {
            self.walk(engine);
        }
    }

    /// Takes records in the order of keys, from the place on to which the last walk came: also where the table of
    /// hints is nearly empty.
    fn walk(&mut self, engine: &Engine) {
        self.sample.clear();
        let from = std::mem::take(&mut self.walked);
        engine.index.range(&from, None, |record| {
            if self.sample.len() >= WALKED {
                self.walked.extend_from_slice(record.key());
                return false;
            }
            self.sample.push(record);
            true
        });
    }

    /// Returns a key of the sample that may be evicted.
    fn any_of_sample(&mut self, engine: &Engine) -> Option<Vec<u8>> {
        let volatile = self.settings.policy.is_volatile();
        let found = self
            .sample
            .iter()
            .find(|record| evictable(engine, **record, volatile).is_some())?;
        let mut key = self.spare.pop().unwrap_or_default();
        key.extend_from_slice(found.key());
        Some(key)
    }

    /// Adds the sample to the pool, and takes its best key.
    fn best_of_pool(&mut self, engine: &Engine) -> Option<Vec<u8>> {
        let sample = std::mem::take(&mut self.sample);
        sample.iter().for_each(|record| self.add(engine, *record));
        self.sample = sample;
        while let Some(best) = self.candidates.pop() {
            // It may have been used since, or be gone.
            let hash = engine.index.hash(&best.key);
            let record = engine.index.get(hash, &best.key);
            let score = record.and_then(|record| score(engine, record, &self.settings));
            if score.is_some_and(|score| score >= best.score) {
                return Some(best.key);
            }
            self.recycle(best.key);
        }
        None
    }

    /// Adds a record to the pool if it is better than the worst one there, or there is room.
    fn add(&mut self, engine: &Engine, record: RecordRef) {
        let Some(score) = score(engine, record, &self.settings) else {
            return;
        };
        let is_worst = self
            .candidates
            .first()
            .is_some_and(|worst| worst.score >= score);
        if self.candidates.len() >= POOL && is_worst {
            return;
        }
        let is_there = |candidate: &Candidate| candidate.key == record.key();
        if self.candidates.iter().any(is_there) {
            return;
        }
        if self.candidates.len() >= POOL {
            let worst = self.candidates.remove(0);
            self.recycle(worst.key);
        }
        let place = self.candidates.partition_point(|other| other.score < score);
        let mut key = self.spare.pop().unwrap_or_default();
        key.extend_from_slice(record.key());
        self.candidates.insert(place, Candidate { key, score });
    }
}

/// Returns the current version of a record if its key may be evicted.
fn evictable(engine: &Engine, record: RecordRef, volatile: bool) -> Option<VersionRef> {
    let seen = record.word().load();
    if seen.has(DEAD | LOCK | HELD | SHARED | STAGING | STAGED) {
        return None;
    }
    let (key, version) = (record.key(), RecordRef::version(seen));
    let generation = || engine.current_generation_of(database::number(key));
    let is_expired = || {
        let deadline = version.deadline();
        deadline.is_some_and(|at| at <= engine.epochs.time_ms())
            && !engine.keeps_expired.load(Ordering::Relaxed)
    };
    if version.is_absent()
        || volatile && version.deadline().is_none()
        || is_system(key)
        || engine.read_atomic.covers(key)
        || !version.is_key_of(generation())
        || is_expired()
    {
        return None;
    }
    Some(version)
}

/// Returns the score of a record: the greater, the sooner its key is evicted.
fn score(engine: &Engine, record: RecordRef, settings: &EvictionSettings) -> Option<u64> {
    let version = evictable(engine, record, settings.policy.is_volatile())?;
    let (now, since) = (engine.epochs.time_ms(), engine.eviction.since_ms());
    Some(match settings.policy.order()? {
        EvictionOrder::LeastRecentlyUsed => u64::from(record.stamp().idle_seconds(now, since)),
        EvictionOrder::LeastFrequentlyUsed => {
            u64::from(u8::MAX - record.stamp().counter(settings, now, since))
        }
        EvictionOrder::Deadline => u64::MAX - version.deadline()?,
        EvictionOrder::Random => 0,
    })
}
