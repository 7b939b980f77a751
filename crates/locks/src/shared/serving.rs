//! Requests: the next step for each, and its time.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::entry::{Entry, LastSeen, Over, Pending, Phase, Plan, Sighting, What, Work, Write};
use crate::decision::{Decision, decide};
use crate::error::LockError;
use crate::lock::LockLease;
use crate::moment::{MonotonicTime, by_every_clock};
use crate::record::RecordWriteId;

/// Time for which other proxies leave the release of a record to the proxy that wrote it.
const COURTESY: Duration = Duration::from_secs(2);

/// Time between two looks at a lock whose lease has ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Shared {
    /// Puts a request in its key's queue.
    pub(super) fn ask(&mut self, key: &Arc<[u8]>, work: Work, until: MonotonicTime) {
        self.arrivals += 1;
        let pending = Pending {
            arrival: self.arrivals,
            work,
            came: self.now,
            until,
            limit: until + self.options.request_timeout,
            waits: false,
            attempts: Vec::new(),
            cancelled: false,
        };
        let patience = self.options.poll.0;
        let entry = self.entries.entry(Arc::clone(key));
        let entry = entry.or_insert_with(|| Entry::new(patience));
        entry.pending.push_back(pending);
        self.advance(key);
    }

    /// Queues a key for sending, if there is something to do for it now.
    pub(super) fn advance(&mut self, key: &Arc<[u8]>) {
        let now = self.now;
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let is_asked = entry.pending.iter().any(|one| !one.waits)
            || entry.poll_at.is_some_and(|at| at <= now) && !entry.pending.is_empty();
        if entry.is_idle() && is_asked {
            let front = entry.pending.front().expect("a client asks");
            let create = matches!(entry.known, LastSeen::Nothing)
                .then(|| creation(front, &self.options.limits))
                .flatten();
            entry.phase = Phase::Ready(create.map_or(Plan::Read, Plan::Write));
            entry.poll_at = None;
            self.ready.push_back(Arc::clone(key));
        }
        self.arm(key);
    }

    /// Does what is due for a key.
    pub(super) fn expire(&mut self, key: &Arc<[u8]>) {
        self.end_requests(key);
        let now = self.now;
        let entry = self.entries.get_mut(key).expect("what is due is known");
        for one in &mut entry.pending {
            // The wait of these requests has ended: they get one last look.
            one.waits &= one.until > now;
        }
        let is_idle = entry.is_idle();
        match &mut entry.known {
            LastSeen::Released(until) if *until <= now && is_idle => {
                entry.known = LastSeen::Nothing;
            }
            LastSeen::Held(sighting) if sighting.look_at.is_some_and(|at| at <= now) => {
                sighting.look_at = Some(now + LOOK_AGAIN);
                let is_looked_at = |one: &Pending| matches!(one.work, Work::Expire);
                if !entry.pending.iter().any(is_looked_at) {
                    self.ask(key, Work::Expire, now);
                    return;
                }
            }
            LastSeen::Nothing | LastSeen::Held(_) | LastSeen::Released(_) => {}
        }
        self.advance(key);
    }

    /// Answers the requests that have taken too long.
    fn end_requests(&mut self, key: &Arc<[u8]>) {
        let now = self.now;
        let entry = self.entries.get_mut(key).expect("what is due is known");
        let flying = match entry.phase {
            Phase::Flying(arrival) => arrival,
            Phase::Idle | Phase::Ready(_) => None,
        };
        let pending = std::mem::take(&mut entry.pending).into_iter();
        let (over, rest): (Vec<Pending>, _) = pending.partition(|one| one.limit <= now);
        entry.pending = rest.into();
        for one in over {
            let is_open = !one.attempts.is_empty() || flying == Some(one.arrival);
            if let Work::Client(ticket, _) = one.work
                && !one.cancelled
            {
                let what = self.trouble.clone();
                self.counters.uncertain += u64::from(is_open);
                let error = if is_open {
                    LockError::Uncertain { what }
                } else {
                    LockError::Unavailable { what }
                };
                self.answer(ticket, Err(error));
            }
        }
    }

    /// Notes when a key is due next and whether it is held, or forgets it.
    pub(super) fn arm(&mut self, key: &Arc<[u8]>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let next = entry.next_due();
        if next != entry.due {
            if let Some(at) = entry.due {
                self.due.remove(&(at, Arc::clone(key)));
            }
            if let Some(at) = next {
                self.due.insert((at, Arc::clone(key)));
            }
            entry.due = next;
        }
        let is_held = entry.is_held() && !entry.is_forgettable();
        match (entry.is_counted, is_held) {
            (false, true) => self.held += 1,
            (true, false) => self.held -= 1,
            (true, true) | (false, false) => {}
        }
        entry.is_counted = is_held;
        if entry.is_forgettable() {
            if let Some(at) = entry.due {
                self.due.remove(&(at, Arc::clone(key)));
            }
            self.entries.remove(key);
        }
    }

    /// Returns what is known of a record that this proxy has put; `sent` is a moment before that.
    pub(super) fn own(&self, id: RecordWriteId, lease: LockLease, sent: MonotonicTime) -> Sighting {
        self.sighting(id, lease, sent, Duration::ZERO)
    }

    /// Returns what is known of a record that another proxy has put, and that is seen for the first
    /// time.
    pub(super) fn first_sight(&self, id: RecordWriteId, lease: LockLease) -> Sighting {
        self.sighting(id, lease, self.now, COURTESY)
    }

    fn sighting(
        &self,
        id: RecordWriteId,
        lease: LockLease,
        from: MonotonicTime,
        courtesy: Duration,
    ) -> Sighting {
        let LockLease::For(time) = lease else {
            return Sighting {
                id,
                ends: None,
                look_at: None,
            };
        };
        let ends = from + (by_every_clock(time) + self.options.margin);
        Sighting {
            id,
            ends: Some(ends),
            look_at: Some(ends + courtesy),
        }
    }
}

/// Returns the write with which a request may begin if there is no record, or `None` if it would not
/// write.
fn creation(one: &Pending, limits: &crate::LockLimits) -> Option<Write> {
    let Work::Client(_, wanted) = &one.work else {
        return None;
    };
    if !one.attempts.is_empty() || one.cancelled {
        return None;
    }
    match decide(&wanted.as_request(), None, limits) {
        Decision::Set(setting) => Some(Write {
            arrival: one.arrival,
            over: Over::Absent,
            what: What::Set(setting),
        }),
        Decision::Answer(_) | Decision::Wait(_) | Decision::Remove(_) => None,
    }
}
