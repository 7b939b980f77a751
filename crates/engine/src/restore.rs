//! Filling an engine from a log or a checkpoint.
//!
//! Changes may come in any order and from several threads: for each key the greatest TID wins.
//! Tombstones stay until the janitor, who works after the recovery, takes them away.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Change, Epoch, Origin, Tid};
use hashbrown::HashMap;

use crate::commit::counts;
use crate::engine::{Engine, Place, generation_after};
use crate::garbage::Garbage;
use crate::log::NoLog;
use crate::origin::OwnedOrigin;
use crate::record::{Content, RecordRef, VersionRef};
use crate::snapshot::Pinned;
use crate::word::{QUEUED, Seen};
use crate::worker::Worker;

/// Restores changes; one for each thread. Give it to [`Engine::finish_restore`] at the end.
pub struct Restorer {
    worker: Worker<NoLog>,
    /// Keys of each generation: found minus replaced.
    keys: HashMap<u16, i64>,
    /// The origin that was met last: a transaction's changes mostly follow each other.
    origin: Option<Arc<OwnedOrigin>>,
}

impl Engine {
    /// A restorer for one thread, or `None` when there are as many as there can be workers.
    #[must_use]
    pub fn restorer(self: &Arc<Self>) -> Option<Restorer> {
        let worker = self.worker(|_| NoLog)?;
        Some(Restorer {
            worker,
            keys: HashMap::new(),
            origin: None,
        })
    }

    /// Ends a restoration: the next transaction commits in an epoch above `newest`, the greatest
    /// epoch that was ever used, and at a time not before `stamp_ms`. Call
    /// [`Engine::restore_prepared`] next.
    pub fn finish_restore(&self, restorers: Vec<Restorer>, newest: Epoch, stamp_ms: u64) {
        let generation = RecordRef::version(self.generation.word().load()).generation();
        self.generation_now
            .store(u64::from(generation), Ordering::Release);
        // One flush is possible before the janitor has swept.
        let farthest = generation_after(generation_after(generation));
        self.oldest_generation
            .store(u64::from(farthest), Ordering::Release);
        for restorer in &restorers {
            let keys = restorer.keys.get(&generation).copied().unwrap_or(0);
            restorer.worker.place().count_keys(generation, keys);
        }
        self.floors
            .raise_all(Tid::new(newest, (1 << Tid::SEQUENCE_BITS) - 1));
        self.epochs.resume(newest.next(), stamp_ms);
    }
}

impl Restorer {
    /// Applies one change of transaction `tid`, unless a later one of the key is known.
    pub fn apply(&mut self, tid: Tid, change: &Change<'_>) {
        self.worker.refresh();
        let engine = Arc::clone(&self.worker.engine);
        let _pinned = Pinned::new(&engine, self.worker.place);
        match *change {
            Change::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin,
            } => {
                let content = Content {
                    parts: &[value],
                    kind,
                    deadline,
                };
                let origin = self.origin(origin);
                let version = VersionRef::new(generation, Some(content), origin.as_ref());
                self.install(tid, self.record(key), version);
            }
            Change::Delete { key, origin } => {
                let origin = self.origin(origin);
                let version = VersionRef::new(0, None, origin.as_ref());
                self.install(tid, self.record(key), version);
            }
            Change::Flush { generation } => {
                self.install(
                    tid,
                    engine.generation,
                    Engine::generation_version(generation),
                );
            }
        }
    }

    fn origin(&mut self, origin: Option<Origin<'_>>) -> Option<Arc<OwnedOrigin>> {
        let origin = origin?;
        if self.origin.as_ref().is_none_or(|last| last.get() != origin) {
            self.origin = Some(self.worker.engine.origins.share(origin));
        }
        self.origin.clone()
    }

    fn record(&self, key: &[u8]) -> RecordRef {
        self.worker.record_of(key)
    }

    fn install(&mut self, tid: Tid, record: RecordRef, new: VersionRef) {
        let seen = loop {
            if let Ok(seen) = record.word().lock() {
                break seen;
            }
            std::hint::spin_loop();
        };
        let old = RecordRef::version(seen);
        if !old.is_never() && old.tid() >= tid {
            record.word().unlock(seen, seen.0 & QUEUED);
            return new.free_unpublished();
        }
        new.set_tid(tid);
        self.publish(record, seen, new);
        if record != self.worker.engine.generation {
            for (version, by) in [(old, -1), (new, 1)] {
                if counts(version, version.generation()) {
                    *self.keys.entry(version.generation()).or_default() += by;
                }
            }
        }
        Place::count(&self.worker.place().bytes, new.bytes() as i64);
        if !old.is_never() {
            self.worker.retire(Garbage::Version(old));
        }
    }

    fn publish(&self, record: RecordRef, seen: Seen, new: VersionRef) {
        let queue = (new.is_absent() || new.deadline().is_some()) && !seen.has(QUEUED);
        record
            .word()
            .publish(seen, new.address(), if queue { QUEUED } else { 0 });
        if queue {
            self.worker.engine.queue.push(record);
        }
    }
}
