//! The replicated state of a member, to which the entries of the log are applied: the same on every
//! member, in the order of the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::partition::OwnedReply;
use base::{Abort, Change, Epoch, TransactionId};
use disk::Disk;
use engine::{Applier, SnapshotEntry, SnapshotValue};
use raft::eraftpb::Entry;
use values::StoredBlock;

use crate::deadlines::DeadlineSet;
use crate::entry_validation::is_intact;
use crate::failure::MemberFailure;
use crate::sessions::{ClientSessions, SequenceState, not_kept, superseded};
use crate::shared::MemberShared;
use crate::snapshot::SnapshotReader;
use crate::wire::{Payload, changes};

/// The memory of this many entries is fetched ahead of their turn, if they are small; larger
/// entries gain nothing by it.
const FETCHED: usize = 16;
const FETCHED_BYTES: usize = 512;

/// What this member knows of an entry that it has proposed itself, in the present leadership.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnProposal {
    /// The transaction that was staged for it.
    pub(super) holder: Option<TransactionId>,
    /// The number under which a worker of this node waits for its outcome.
    pub(super) waiter: Option<u64>,
}

/// See the module's description.
pub(super) struct StateMachine {
    shared: Arc<MemberShared>,
    applier: Applier,
    applied: u64,
    applied_term: u64,
    /// The greatest stamp of the applied entries.
    stamp_ms: u64,
    /// Deadlines of keys and of fields of hashes that the log has not said to have passed.
    deadlines: DeadlineSet,
}

impl StateMachine {
    pub(super) fn new(shared: Arc<MemberShared>) -> StateMachine {
        StateMachine {
            applier: shared.engine.applier().expect("no other thread applies"),
            shared,
            applied: 0,
            applied_term: 0,
            stamp_ms: 0,
            deadlines: DeadlineSet::default(),
        }
    }

    /// Returns the index of the last applied entry.
    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the term of the last applied entry.
    pub(super) fn applied_term(&self) -> u64 {
        self.applied_term
    }

    /// Returns the greatest stamp of the applied entries, in milliseconds since the Unix epoch.
    pub(super) fn stamp_ms(&self) -> u64 {
        self.stamp_ms
    }

    /// Returns `true` if the log should state the time `now_ms`, because deadlines have passed.
    pub(super) fn is_deadline_due(&self, now_ms: u64) -> bool {
        self.deadlines.is_due(now_ms)
    }

    /// Publishes the time up to which the clock may go on without an entry that states it.
    pub(super) fn publish_limit(&self) {
        publish_limit(&self.shared, &self.deadlines);
    }

    /// Starts to fetch the memory that entries from `at` on write. Returns the position of the
    /// first entry that was not looked at.
    pub(super) fn prefetch(&mut self, entries: &[Entry], at: usize) -> usize {
        let some = &entries[at..entries.len().min(at + FETCHED)];
        let small = some.iter().filter(|entry| entry.data.len() < FETCHED_BYTES);
        let payloads = small.filter_map(|entry| Payload::decode(&entry.data).ok());
        let written = payloads.filter_map(|payload| match payload {
            Payload::Transaction { changes, .. } => Some(changes),
            _ => None,
        });
        // An entry that cannot be read is reported when it is applied.
        let keys = written.flat_map(changes).filter_map(|one| one.ok()?.key());
        self.applier.prefetch(keys);
        at + some.len()
    }

    /// Applies an entry that contains a payload, or nothing.
    ///
    /// # Errors
    /// Returns [`MemberFailure::Entry`] if the entry cannot be understood, and [`MemberFailure::Changed`] if it
    /// is not what was proposed.
    pub(super) fn apply(&mut self, entry: &Entry, own: OwnProposal) -> Result<(), MemberFailure> {
        if !is_intact(entry) {
            return Err(MemberFailure::Changed { index: entry.index });
        }
        if entry.data.is_empty() {
            self.skip(entry);
            return Ok(());
        }
        let unreadable = |error| MemberFailure::unreadable(entry.index, error);
        let payload = Payload::decode(&entry.data).map_err(unreadable)?;
        self.apply_payload(Epoch(entry.index), &payload, own)?;
        self.advance(entry);
        Ok(())
    }

