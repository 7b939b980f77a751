//! Read-atomic keys (paper 1, RAMP): several versions of each, and transactions over several
//! partitions that hold nothing.
//!
//! | what | where it is |
//! |---|---|
//! | the newest committed version | the record's current one, as of any key |
//! | versions that were replaced | behind it, by falling ids; the janitor leaves them for a while |
//! | prepared versions | in the transaction's system record, as bytes |
//!
//! | step | does |
//! |---|---|
//! | prepare | writes the system record, with all effects in it; no key is touched |
//! | commit | installs each effect that is newer than the key's newest version, and tucks the others behind it; then the system record says committed |
//! | abort | deletes the system record |
//!
//! Every write of a read-atomic key has an id, drawn by the coordinator, or here for transactions
//! of this partition alone.
//!
//! Invariants:
//! 1. The ids of a key's versions fall along the chain; TIDs grow with ids, but for versions that
//!    were tucked behind.
//! 2. An effect is in the chain before the system record ceases to say prepared: a reader that
//!    looks there first, and then at the chain, misses nothing.
//! 3. Only versions that were installed are logged as such: for each key the greatest TID of the
//!    log is the greatest id. Versions that were tucked behind live in memory alone; no reader asks
//!    for them for longer than for any version that was replaced.
//! 4. A new id is above that of the version it replaces; for a key without any version, above those
//!    of all versions that have left memory.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::change::{Origin, siblings};
use base::participant::Prepare;
use base::partition::OwnedReply;
use base::transaction::{Expiry, Kind, OpError, When};
use base::versions::{Ask, Content, Found, ReadAtomic, Versioned, Watcher};
use base::{Abort, Op, Reply, Tid, Timestamp, TransactionId};
use foldhash::fast::FixedState;

use crate::commit::newest;
use crate::engine::{Engine, Place};
use crate::log::{RedoLog, Write};
use crate::lookaside::KeyHash;
use crate::prepare::{deciding, system_version};
use crate::record::{RecordRef, VersionRef};
use crate::retry::pause;
use crate::system::{self, Effect, Entry};
use crate::word::{DEAD, LOCK, QUEUED, Refused, Seen};
use crate::worker::{Running, Stop, Worker, forsake};

/// An engine's knowledge of its read-atomic keys.
#[derive(Default)]
pub(crate) struct Declared {
    keys: OnceLock<ReadAtomic>,
    watcher: OnceLock<Arc<dyn Watcher>>,
    /// The greatest timestamp of versions that have left memory, or were met in the log.
    left: AtomicU64,
    /// The number of ids that were drawn below prepared ones.
    below: AtomicU64,
}

impl Declared {
    /// Notes an id whose versions may have left memory.
    pub(crate) fn note_left(&self, id: TransactionId) {
        self.left.fetch_max(id.timestamp.0, Ordering::SeqCst);
    }

    pub(crate) fn left(&self) -> Timestamp {
        Timestamp(self.left.load(Ordering::SeqCst))
    }
}

impl Engine {
    /// Declares the read-atomic keys. To be called once, before any transaction runs.
    ///
    /// # Panics
    /// Panics if other keys were declared before.
    pub fn declare_read_atomic(&self, keys: ReadAtomic) {
        let declared = self.read_atomic.keys.get_or_init(|| keys.clone());
        assert!(*declared == keys, "other keys were declared before");
    }

    /// Sets the watcher of writes of read-atomic keys. To be called once, before any transaction
    /// runs; the watcher does not get writes that were restored before.
    ///
    /// # Panics
    /// Panics if a watcher was set before.
    pub fn watch_read_atomic(&self, watcher: Arc<dyn Watcher>) {
        let named = self.read_atomic.watcher.set(watcher);
        assert!(named.is_ok(), "an id was drawn before");
    }

    /// Returns the watcher of writes of read-atomic keys.
    pub(crate) fn watcher(&self) -> Option<&dyn Watcher> {
        self.read_atomic.watcher.get().map(|watcher| &**watcher)
    }

    /// Returns `true` if a key is read atomic.
    pub(crate) fn is_read_atomic(&self, key: &[u8]) -> bool {
        self.read_atomic
            .keys
            .get()
            .is_some_and(|keys| keys.covers(key))
    }

