//! Leadership: puts what was submitted into the log.

use std::sync::atomic::Ordering;

use base::planted::{self, Bug};
use raft::StateRole;
use raft::eraftpb::{Entry, Message, MessageType};

use super::{Failure, Member, Open, Pending};
use crate::options::Grouping;
use crate::tickets::Group;
use crate::wire::Payload;

/// The number of entries that may be in progress, and their bytes. More entries wait in the queue,
/// and their clients wait with them.
const UNDER_WAY: usize = 1 << 14;
const BYTES_UNDER_WAY: usize = 64 << 20;
/// The interval, in election time-outs, at which the leader looks for clients that were silent for
/// long.
const EXPIRY_EVERY: u32 = 10;

impl Member {
    /// Notes that leadership has begun or ended.
    pub(super) fn note_role(&mut self) {
        let Some(raft) = &self.raft else { return };
        let (term, leads) = (raft.raft.term, raft.raft.state == StateRole::Leader);
        if self.leading.is_some_and(|since| !leads || since != term) {
            self.lose();
        }
        if leads && self.leading.is_none() {
            tracing::info!(term, "elected");
            self.leading = Some(term);
            self.changed = true;
        }
        let admits = self.shared.tickets.is_serving() || self.draining;
        if leads && self.applied_term == term && !admits {
            self.serve();
        }
        let leader = self.raft.as_ref().map_or(0, |raft| raft.raft.leader_id);
        let leader = (leader != 0).then(|| crate::status::node_of(leader));
        if leader.is_some_and(|leader| leader != self.options.me) {
            self.shared.handing_over.store(false, Ordering::SeqCst);
        }
        if self.shared.leader() != leader {
            self.shared.set_leader(leader);
            self.changed = true;
        }
    }

    /// Admits transactions: all that earlier leaders have acknowledged is applied.
    fn serve(&mut self) {
        let shared = &self.shared;
        let _nobody = shared.tickets.change();
        match shared.engine.restore_prepared() {
            Ok(prepared) => {
                tracing::info!(term = self.leading, prepared, "leads the partition");
                // The time would stand still if the previous leader had a clock that was ahead of
                // this one.
                shared.time.not_before(shared.engine.time_ms());
            }
            Err(error) => {
                tracing::error!(%error, "cannot lead");
                self.note = Some(error.to_string());
                return;
            }
        }
        let first = self.deadlines.first().unwrap_or(u64::MAX);
        shared.limit_ms.store(first, Ordering::SeqCst);
        shared.ticking.store(false, Ordering::SeqCst);
        shared.handing_over.store(false, Ordering::SeqCst);
        shared.tickets.open();
        self.changed = true;
    }