    /// Passes over an entry that does not change the state.
    pub(super) fn skip(&mut self, entry: &Entry) {
        self.applier.skip(Epoch(entry.index), self.stamp_ms);
        self.advance(entry);
    }

    fn advance(&mut self, entry: &Entry) {
        self.applied = entry.index;
        self.applied_term = entry.term;
    }

    fn apply_payload(
        &mut self,
        index: Epoch,
        payload: &Payload<'_>,
        own: OwnProposal,
    ) -> Result<(), MemberFailure> {
        self.stamp_ms = self.stamp_ms.max(payload.stamp_ms());
        match payload {
            Payload::Transaction {
                client,
                sequence,
                result,
                changes: bytes,
                ..
            } => {
                if *client != 0 && !self.is_new(*client, *sequence) {
                    self.applier.skip(index, self.stamp_ms);
                    return Ok(());
                }
                self.apply_changes(index, bytes, own.holder)?;
                self.remember(*client, *sequence, result);
            }
            Payload::Execute {
                client,
                sequence,
                ops,
                ..
            } => {
                let outcome = self.execute(index, (*client, *sequence), ops)?;
                if let Some(number) = own.waiter {
                    self.shared.outcomes.insert(number, outcome);
                }
            }
            Payload::Tick { stamp_ms } => {
                self.applier.skip(index, self.stamp_ms);
                self.deadlines.pass(*stamp_ms);
                self.shared.ticking.store(false, Ordering::SeqCst);
                self.publish_limit();
            }
            Payload::Sessions { expire, .. } => {
                self.applier.skip(index, self.stamp_ms);
                self.shared.forget_sessions(expire);
            }
            Payload::Open { most, .. } => {
                self.applier.skip(index, self.stamp_ms);
                self.open_session(index.0, *most, own.waiter);
            }
        }
        Ok(())
    }

    fn apply_changes(
        &mut self,
        index: Epoch,
        bytes: &[u8],
        holder: Option<TransactionId>,
    ) -> Result<(), MemberFailure> {
        let mut found = Vec::new();
        for change in changes(bytes) {
            let change = change.map_err(|(at, what)| {
                MemberFailure::unreadable(index.0, format!("{what} (at byte {at})"))
            })?;
            match change {
                Change::Put {
                    deadline,
                    kind,
                    value: bytes,
                    ..
                } => {
                    self.deadlines.extend(deadline);
                    let value = StoredBlock { kind, bytes };
                    self.deadlines.extend(values::field_deadlines(value));
                }
                Change::Elements {
                    deadline, changes, ..
                } => {
                    self.deadlines.extend(deadline);
                    self.deadlines.extend(values::logged_deadlines(changes));
                }
                _ => {}
            }
            found.push(change);
        }
        // This comes before any transaction sees a key that may have expired already.
        self.publish_limit();
        let stamp_ms = self.stamp_ms;
        if !holder.is_some_and(|id| self.applier.apply_staged(index, stamp_ms, id)) {
            self.applier.apply(index, stamp_ms, &found);
        }
        Ok(())
    }

    /// Executes operations after consensus, as every member does: the paper's baseline.
    fn execute(
        &mut self,
        index: Epoch,
        (client, sequence): (u64, u64),
        ops: &[u8],
    ) -> Result<Result<Vec<OwnedReply>, Abort>, MemberFailure> {
        let unreadable = |error| MemberFailure::unreadable(index.0, error);
        let ops = base::codec::decode_ops(ops).map_err(unreadable)?;
        let state = self.shared.sessions.lock().look_up(client, sequence);
        if client != 0 && state != SequenceState::New {
            self.applier.skip(index, self.stamp_ms);
            return Ok(match state {
                SequenceState::Done(result) if result.is_empty() => Err(not_kept()),
                SequenceState::Done(result) => {
                    let mut from = base::codec::Reader::new(&result);
                    Ok(base::codec::read_replies(&mut from).map_err(unreadable)?)
                }
                SequenceState::Forgotten => Err(Abort::Forgotten),
                _ => Err(superseded()),
            });
        }
        let StateMachine {
            shared,
            applier,
            deadlines,
            ..
        } = self;
        let outcome = applier.execute(index, self.stamp_ms, &ops, &mut |deadline| {
            deadlines.insert(deadline);
            publish_limit(shared, deadlines);
        });
        if let Ok(replies) = &outcome {
            let mut result = Vec::new();
            base::codec::write_replies(replies, &mut result);
            self.remember(client, sequence, &result);
        }
        Ok(outcome)
    }

