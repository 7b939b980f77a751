//! Prepares a part of a transaction over several partitions: its operations are executed as those
//! of any transaction, but instead of a commit
//!
//! 1. the records of keys that were absent are made, so that absences can be held;
//! 2. the scanned ranges are held;
//! 3. the records to be written are locked in the order of their addresses, the system record
//!    among them;
//! 4. the epoch is drawn, as a commit does;
//! 5. each record that was read is validated and held in one step; ranges and deadlines are
//!    validated, and that the attempt is unknown and its timestamp above those of the versions that
//!    it replaces;
//! 6. a TID is drawn, and the system record goes to the log;
//! 7. the locks become exclusive holds, and the system record is published.
//!
//! If anything fails before the last step, everything is given back. After it the transaction can
//! commit at any later time: until then no transaction reads what it will write or writes what it has
//! read. Any thread may decide it from then on, so that this one must not read the new versions any
//! more: replies are copied before. So it counts as executed at the moment of its preparation, and
//! takes its TID when it commits (module [`crate::decide`]), above those of all versions that it has
//! read and replaces.
//!
//! Every prepared transaction holds the generation's record as a reader, and one that flushes
//! exclusively: a flush waits for all others. So that it does not wait for ever, a transaction that
//! would hold as a reader a record that another one wants to write (module `wanted`) is refused while
//! others hold it, with the name of a holder: it waits for that holder to end, or gives up, as with any
//! other hold. Counting keys holds nothing, as it validates nothing.

use base::change::{Origin, SYSTEM_GENERATION, siblings};
use base::participant::{Isolation, Prepare, State};
use base::partition::OwnedReply;
use base::transaction::{Holder, Kind};
use base::{Abort, Epoch, Op, Tid, Timestamp, TransactionId};

use crate::commit::newest;
use crate::holds::Prepared;
use crate::log::{RedoLog, Write};
use crate::record::{Content, RecordRef, VersionRef};
use crate::system::{self, Effect, Entry, Kept};
use crate::word::{QUEUED, Seen};
use crate::worker::{Stop, Worker, forsake};

/// The locks and holds that an attempt has taken so far.
#[derive(Default)]
pub(crate) struct Taken {
    /// Words of the write set's records, in its order.
    locked: Vec<Seen>,
    /// Records held as a reader.
    shared: Vec<RecordRef>,
    ranged: bool,
}