    /// Admits transactions again, because the leadership was not handed over.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.draining) && self.leading.is_some() {
            let _nobody = self.shared.tickets.change();
            self.shared.tickets.open();
            self.shared.handing_over.store(false, Ordering::SeqCst);
        }
    }

    /// Ends the leadership: drops everything that was executed and is not applied, and the locks,
    /// before any entry of the next leader is applied (paper 5 leaves this open).
    fn lose(&mut self) {
        tracing::info!(term = self.leading, "leads no more");
        self.leading = None;
        self.draining = false;
        self.changed = true;
        self.snapshots.sending.clear();
        self.snapshots.put_off.clear();
        self.end_changing();
        let shared = &self.shared;
        if planted::is(Bug::KeptOverlay) {
            // The open turns stay, as if their entries could not be replaced.
            return shared.tickets.pause();
        }
        shared.drop_everything();
        self.pending.clear();
        self.pending_bytes = 0;
        self.open.clear();
        self.rounds.forget();
    }

    /// Gives up leading for good: waiting transactions fail.
    pub(crate) fn abdicate(&mut self) {
        if self.leading.is_some() {
            self.lose();
        }
        self.shared.set_leader(None);
    }

    /// Steps aside while this member cannot write, so that another member can lead.
    pub(crate) fn step_aside(&mut self) {
        if self.leading.is_some() {
            let term = self.raft.as_ref().map_or(0, |raft| raft.raft.term);
            if let Some(raft) = &mut self.raft {
                // The library does not expect messages of a leader from a follower; these count as
                // lost.
                raft.raft.msgs.clear();
                raft.raft.become_follower(term, raft::INVALID_ID);
            }
            self.lose();
        }
    }

    /// Makes the log state that deadlines have passed.
    pub(super) fn tell_time(&mut self) {
        let shared = &self.shared;
        if !shared.tickets.is_serving() {
            return;
        }
        let wall = self.now.wall_ms.max(shared.engine.time_ms());
        let passed = self.deadlines.is_due(wall);
        if passed && !shared.ticking.swap(true, Ordering::SeqCst) {
            shared.tickets.tick(wall);
            shared.engine.set_time_ms(wall);
        }
        shared.refresh();
    }

    /// Returns `true` if something that was submitted can be taken now.
    pub(super) fn may_propose(&self) -> bool {
        let Some(raft) = &self.raft else { return false };
        let admitted = self.shared.tickets.is_serving() || self.draining;
        admitted
            && raft.raft.lead_transferee.is_none()
            && self.pending.len() < UNDER_WAY
            && self.pending_bytes < BYTES_UNDER_WAY
            && (self.options.grouping != Grouping::Naive || self.pending.is_empty())
            && match self.shared.tickets.waiting() {
                (true, _) => true,
                // Reads gather during a round: the next round serves them all.
                (false, reads) => reads && !self.rounds.is_open(),
            }
    }

    /// Puts the next group into the log.
    pub(super) fn propose(&mut self) {
        if !self.may_propose() {
            return;
        }
        let Some(group) = self.shared.tickets.take() else {
            return;
        };
        self.forget_clients();
        let Group {
            ticket,
            tick_ms,
            entries,
            reads,
        } = group;
        let tick = tick_ms.map(|stamp_ms| Payload::Tick { stamp_ms });
        let mut all: Vec<Entry> = tick.iter().map(|tick| entry(encode(tick))).collect();
        let ticks = all.len();
        let mut pending: Vec<Pending> = all.iter().map(|_| Pending::nobodys()).collect();
        for submission in entries {
            pending.push(Pending {
                index: 0,
                release: submission.release,
                number: submission.number,
                client: submission.client,
                bytes: submission.payload.len(),
            });
            all.push(entry(submission.payload));
        }
        let taken = (all.len() - ticks) as u64;
        let last = if all.is_empty() {
            0
        } else {
            self.groups += u64::from(taken > 0);
            self.entries += taken;
            match self.put(all, pending) {
                Some(last) => last,
                None => return,
            }
        };
        // The commit of this turn's entries shows that no other member leads.
        let round = if reads && last == 0 { self.ask() } else { 0 };
        self.open.push_back(Open {
            ticket,
            last,
            round,
        });
    }

    /// Proposes entries, and returns the index of the last one. Returns `None` if they were not
    /// taken: this member leads no more, and waiting transactions fail.
    fn put(&mut self, entries: Vec<Entry>, pending: Vec<Pending>) -> Option<u64> {
        let raft = self.raft.as_mut().expect("it leads");
        let count = entries.len() as u64;
        let mut message = Message {
            from: raft.raft.id,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgPropose);
        message.set_entries(entries.into());
        if let Err(error) = raft.step(message) {
            // This does not happen while the member leads and hands nothing over.
            tracing::error!(%error, "a group was not taken: another member had better lead");
            self.step_aside();
            return None;
        }
        // The messages tell followers of the commit.
        self.told = raft.raft.raft_log.committed;
        self.tell_at = None;
        let last = raft.raft.raft_log.last_index();
        let first = last + 1 - count;
        self.pending_bytes += pending.iter().map(|one| one.bytes).sum::<usize>();
        let pending = pending.into_iter().zip(first..);
        self.pending
            .extend(pending.map(|(one, index)| Pending { index, ..one }));
        Some(last)
    }

    /// Resolves the tickets whose outcome is known.
    pub(super) fn resolve(&mut self) {
        let mut newest = None;
        while let Some(open) = self.open.front() {
            if open.last > self.applied || open.round > self.rounds.confirmed {
                break;
            }
            newest = Some(open.ticket);
            self.open.pop_front();
        }
        if let Some(ticket) = newest {
            self.shared.tickets.resolve(ticket);
            self.shared.tell();
        }
    }

    /// Makes the log forget clients that were silent for long.
    fn forget_clients(&mut self) {
        if self.now.since < self.next_expiry {
            return;
        }
        self.next_expiry = self.now.since + self.options.election * EXPIRY_EVERY;
        let stamp_ms = self.now.wall_ms.max(self.stamp_ms);
        let oldest = stamp_ms.saturating_sub(self.options.session.as_millis() as u64);
        let expire = self.shared.end_stale(oldest);
        if !expire.is_empty() {
            let payload = encode(&Payload::Sessions { stamp_ms, expire });
            self.put(vec![entry(payload)], vec![Pending::nobodys()]);
        }
    }
}

impl Pending {
    fn nobodys() -> Pending {
        Pending {
            index: 0,
            release: None,
            number: None,
            client: 0,
            bytes: 0,
        }
    }
}

fn encode(payload: &Payload<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    payload.encode(&mut bytes);
    bytes
}

fn entry(data: Vec<u8>) -> Entry {
    Entry {
        data: data.into(),
        ..Entry::default()
    }
}

impl From<raft::Error> for Failure {
    fn from(error: raft::Error) -> Failure {
        Failure::Raft(error.to_string())
    }
}