    fn open_session(&mut self, index: u64, most: u64, waiter: Option<u64>) {
        let mut sessions = self.shared.sessions.lock();
        let id = session_id(self.stamp_ms, index);
        let outcome = if sessions.open(id, self.stamp_ms, most) {
            Ok(id)
        } else {
            let what = format!("there are {most} sessions, and no more can be remembered");
            Err(Abort::Unavailable { what })
        };
        drop(sessions);
        if let Some(number) = waiter {
            self.shared.opened.insert(number, outcome);
        }
    }

    /// Returns `true` if a transaction that its leader has executed is to be applied.
    fn is_new(&self, client: u64, sequence: u64) -> bool {
        let state = self.shared.sessions.lock().look_up(client, sequence);
        debug_assert_eq!(
            state,
            SequenceState::New,
            "its leader has looked, and kept it so"
        );
        state == SequenceState::New
    }

    fn remember(&mut self, client: u64, sequence: u64, result: &[u8]) {
        if client != 0 {
            let mut sessions = self.shared.sessions.lock();
            sessions.note(client, sequence, result, self.stamp_ms);
        }
    }

    /// Replaces the state by that of the snapshot at `path`.
    ///
    /// # Errors
    /// Returns an error if the snapshot cannot be read or understood.
    pub(super) fn load(&mut self, disk: &Arc<dyn Disk>, path: &Path) -> Result<(), MemberFailure> {
        self.shared.loads.fetch_add(1, Ordering::SeqCst);
        let mut reader = SnapshotReader::open(disk, path)?;
        let head = reader.head().clone();
        let mut loader = self.applier.load(Epoch(head.meta.index), head.stamp_ms);
        self.deadlines.clear();
        while let Some(record) = reader.next()? {
            let ahead = record.deadline.filter(|at| *at > engine::ABSENT_MS);
            self.deadlines.extend(ahead);
            let value = StoredBlock {
                kind: record.kind,
                bytes: record.value,
            };
            self.deadlines.extend(values::field_deadlines(value));
            loader.put(&SnapshotEntry {
                key: record.key,
                value: SnapshotValue::Bytes(record.value),
                kind: record.kind,
                deadline: record.deadline,
                tid: record.tid,
                generation: record.generation,
                origin: record.origin,
            });
        }
        loader.finish(head.generation, head.generation_tid);
        let sessions = ClientSessions::decode(&reader.sessions()?).map_err(|error| {
            let what = format!("the table of sessions in the snapshot: {error}");
            MemberFailure::unreadable(head.meta.index, what)
        })?;
        *self.shared.sessions.lock() = sessions;
        self.applied = head.meta.index;
        self.applied_term = head.meta.term;
        self.stamp_ms = head.stamp_ms;
        self.publish_limit();
        self.shared.loads.fetch_add(1, Ordering::SeqCst);
        tracing::info!(index = head.meta.index, "snapshot loaded");
        Ok(())
    }
}

fn publish_limit(shared: &MemberShared, deadlines: &DeadlineSet) {
    let first = deadlines.first().unwrap_or(u64::MAX);
    shared.limit_ms.store(first, Ordering::SeqCst);
}

/// Returns the id of the session that the entry `index` opens. Ids grow with each entry, because
/// stamps do not fall. A partition that is founded anew begins above the ids of the earlier one.
fn session_id(stamp_ms: u64, index: u64) -> u64 {
    (stamp_ms << 22).wrapping_add(index)
}