impl<L: RedoLog> Worker<L> {
    /// Executes the operations, holds the records that they read and will write, and keeps their
    /// writes. The attempt counts as prepared once [`Worker::observed`] is durable.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why it is not prepared, in which case it has left nothing:
    /// [`Abort::Refused`] if its state is not unknown or its siblings are malformed,
    /// [`Abort::Held`], [`Abort::Overtaken`], or the error of an operation.
    pub fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        self.admit_prepare(prepare)?;
        self.until_done(|worker, attempt| worker.try_prepare(prepare, attempt))
    }

    pub(crate) fn admit_prepare(&self, prepare: &Prepare<'_>) -> Result<(), Abort> {
        self.check_count(prepare.ops)?;
        // A log with such siblings in it could not be read again.
        if siblings::read(prepare.siblings).is_none() {
            return Err(Abort::Refused);
        }
        Ok(())
    }

    pub(crate) fn try_prepare(
        &mut self,
        prepare: &Prepare<'_>,
        attempt: u32,
    ) -> Result<Vec<OwnedReply>, Stop> {
        if prepare.isolation == Isolation::ReadAtomic {
            self.admit_bytes(prepare.ops.iter().map(Op::brings).sum())?;
            return self.try_prepare_unheld(prepare);
        }
        self.state.origin = Some(self.engine.origins.share(Origin {
            id: prepare.holder.id,
            siblings: prepare.siblings,
        }));
        let outcome = self.run(prepare.ops).and_then(|()| {
            // Replies may refer to versions that the attempt made. Once it is prepared another
            // thread may abort it, which frees them at once.
            let replies = self.owned_replies();
            let held = self.hold_all(prepare.holder, Some(prepare), attempt);
            held.map(|()| replies)
        });
        outcome.map_err(|stop| self.give_up_reads(stop))
    }

    pub(crate) fn owned_replies(&self) -> Vec<OwnedReply> {
        self.state.replies.iter().map(OwnedReply::from).collect()
    }

    /// Leaves the records that were made to hold absences to the janitor.
    pub(crate) fn give_up_reads(&self, stop: Stop) -> Stop {
        let stop = self.blame(stop);
        for (record, _) in &self.state.reads {
            forsake(&self.engine, *record);
        }
        stop
    }

    /// Takes the holds (steps 1 to 7); without a system record for a transaction of this partition
    /// alone, which is staged. In a driven engine all writes come back by the log.
    pub(crate) fn hold_all(
        &mut self,
        holder: Holder,
        prepare: Option<&Prepare<'_>>,
        attempt: u32,
    ) -> Result<(), Stop> {
        // A flush takes effect at the commit, not before.
        self.state.generation = RecordRef::version(self.state.reads[0].1).generation();
        self.gather_reads()?;
        // Nothing is taken in vain: holds that are given back wake all waiting transactions.
        if self.in_the_way().is_some() {
            return Err(Stop::Conflict);
        }
        self.give_way(holder.id, attempt)?;
        self.check_size(&self.state.writes)?;
        let own = match prepare {
            Some(prepare) => Some(self.write_system(prepare)?),
            None => None,
        };
        let mut writes = std::mem::take(&mut self.state.writes);
        writes.sort_unstable_by_key(|write| write.record);
        let mut taken = Taken::default();
        let outcome = self
            .take(holder, &writes, own, &mut taken)
            .and_then(|tid| self.log_held(&writes, own, tid).map(|()| tid));
        match (outcome, own) {
            (Ok(Tid::ZERO), own) => {
                self.settle_staged(holder, writes, own, taken);
                Ok(())
            }
            (Ok(tid), own) => {
                let own = own.expect("only a driven engine stages");
                self.settle(holder, writes, own, taken, tid);
                Ok(())
            }
            (Err(stop), _) => {
                self.give_up(holder.id, &writes, &taken);
                self.state.writes = writes;
                Err(stop)
            }
        }
    }

    /// Puts the system record into the write set.
    fn write_system(&mut self, prepare: &Prepare<'_>) -> Result<RecordRef, Stop> {
        let record = self.record_of(&system::key(prepare.holder.id));
        let version = system_version(&self.describe(prepare), None);
        let write = Write { record, version };
        self.state.writes.push(write);
        self.check_size(&[write]).map(|()| record)
    }

    fn log_held(&mut self, writes: &[Write], own: Option<RecordRef>, tid: Tid) -> Result<(), Stop> {
        let own = own.map(|record| writes_of(writes, record));
        let writes = own.as_deref().unwrap_or(writes);
        match tid {
            Tid::ZERO => self.append_staged(writes),
            tid => self.append(writes, tid),
        }
    }

    /// Gathers all reads, each record once, as records (step 1).
    fn gather_reads(&mut self) -> Result<(), Stop> {
        let missing = std::mem::take(&mut self.state.missing);
        let mut start = 0;
        for &end in &self.state.missing_ends {
            let record = self.record_of(&missing[start..end]);
            start = end;
            let seen = record.word().load();
            self.state.reads.push((record, seen));
        }
        let unwritten = self.state.reads.len() - self.state.missing_ends.len();
        let mut absent = self.state.reads[unwritten..].iter();
        let still = absent.all(|(_, seen)| RecordRef::version(*seen).is_never());
        // For the search for the transaction in the way.
        self.state.missing = missing;
        if !still {
            return Err(Stop::Conflict);
        }
        let reads = &mut self.state.reads;
        reads.sort_unstable_by_key(|(record, _)| *record);
        let changed = |pair: &[(RecordRef, Seen)]| {
            pair[0].0 == pair[1].0 && pair[0].1.pointer() != pair[1].1.pointer()
        };
        if reads.windows(2).any(changed) {
            return Err(Stop::Conflict);
        }
        reads.dedup_by_key(|(record, _)| *record);
        Ok(())
    }

    /// Returns the value of the system record.
    fn describe(&self, prepare: &Prepare<'_>) -> Vec<u8> {
        let state = &self.state;
        let generation = self.engine.generation;
        let effect = |write: &Write| effect_of(write, generation);
        let shared = state.reads.iter().map(|(record, _)| *record);
        let shared =
            shared.filter(|record| *record != generation && self.own_write(*record).is_none());
        let ranges = state.scans.iter();
        let kept = Kept {
            age: prepare.holder.age,
            siblings: prepare.siblings,
            effects: state.writes.iter().map(effect).collect(),
            shared: shared.map(RecordRef::key).collect(),
            ranges: ranges.map(|scan| (&scan.from[..], &scan.to[..])).collect(),
        };
        let note = prepare.note;
        Entry::Prepared { note, kept }.encode()
    }

    /// Performs steps 2 to 6 but for the log. `taken` gets the locks and holds, also on an error.
    /// The TID is zero in a driven engine, where the log determines it.
    fn take(
        &mut self,
        holder: Holder,
        writes: &[Write],
        own: Option<RecordRef>,
        taken: &mut Taken,
    ) -> Result<Tid, Stop> {
        for scan in &self.state.scans {
            taken.ranged = true;
            self.engine.holds.hold_range(holder, &scan.from, &scan.to);
        }
        for write in writes {
            let seen = write.record.word().lock().map_err(|_| Stop::Conflict)?;
            taken.locked.push(seen);
        }
        if own.is_none() && !self.is_newest(writes, &taken.locked) {
            return Err(Stop::Conflict);
        }
        let epoch = self.engine.epochs.commit_epoch();
        if let Some(own) = own {
            self.check_unknown(writes, own, &taken.locked)?;
            self.check_timestamp(holder.id.timestamp, &taken.locked)?;
        }
        self.hold_reads(holder, writes, taken)?;
        self.enters_no_range(writes, &taken.locked, Some(holder.id))?;
        self.check_ranges(epoch, writes)?;
        if self.engine.epochs.is_driven() {
            return Ok(Tid::ZERO);
        }
        let read = self.state.reads.iter().map(|(_, seen)| seen);
        let newest = newest(taken.locked.iter().chain(read));
        self.draw(epoch, newest)
    }

    fn check_unknown(&self, writes: &[Write], own: RecordRef, locked: &[Seen]) -> Result<(), Stop> {
        let mut pairs = writes.iter().zip(locked);
        let (_, seen) = pairs
            .find(|(write, _)| write.record == own)
            .expect("it is in the write set");
        match self.known(RecordRef::version(*seen)) {
            State::Unknown => Ok(()),
            _ => Err(Stop::Abort(Abort::Refused)),
        }
    }

    /// Checks that the versions of each key have growing timestamps.
    fn check_timestamp(&self, timestamp: Timestamp, locked: &[Seen]) -> Result<(), Stop> {
        let origins = locked
            .iter()
            .filter_map(|seen| RecordRef::version(*seen).origin());
        match origins.map(|origin| origin.id.timestamp).max() {
            Some(newest) if newest >= timestamp => Err(Stop::Abort(Abort::Overtaken { newest })),
            _ => Ok(()),
        }
    }

    /// Validates the reads, and holds the records that are not locked.
    fn hold_reads(&self, holder: Holder, writes: &[Write], taken: &mut Taken) -> Result<(), Stop> {
        for (record, seen) in &self.state.reads {
            if mine(writes, *record) {
                if !record.word().validates(*seen, true) {
                    return Err(Stop::Conflict);
                }
                continue;
            }
            let shared = self.engine.holds.share(*record, *seen, holder);
            shared.map_err(|_| Stop::Conflict)?;
            taken.shared.push(*record);
        }
        Ok(())
    }

    fn check_ranges(&self, epoch: Epoch, writes: &[Write]) -> Result<(), Stop> {
        let mine = |record| mine(writes, record);
        let mut scans = self.state.scans.iter();
        let same = scans.all(|scan| self.scan_unchanged(scan, &mine))
            && (epoch == self.state.epoch || self.no_deadline_passed(epoch));
        if same { Ok(()) } else { Err(Stop::Conflict) }
    }

    /// Turns the locks into holds and publishes the system record (step 7).
    fn settle(
        &mut self,
        holder: Holder,
        writes: Vec<Write>,
        own: RecordRef,
        taken: Taken,
        tid: Tid,
    ) {
        let (mut effects, mut published) = (Vec::with_capacity(writes.len() - 1), None);
        for (write, seen) in writes.into_iter().zip(taken.locked) {
            if write.record == own {
                published = Some((write, seen));
            } else {
                self.engine.holds.exclude(write.record, seen, holder);
                effects.push(write);
            }
        }
        let prepared = Prepared {
            effects,
            held: taken.shared,
            ranged: taken.ranged,
            is_staged: false,
        };
        self.engine.prepared.lock().insert(holder.id, prepared);
        let (write, seen) = published.expect("the system record is in the write set");
        self.publish(&[write], &[seen], tid);
        self.state.observed = tid.epoch();
        self.state.wrote = tid;
    }

    /// Performs step 7 of a staged transaction. The applier may be waiting for the last of these
    /// records already: it is the one whose version is in the log, and everything else is in place
    /// before.
    fn settle_staged(
        &mut self,
        holder: Holder,
        writes: Vec<Write>,
        own: Option<RecordRef>,
        taken: Taken,
    ) {
        let mut held = taken.shared;
        let keys = writes.iter().map(|write| write.record);
        held.extend(keys.filter(|record| Some(*record) != own));
        let prepared = Prepared {
            effects: Vec::new(),
            held,
            ranged: taken.ranged,
            is_staged: false,
        };
        self.engine.prepared.lock().insert(holder.id, prepared);
        let pairs = || writes.iter().zip(&taken.locked);
        for (write, seen) in pairs().filter(|(write, _)| Some(write.record) != own) {
            self.engine.holds.exclude(write.record, *seen, holder);
        }
        for (write, seen) in pairs().filter(|(write, _)| Some(write.record) == own) {
            let holder = deciding(holder.id);
            self.engine.holds.exclude(write.record, *seen, holder);
        }
        for write in writes {
            write.version.free_unpublished();
        }
    }

    fn give_up(&mut self, id: TransactionId, writes: &[Write], taken: &Taken) {
        for (write, seen) in writes.iter().zip(&taken.locked) {
            write.record.word().unlock(*seen, seen.0 & QUEUED);
        }
        self.give_back(id, &taken.shared, taken.ranged);
    }

    /// Gives readers' holds and ranges back.
    pub(crate) fn give_back(&mut self, id: TransactionId, shared: &[RecordRef], ranged: bool) {
        let engine = &self.engine;
        for record in shared {
            if engine.holds.give_back(*record, id) {
                engine.queue.push(*record);
            }
        }
        if ranged {
            engine.holds.give_ranges_back(id);
        }
        self.state.gave_back |= ranged || !shared.is_empty();
    }
}