    /// Returns the least id of the attempts that are prepared without holds. The caller is in an
    /// epoch.
    pub(crate) fn least_pending(&self) -> Option<TransactionId> {
        let mut least = None;
        self.index
            .range(&system::RESERVED, Some(&system::OTHERS), |record| {
                let version = RecordRef::version(record.word().load());
                if !version.is_absent() && system::is_unheld(version.value()) {
                    least = system::id(record.key()).ok();
                }
                least.is_none()
            });
        least
    }

    /// Returns the least id, with a timestamp until this one, of the attempts that are prepared
    /// without holds and write this key. The caller is in an epoch.
    fn least_pending_of(&self, key: &[u8], until: Timestamp) -> Option<TransactionId> {
        let mut least = None;
        self.index
            .range(&system::RESERVED, Some(&system::OTHERS), |record| {
                let Ok(id) = system::id(record.key()) else {
                    return true;
                };
                if id.timestamp > until {
                    return false;
                }
                let version = RecordRef::version(record.word().load());
                let is_pending = !version.is_absent() && system::is_unheld(version.value());
                least = (is_pending && writes(version.value(), key)).then_some(id);
                least.is_none()
            });
        least
    }

    pub(crate) fn has_read_atomic(&self) -> bool {
        self.read_atomic
            .keys
            .get()
            .is_some_and(|keys| !keys.is_empty())
    }
}

/// Returns the least id that is above a version's, or above those of all versions that have left
/// memory if there is none. A prepared write has a greater id than the version that it will replace:
/// it stays above a transaction that has not seen it, and is not lost behind it.
///
/// `mark` distinguishes it from ids that are drawn for other keys above the same id.
fn just_above(newest: TransactionId, left: Timestamp, mark: u32) -> TransactionId {
    let mark = 1 + u64::from(mark);
    match newest.unique.checked_add(mark) {
        Some(unique) if newest > TransactionId::ZERO => TransactionId { unique, ..newest },
        _ => TransactionId {
            timestamp: newest.timestamp.max(left).next(),
            unique: mark,
        },
    }
}

/// Returns `true` if a prepared attempt writes this key.
fn writes(prepared: &[u8], key: &[u8]) -> bool {
    let entry = system::decode(prepared).expect(crate::decide::WELL_FORMED);
    let Entry::Pending { effects, .. } = entry else {
        return false;
    };
    effects.iter().any(|effect| match effect {
        Effect::Put { key: of, .. } | Effect::Delete { key: of } => *of == key,
        Effect::Flush { .. } => false,
    })
}

/// Returns the id that a version carries.
pub(crate) fn id_of(version: VersionRef) -> TransactionId {
    version
        .origin()
        .map_or(TransactionId::ZERO, |origin| origin.id)
}

impl<L: RedoLog> Worker<L> {
    /// Looks at versions of read-atomic keys, each by itself; `see` gets an answer for each, in the
    /// order of the questions. Never waits, even if the keys are held.
    pub fn read_versions(&mut self, asks: &[Ask<'_>], see: &mut dyn FnMut(Found<'_>)) {
        self.refresh();
        self.begin();
        let running = Running(self);
        let worker = &mut *running.0;
        worker.fetch_with_origins(asks.iter().map(Ask::key));
        for (at, ask) in asks.iter().enumerate() {
            let hash = worker.state.hashes[at].expect("each has a key");
            let found = worker.find(ask, hash);
            see(found);
        }
    }

