//! Applies entries to the state: the same on every member, in the order of the log.

use std::sync::atomic::Ordering;

use base::{Abort, Change, Epoch};
use protobuf::Message as _;
use raft::StateRole;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, Entry, EntryType};

use super::{Failure, Member};
use crate::sessions::Known;
use crate::wire::{Payload, changes};
use crate::worker::{not_kept, superseded};

/// The memory of this many entries is fetched ahead of their turn, if they are small; larger
/// entries gain nothing by it.
const FETCHED: usize = 16;
const FETCHED_BYTES: usize = 512;

impl Member {
    pub(super) fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Failure> {
        let mut fetched = 0;
        for (place, entry) in entries.iter().enumerate() {
            if place == fetched {
                fetched = self.fetch(&entries, place);
            }
            // A snapshot that contains the entry may have been loaded.
            if entry.index <= self.applied {
                continue;
            }
            self.apply_one(entry).map_err(|failure| match failure {
                Failure::Entry { what, .. } => Failure::Entry {
                    index: entry.index,
                    what,
                },
                other => other,
            })?;
            self.applied = entry.index;
            self.applied_term = entry.term;
            self.settle(entry.index);
            self.hash_if_wanted();
        }
        self.note_role();
        Ok(())
    }

    /// Starts to fetch the memory that entries from `place` on write. Returns the place of the
    /// first entry that was not looked at.
    fn fetch(&mut self, entries: &[Entry], place: usize) -> usize {
        let some = &entries[place..entries.len().min(place + FETCHED)];
        let small = some.iter().filter(|entry| entry.data.len() < FETCHED_BYTES);
        let payloads = small.filter_map(|entry| Payload::decode(&entry.data).ok());
        let written = payloads.filter_map(|payload| match payload {
            Payload::Transaction { changes, .. } => Some(changes),
            _ => None,
        });
        // An entry that cannot be read is reported when it is applied.
        let keys = written.flat_map(changes).filter_map(|one| one.ok()?.key());
        self.applier.prefetch(keys);
        place + some.len()
    }

    fn apply_one(&mut self, entry: &Entry) -> Result<(), Failure> {
        let index = Epoch(entry.index);
        match entry.get_entry_type() {
            EntryType::EntryNormal if entry.data.is_empty() => {
                self.applier.skip(index, self.stamp_ms);
                Ok(())
            }
            EntryType::EntryNormal => {
                let payload = Payload::decode(&entry.data).map_err(unreadable)?;
                self.apply_payload(index, &payload)
            }
            // No member proposes the older kind.
            EntryType::EntryConfChange => Err(unreadable("a change of members of the older kind")),
            EntryType::EntryConfChangeV2 => {
                let mut change = ConfChangeV2::default();
                change.merge_from_bytes(&entry.data).map_err(unreadable)?;
                self.apply_members(index, &change)
            }
        }
    }

    fn apply_members(&mut self, index: Epoch, change: &ConfChangeV2) -> Result<(), Failure> {
        let raft = self.raft.as_mut().expect("it takes part");
        let members = match raft.apply_conf_change(change) {
            Ok(members) => members,
            Err(error) => {
                // All members have the same members at this entry, and so refuse it alike.
                tracing::error!(%error, index = index.0, "a change of the members is passed over");
                self.applier.skip(index, self.stamp_ms);
                return Ok(());
            }
        };
        tracing::info!(voters = ?members.voters, learners = ?members.learners, "members");
        raft.mut_store().set_conf_state(index.0, &members);
        let own = &mut raft.raft;
        if own.state == StateRole::Leader && !own.prs().conf().voters().contains(own.id) {
            // The leader that was to remove this member was deposed meanwhile. The library lets
            // this member lead on, and panics when an answer comes.
            own.msgs.clear();
            own.become_follower(own.term, raft::INVALID_ID);
        }
        self.applier.skip(index, self.stamp_ms);
        self.changed = true;
        let learner =
            |one: &ConfChangeSingle| one.get_change_type() == ConfChangeType::AddLearnerNode;
        if change.get_changes().iter().any(learner) {
            // Every member makes a snapshot, because any of them may lead when the learner asks for
            // entries. The learner needs a snapshot that says that it is a member.
            self.want_snapshot_of(index.0);
        }
        Ok(())
    }