/// Returns the holder of a system record until its staged entry is applied. Every transaction may
/// wait for this holder, which waits for none.
pub(crate) fn deciding(id: TransactionId) -> Holder {
    let age = Timestamp(u64::MAX);
    Holder { id, age }
}

/// Returns `true` if a record is in a write set, which is sorted.
fn mine(writes: &[Write], record: RecordRef) -> bool {
    writes
        .binary_search_by_key(&record, |write| write.record)
        .is_ok()
}

/// Returns the write of one record.
fn writes_of(writes: &[Write], record: RecordRef) -> Vec<Write> {
    let of_it = writes.iter().filter(|write| write.record == record);
    of_it.copied().collect()
}

/// Returns a version of a system record.
pub(crate) fn system_version(value: &[u8], deadline: Option<u64>) -> VersionRef {
    let content = Content {
        parts: &[value],
        kind: Kind::String,
        deadline,
    };
    VersionRef::new(SYSTEM_GENERATION, Some(content), None)
}

fn effect_of(write: &Write, generation: RecordRef) -> Effect<'static> {
    let version = write.version;
    if write.record == generation {
        Effect::Flush {
            generation: version.generation(),
        }
    } else if version.is_absent() {
        Effect::Delete {
            key: write.record.key(),
        }
    } else {
        Effect::Put {
            key: write.record.key(),
            value: version.value(),
            kind: version.kind(),
            generation: version.generation(),
            deadline: version.deadline(),
        }
    }
}