    fn find(&mut self, ask: &Ask<'_>, hash: KeyHash) -> Found<'static> {
        let key = ask.key();
        let Ask::OneOf { ids, .. } = ask else {
            let whole = matches!(ask, Ask::Newest { .. });
            return self.newest_of(hash, key).map_or(Found::Nothing, |version| {
                Found::Version(self.versioned(version, whole))
            });
        };
        let mut ids = ids.clone();
        ids.sort_unstable();
        ids.dedup();
        for waits in 0.. {
            // The keys of one entry are all locked first, and then published one by one: a version
            // of another key can be visible, and this key's may be about to be.
            let record = self.engine.index.get(hash, key);
            let is_written = record.is_some_and(|record| record.word().load().has(LOCK));
            let found = self.one_of(&ids, hash, key);
            if !is_written || matches!(found, Found::Version(_)) {
                return found;
            }
            pause(waits);
        }
        unreachable!("it is asked until it is answered")
    }

    /// Returns the newest of these versions of a key.
    fn one_of(&mut self, ids: &[TransactionId], hash: KeyHash, key: &[u8]) -> Found<'static> {
        // Before the chain: a commit fills the chain before the system record says that it has
        // committed.
        let mut prepared = ids.iter().rev();
        let prepared = prepared.find_map(|id| self.prepared_version(*id, key));
        let Some(newest) = self.newest_of(hash, key) else {
            return prepared.map_or(Found::Nothing, Found::Version);
        };
        let least = ids.first().copied().unwrap_or(TransactionId::ZERO);
        let mut is_whole = false;
        let chain = std::iter::successors(Some(newest), |version| version.previous());
        for version in chain.take_while(|version| !version.is_never()) {
            let id = id_of(version);
            if prepared.is_some_and(|prepared| prepared.id > id) {
                break;
            }
            if ids.binary_search(&id).is_ok() {
                return Found::Version(self.versioned(version, true));
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

    /// Returns the newest committed version of a key, unless nothing is known of it.
    fn newest_of(&mut self, hash: KeyHash, key: &[u8]) -> Option<VersionRef> {
        let record = self.engine.index.get(hash, key)?;
        let seen = record.word().load();
        let version = RecordRef::version(seen);
        if seen.has(DEAD) || version.is_never() {
            return None;
        }
        self.state.observed = self.state.observed.max(version.epoch());
        Some(version)
    }

    fn versioned(&mut self, version: VersionRef, whole: bool) -> Versioned<'static> {
        // After the version, so that it does not count as one of a flush that is still to come.
        let flush = RecordRef::version(self.engine.generation.word().load());
        self.state.observed = self.state.observed.max(flush.epoch());
        let passed = |deadline| deadline <= self.state.time_ms;
        let there = whole
            && !version.is_absent()
            && version.generation() == flush.generation()
            && !version.deadline().is_some_and(passed);
        Versioned {
            id: id_of(version),
            siblings: match version.origin() {
                Some(origin) if whole => origin.siblings,
                _ => b"",
            },
            content: there.then(|| Content {
                value: version.value(),
                kind: version.kind(),
                deadline: version.deadline(),
            }),
        }
    }

    /// Returns the version that a prepared transaction will write to a key.
    fn prepared_version(&mut self, id: TransactionId, key: &[u8]) -> Option<Versioned<'static>> {
        let own = system::key(id);
        let index = &self.engine.index;
        let record = index.get(index.hash(&own), &own)?;
        let version = RecordRef::version(record.word().load());
        if version.is_absent() {
            return None;
        }
        let entry = system::decode(version.value()).expect(crate::decide::WELL_FORMED);
        let Entry::Pending {
            siblings, effects, ..
        } = entry
        else {
            return None;
        };
        let of_it = |effect: &&Effect<'_>| match effect {
            Effect::Put { key: of, .. } | Effect::Delete { key: of } => *of == key,
            Effect::Flush { .. } => false,
        };
        let effect = effects.iter().rev().find(of_it)?;
        self.state.observed = self.state.observed.max(version.epoch());
        let content = match *effect {
            Effect::Put {
                value,
                kind,
                deadline,
                ..
            } => Some(Content {
                value,
                kind,
                deadline,
            }),
            _ => None,
        };
        let passed = |deadline| deadline <= self.state.time_ms;
        Some(Versioned {
            id,
            siblings,
            content: content.filter(|content| !content.deadline.is_some_and(passed)),
        })
    }