    fn apply_payload(&mut self, index: Epoch, payload: &Payload<'_>) -> Result<(), Failure> {
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
                self.apply_changes(index, bytes)?;
                self.remember(*client, *sequence, result);
            }
            Payload::Execute {
                client,
                sequence,
                ops,
                ..
            } => self.execute(index, (*client, *sequence), ops)?,
            Payload::Tick { stamp_ms } => {
                self.applier.skip(index, self.stamp_ms);
                self.deadlines.pass(*stamp_ms);
                self.shared.ticking.store(false, Ordering::SeqCst);
                self.tell_limit();
            }
            Payload::Sessions { expire, .. } => {
                self.applier.skip(index, self.stamp_ms);
                self.shared.forget_sessions(expire);
            }
            Payload::Open { most, .. } => {
                self.applier.skip(index, self.stamp_ms);
                self.open_session(index.0, *most);
            }
        }
        Ok(())
    }

    fn apply_changes(&mut self, index: Epoch, bytes: &[u8]) -> Result<(), Failure> {
        let mut found = Vec::new();
        for change in changes(bytes) {
            let change =
                change.map_err(|(at, what)| unreadable(format!("{what} (at byte {at})")))?;
            if let Change::Put {
                deadline: Some(deadline),
                ..
            } = change
            {
                self.deadlines.insert(deadline);
            }
            found.push(change);
        }
        // This comes before any transaction sees a key that may have expired already.
        self.tell_limit();
        self.applier.apply(index, self.stamp_ms, &found);
        Ok(())
    }

    /// Executes operations after consensus, as every member does: the paper's baseline.
    fn execute(&mut self, index: Epoch, by: (u64, u64), ops: &[u8]) -> Result<(), Failure> {
        let ops = base::codec::decode_ops(ops).map_err(unreadable)?;
        let known = self.shared.sessions.lock().look_up(by.0, by.1);
        let outcome = if by.0 != 0 && known != Known::New {
            self.applier.skip(index, self.stamp_ms);
            match known {
                Known::Done(result) if result.is_empty() => Err(not_kept()),
                Known::Done(result) => {
                    let mut from = base::codec::Reader::new(&result);
                    Ok(base::codec::read_replies(&mut from).map_err(unreadable)?)
                }
                Known::Forgotten => Err(Abort::Forgotten),
                _ => Err(superseded()),
            }
        } else {
            let outcome = self.applier.execute(index, self.stamp_ms, &ops);
            if let Ok(replies) = &outcome {
                let mut result = Vec::new();
                base::codec::write_replies(replies, &mut result);
                self.remember(by.0, by.1, &result);
            }
            outcome
        };
        if let Some(number) = self.waiting_for(index.0) {
            self.shared.outcomes.keep(number, outcome);
        }
        Ok(())
    }

    fn open_session(&mut self, index: u64, most: u64) {
        let mut sessions = self.shared.sessions.lock();
        let id = session_id(self.stamp_ms, index);
        let outcome = if sessions.open(id, self.stamp_ms, most) {
            Ok(id)
        } else {
            let what = format!("there are {most} sessions, and no more can be remembered");
            Err(Abort::Unavailable { what })
        };
        drop(sessions);
        if let Some(number) = self.waiting_for(index) {
            self.shared.opened.keep(number, outcome);
        }
    }

    /// Returns the number under which a worker of this node waits for the outcome of an entry.
    fn waiting_for(&self, index: u64) -> Option<u64> {
        let front = self.pending.front();
        front.filter(|front| front.index == index)?.number
    }

    /// Returns `true` if a transaction that its leader has executed is to be applied.
    fn is_new(&self, client: u64, sequence: u64) -> bool {
        let known = self.shared.sessions.lock().look_up(client, sequence);
        debug_assert_eq!(known, Known::New, "its leader has looked, and kept it so");
        known == Known::New
    }

    fn remember(&mut self, client: u64, sequence: u64, result: &[u8]) {
        if client != 0 {
            let mut sessions = self.shared.sessions.lock();
            sessions.note(client, sequence, result, self.stamp_ms);
        }
    }

    /// Publishes the time up to which the clock may go on without an entry that states it.
    pub(super) fn tell_limit(&self) {
        let first = self.deadlines.first().unwrap_or(u64::MAX);
        self.shared.limit_ms.store(first, Ordering::SeqCst);
    }

    /// Gives back the holds of the entry that has just been applied.
    fn settle(&mut self, index: u64) {
        while let Some(front) = self.pending.front()
            && front.index <= index
        {
            let front = self.pending.pop_front().expect("looked at before");
            self.pending_bytes -= front.bytes;
            if let Some(id) = front.release {
                self.shared.engine.release(id);
            }
            if front.client != 0 {
                self.shared.under_way.lock().remove(&front.client);
            }
        }
    }
}

/// Returns the id of the session that the entry `index` opens. Ids grow with each entry, because
/// stamps do not fall. A partition that is founded anew begins above the ids of the earlier one.
fn session_id(stamp_ms: u64, index: u64) -> u64 {
    (stamp_ms << 22).wrapping_add(index)
}

fn unreadable(error: impl ToString) -> Failure {
    Failure::Entry {
        index: 0,
        what: error.to_string(),
    }
}