    /// Draws an id for the transaction if its operations write read-atomic keys.
    pub(crate) fn draw_origin(&mut self, ops: &[Op<'_>]) {
        if !self.engine.has_read_atomic() || self.state.exact || self.state.origin.is_some() {
            return;
        }
        let written = ops.iter().filter(|op| !op.is_read_only());
        let keys = written.filter_map(Op::key);
        let mut keys: Vec<&[u8]> = keys.filter(|key| self.engine.is_read_atomic(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut told = Vec::new();
        match keys.len() {
            0 => return,
            1 => {}
            _ => keys.iter().for_each(|key| siblings::push(&mut told, key)),
        }
        let newest = keys.iter().map(|key| {
            let hash = self.engine.index.hash(key);
            self.newest_of(hash, key).map_or(TransactionId::ZERO, id_of)
        });
        let newest = newest.max().unwrap_or(TransactionId::ZERO);
        // The same in every run: the key distinguishes it from others.
        let mark = FixedState::default().hash_one(keys[0]) >> 32;
        let passed = match keys[..] {
            [key] if newest == TransactionId::ZERO => self.passed_over(key),
            _ => None,
        };
        let id = match passed {
            Some(pending) => self.just_below(pending, mark as u32),
            None => just_above(newest, self.engine.read_atomic.left(), mark as u32),
        };
        let siblings = &told;
        self.state.origin = Some(self.engine.origins.share(Origin { id, siblings }));
    }

    /// Returns the least id that is prepared for an absent key, if an id above [`Declared::left`] would
    /// pass it over. That can happen after a restart, when every version until then may have left.
    fn passed_over(&self, key: &[u8]) -> Option<TransactionId> {
        let until = self.engine.read_atomic.left().next();
        self.engine.least_pending_of(key, until)
    }

    /// Returns an id for an absent key, below the prepared one, and never drawn twice.
    ///
    /// No version of the key has left with a greater id than the prepared one: it was there when
    /// that was prepared, which would have been refused, or is retained until nothing older is
    /// prepared.
    fn just_below(&self, pending: TransactionId, mark: u32) -> TransactionId {
        let number = self
            .engine
            .read_atomic
            .below
            .fetch_add(1, Ordering::Relaxed);
        TransactionId {
            timestamp: Timestamp(pending.timestamp.0.saturating_sub(1)),
            unique: number << 32 | u64::from(mark),
        }
    }

    /// Draws an id for a transaction whose further writes are not known yet.
    pub(crate) fn draw_origin_of(&mut self, key: &[u8]) {
        let known = self.state.origin.is_some() || self.state.exact;
        if !known && self.engine.is_read_atomic(key) {
            self.set_origin(&siblings::untold());
        }
    }

    fn set_origin(&mut self, siblings: &[u8]) {
        let now = Timestamp::at_ms(self.state.time_ms);
        let least = self.last_stamp.max(self.engine.read_atomic.left());
        self.last_stamp = now.max(least.next());
        let id = TransactionId {
            timestamp: self.last_stamp,
            unique: self.unique,
        };
        self.state.origin = Some(self.engine.origins.share(Origin { id, siblings }));
    }

    /// Returns `true` if the transaction's id, if it has drawn one, is above those of the
    /// read-atomic keys' versions that it replaces, which are locked. If not, the next one will be.
    pub(crate) fn is_newest(&mut self, writes: &[Write], locked: &[Seen]) -> bool {
        let Some(origin) = &self.state.origin else {
            return true;
        };
        let id = origin.get().id;
        let pairs = writes.iter().zip(locked);
        let of_keys = pairs.filter(|(write, _)| self.engine.is_read_atomic(write.record.key()));
        let newest = of_keys.map(|(_, seen)| id_of(RecordRef::version(*seen)));
        let newest = newest.max().unwrap_or(TransactionId::ZERO);
        self.last_stamp = self.last_stamp.max(newest.timestamp);
        newest < id
    }

    /// Prepares an attempt: the effects go into the system record, and nothing is held.
    pub(crate) fn try_prepare_unheld(
        &mut self,
        prepare: &Prepare<'_>,
    ) -> Result<Vec<OwnedReply>, Stop> {
        let id = prepare.holder.id;
        self.hash_and_fetch(prepare.ops);
        let (mut effects, mut replies) = (Vec::new(), Vec::new());
        let mut newest = Timestamp::ZERO;
        for (at, op) in prepare.ops.iter().enumerate() {
            let hash = self.state.hashes[at].ok_or(Stop::Abort(Abort::Refused))?;
            let (reply, effect) = self.effect_of_op(op, hash)?;
            // The others would name a sibling that was never written.
            if let OwnedReply::Error(error) = reply {
                return Err(Stop::Abort(Abort::Failed(error)));
            }
            replies.push(reply);
            effects.extend(effect);
            let key = op.key().expect("it was hashed");
            newest = newest.max(match self.newest_of(hash, key).map(id_of) {
                Some(newer) if newer >= id => newer.timestamp,
                Some(_) => Timestamp::ZERO,
                None => self.engine.read_atomic.left(),
            });
        }
        if newest >= id.timestamp {
            return Err(Stop::Abort(Abort::Overtaken { newest }));
        }
        let entry = Entry::Pending {
            note: prepare.note,
            siblings: prepare.siblings,
            effects,
        };
        self.keep_pending(id, &entry.encode())?;
        Ok(replies)
    }

    /// Returns the answer and the effect of an operation, which do not depend on the present
    /// version.
    fn effect_of_op<'o>(
        &mut self,
        op: &Op<'o>,
        hash: KeyHash,
    ) -> Result<(OwnedReply, Option<Effect<'o>>), Stop> {
        let failed = |error: OpError| Ok((OwnedReply::from(&Reply::Error(error)), None));
        match *op {
            Op::Put {
                key,
                value,
                when: When::Always,
                expiry,
                get: false,
            } if expiry != Expiry::Keep => {
                let deadline = match self.limits(key, value.len()) {
                    Ok(()) => self.deadline(expiry, None),
                    Err(error) => Err(error),
                };
                let deadline = match deadline {
                    Ok(deadline) => deadline,
                    Err(error) => return failed(error),
                };
                let effect = if self.passed(deadline) {
                    Effect::Delete { key }
                } else {
                    Effect::Put {
                        key,
                        value,
                        kind: Kind::String,
                        generation: self.state.generation,
                        deadline,
                    }
                };
                Ok((OwnedReply::Ok, Some(effect)))
            }
            Op::Delete { key } => {
                let there = self.read(hash, key).live.is_some();
                if let Err(error) = self.limits(key, 0) {
                    return failed(error);
                }
                let reply = OwnedReply::Int(i64::from(there));
                Ok((reply, Some(Effect::Delete { key })))
            }
            _ => Err(Stop::Abort(Abort::Refused)),
        }
    }

    /// Writes the system record of an attempt that is not known yet.
    fn keep_pending(&mut self, id: TransactionId, value: &[u8]) -> Result<(), Stop> {
        let record = self.record_of(&system::key(id));
        let seen = match record.word().lock() {
            Ok(seen) => seen,
            Err(refused) => {
                forsake(&self.engine, record);
                return Err(self.refused(record, refused));
            }
        };
        if self.known(RecordRef::version(seen)) != base::participant::State::Unknown {
            self.put_back(record, seen);
            return Err(Stop::Abort(Abort::Refused));
        }
        let version = system_version(value, None);
        let write = Write { record, version };
        let outcome = self.check_size(&[write]).and_then(|()| {
            if self.engine.epochs.is_driven() {
                self.append_staged(&[write]).map(|()| Tid::ZERO)
            } else {
                self.log_and_publish(&[write], &[seen], &[])
            }
        });
        match outcome {
            Ok(Tid::ZERO) => {
                self.engine.holds.exclude(record, seen, deciding(id));
                version.free_unpublished();
            }
            Ok(tid) => {
                self.state.observed = tid.epoch();
                self.state.wrote = tid;
            }
            Err(stop) => {
                version.free_unpublished();
                self.put_back(record, seen);
                return Err(stop);
            }
        }
        Ok(())
    }

    /// Returns the writes of a prepared transaction, one for each key, and the words of their records,
    /// which are locked in their order.
    pub(crate) fn lock_effects(
        &mut self,
        id: TransactionId,
        siblings: &[u8],
        effects: &[Effect<'_>],
    ) -> Result<(Vec<Write>, Vec<Seen>), Stop> {
        let origin = self.engine.origins.share(Origin { id, siblings });
        let of_now = effects
            .iter()
            .map(|effect| effect.of_generation(self.state.generation));
        let mut writes: Vec<Write> = of_now.map(|effect| self.effect(&effect, &origin)).collect();
        writes.sort_by_key(|write| write.record);
        // Of several effects on one key the last one counts.
        writes.dedup_by(|later, kept| {
            let same = later.record == kept.record;
            if same {
                std::mem::swap(&mut later.version, &mut kept.version);
                later.version.free_unpublished();
            }
            same
        });
        let mut locked = Vec::with_capacity(writes.len());
        for write in &writes {
            match write.record.word().lock() {
                Ok(seen) => locked.push(seen),
                Err(refused) => {
                    let stop = self.refused(write.record, refused);
                    self.unlock_effects(&writes, &locked);
                    return Err(stop);
                }
            }
        }
        if let Err(stop) = self.enters_no_range(&writes, &locked, None) {
            let key = |write: &Write| self.engine.holds.range_holder(write.record.key(), None);
            let by = writes.iter().find_map(key);
            self.unlock_effects(&writes, &locked);
            return Err(by.map_or(stop, |by| Stop::Abort(Abort::Held { by })));
        }
        Ok((writes, locked))
    }

    /// Undoes [`Worker::lock_effects`].
    pub(crate) fn unlock_effects(&self, writes: &[Write], locked: &[Seen]) {
        for (write, seen) in writes.iter().zip(locked) {
            write.record.word().unlock(*seen, seen.0 & QUEUED);
        }
        for write in writes {
            write.version.free_unpublished();
            forsake(&self.engine, write.record);
        }
    }

    /// Commits an attempt. `own` is the system record, locked, and `seen` its word.
    pub(crate) fn publish_unheld(
        &mut self,
        id: TransactionId,
        (own, seen): (RecordRef, Seen),
    ) -> Result<Tid, Stop> {
        let value = RecordRef::version(seen).value();
        let Ok(Entry::Pending {
            note,
            siblings,
            effects,
        }) = system::decode(value)
        else {
            unreachable!("it is prepared without holds")
        };
        let (writes, locked) = self.lock_effects(id, siblings, &effects)?;
        let epoch = self.engine.epochs.commit_epoch();
        let tid = match self.draw(epoch, newest(locked.iter().chain([&seen]))) {
            Ok(tid) => tid,
            Err(stop) => {
                self.unlock_effects(&writes, &locked);
                return Err(stop);
            }
        };
        let marker = system_version(&Entry::Committed { note }.encode(), None);
        let (mut newer, mut words) = (Vec::new(), Vec::new());
        let is_late = |seen: &Seen| id_of(RecordRef::version(*seen)) > id;
        for (write, word) in writes.iter().zip(&locked).filter(|(_, s)| !is_late(s)) {
            newer.push(*write);
            words.push(*word);
        }
        newer.push(Write {
            record: own,
            version: marker,
        });
        words.push(seen);
        if let Err(stop) = self.append(&newer, tid) {
            marker.free_unpublished();
            self.unlock_effects(&writes, &locked);
            return Err(stop);
        }
        for (write, word) in writes.iter().zip(&locked).filter(|(_, s)| is_late(s)) {
            self.tuck(*write, *word, tid);
        }
        // The system record comes last.
        self.publish(&newer, &words, tid);
        Place::count(&self.place().commits, 1);
        Ok(tid)
    }

    /// Puts those of the writes that are older than the current version behind it. All are locked.
    pub(crate) fn tuck_late(&self, writes: &mut Vec<Write>, locked: &mut Vec<Seen>, tid: Tid) {
        if !self.engine.has_read_atomic() {
            return;
        }
        for at in (0..writes.len()).rev() {
            let (write, seen) = (writes[at], locked[at]);
            // A version without an id is of a time when the key was not read atomic.
            let is_late = write.version.origin().is_some()
                && self.engine.is_read_atomic(write.record.key())
                && id_of(RecordRef::version(seen)) > id_of(write.version);
            if is_late {
                writes.swap_remove(at);
                locked.swap_remove(at);
                self.tuck(write, seen, tid);
            }
        }
    }

    /// Puts a version behind newer ones, and unlocks the record.
    pub(crate) fn tuck(&self, write: Write, seen: Seen, tid: Tid) {
        let Write { record, version } = write;
        version.set_tid(tid);
        let id = id_of(version);
        let mut newer = RecordRef::version(seen);
        let mut older = newer.previous();
        while let Some(next) = older.filter(|next| id_of(*next) > id) {
            newer = next;
            older = next.previous();
        }
        version.set_previous(older);
        newer.set_previous(Some(version));
        Place::count(&self.place().bytes, version.bytes() as i64);
        Place::count(&self.place().kept, 1);
        record.word().unlock(seen, QUEUED);
        if !seen.has(QUEUED) {
            self.engine.queue.push(record);
        }
    }

    /// Returns the reason why a record could not be locked.
    pub(crate) fn refused(&self, record: RecordRef, refused: Refused) -> Stop {
        let holder = (refused == Refused::Held).then(|| self.engine.holds.holder(record));
        match holder.flatten() {
            Some(by) => Stop::Abort(Abort::Held { by }),
            None => Stop::Conflict,
        }
    }
}
