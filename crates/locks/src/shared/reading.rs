//! Results of reads: the new knowledge about a key, the requests that it answers, and the request
//! for which a write is needed.

use std::sync::Arc;

use base::ids::Version;
use base::partition::OwnedReply;
use base::planted::{self, Bug};

use super::Shared;
use super::entry::{LastSeen, Over, Pending, Phase, Plan, Sighting, What, Work, Write};
use super::era::TOMBSTONE;
use crate::decision::{Decision, decide};
use crate::error::LockError;
use crate::lock::{Answer, Lock, LockLease, OwnedRequest};
use crate::record::{LockRecord, RecordState, RecordWriteId};

/// A record as it was read.
struct Read {
    record: Option<LockRecord>,
    version: Version,
}

/// The next step for a request.
enum Next {
    Stays,
    Ends,
    Writes(Write),
}

impl Shared {
    /// Handles the result of reading a record, for the requests up to the arrival number `before`.
    pub(super) fn read(&mut self, key: &Arc<[u8]>, replies: &[OwnedReply], before: u64) {
        let entry = self.entries.get_mut(key).expect("it was under way");
        entry.phase = Phase::Idle;
        let read = match replies {
            [OwnedReply::Nil, OwnedReply::Version(version)] => Some(Read {
                record: None,
                version: *version,
            }),
            [OwnedReply::Bytes(bytes), OwnedReply::Version(version)] => LockRecord::decode(bytes)
                .map(|record| Read {
                    record: Some(record),
                    version: *version,
                }),
            _ => None,
        };
        match read {
            Some(read) => {
                self.note(key, &read);
                self.serve(key, &read, before);
            }
            None => {
                self.entries.get_mut(key).expect("it was read").known = LastSeen::Nothing;
                self.refuse(key, before, &LockError::Damaged);
            }
        }
        self.advance(key);
    }

    /// Stores what was read. The lease of the same write goes on being measured; that of another
    /// write begins now.
    fn note(&mut self, key: &Arc<[u8]>, read: &Read) {
        let known = match &read.record {
            None => LastSeen::Nothing,
            Some(LockRecord {
                state: RecordState::Released,
                ..
            }) => LastSeen::Released(self.now + TOMBSTONE),
            Some(LockRecord {
                id,
                state: RecordState::Held { lease, .. },
                ..
            }) => LastSeen::Held(self.sight(key, *id, *lease)),
        };
        self.entries.get_mut(key).expect("it was read").known = known;
    }

    fn sight(&mut self, key: &Arc<[u8]>, id: RecordWriteId, lease: LockLease) -> Sighting {
        let entry = self.entries.get_mut(key).expect("it was read");
        if let LastSeen::Held(sighting) = std::mem::replace(&mut entry.known, LastSeen::Nothing)
            && sighting.id == id
        {
            return sighting;
        }
        entry.patience = self.options.poll.0;
        // A write of this proxy whose outcome was unknown is measured from before it was sent.
        let attempts = entry.pending.iter().flat_map(|one| &one.attempts);
        match attempts.into_iter().find(|attempt| attempt.id == id) {
            Some(attempt) => {
                let sent = attempt.sent;
                self.own(id, lease, sent)
            }
            None => self.first_sight(id, lease),
        }
    }

    /// Answers, in their order, the requests up to `before` that need no write. Plans the write for
    /// the first one that needs one.
    fn serve(&mut self, key: &Arc<[u8]>, read: &Read, before: u64) {
        let mut at = 0;
        let entry = self.entries.get_mut(key).expect("it was read");
        // This keeps requests that arrive meanwhile, to undo something, from sending the key.
        entry.phase = Phase::Flying(None);
        let waiters = entry.waiters();
        let mut plan = Phase::Idle;
        let mut pending = std::mem::take(&mut entry.pending);
        while let Some(one) = pending.get_mut(at) {
            if one.arrival > before {
                break;
            }
            match self.next_for(key, one, read, waiters) {
                Next::Stays => at += 1,
                Next::Ends => {
                    pending.remove(at);
                }
                Next::Writes(write) => {
                    plan = Phase::Ready(Plan::Write(write));
                    self.ready.push_back(Arc::clone(key));
                    break;
                }
            }
        }
        let entry = self.entries.get_mut(key).expect("it was read");
        pending.append(&mut entry.pending);
        entry.phase = plan;
        entry.pending = pending;
        self.plan_poll(key);
    }

    /// Sets when the partition is asked again for the requests that wait.
    fn plan_poll(&mut self, key: &Arc<[u8]>) {
        let now = self.now;
        // The jitter keeps proxies that wait for the same key from asking in step for long.
        let jitter = (self.incarnation ^ self.arrivals.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32;
        let entry = self.entries.get_mut(key).expect("it was read");
        if entry.waiters() == 0 {
            entry.patience = self.options.poll.0;
            return;
        }
        let wait = entry.patience
            + entry
                .patience
                .mul_f64(jitter as f64 / u32::MAX as f64 / 2.0);
        entry.patience = (entry.patience * 2).min(self.options.poll.1);
        let ends = match &entry.known {
            LastSeen::Held(sighting) => sighting.ends.filter(|ends| *ends > now),
            LastSeen::Nothing | LastSeen::Released(_) => None,
        };
        let at = now + wait;
        entry.poll_at = Some(ends.map_or(at, |ends| ends.min(at)));
    }

    /// Returns the next step for a request, given what was read.
    fn next_for(
        &mut self,
        key: &Arc<[u8]>,
        one: &mut Pending,
        read: &Read,
        waiters: usize,
    ) -> Next {
        if let Some(next) = self.resolve(key, one, read) {
            return next;
        }
        let held = self.lock(key, read, waiters);
        let id = read.record.as_ref().map(|record| record.id);
        let (ticket, wanted) = match &one.work {
            Work::Client(..) if one.cancelled => return Next::Ends,
            Work::Client(ticket, wanted) => (*ticket, wanted),
            Work::Undo(of) if id == Some(*of) && held.is_some() => {
                return replace(one, read, What::Release(None));
            }
            Work::Expire if held.is_none() && is_held(read) => {
                return replace(one, read, What::Release(None));
            }
            Work::Undo(_) | Work::Expire => return Next::Ends,
        };
        match decide(&wanted.as_request(), held, &self.options.limits) {
            Decision::Answer(outcome) => {
                self.answer(ticket, outcome);
                Next::Ends
            }
            Decision::Wait(lock) if one.until <= self.now => {
                self.answer(ticket, Ok(Answer::Held(lock)));
                Next::Ends
            }
            Decision::Wait(_) => {
                one.waits = true;
                Next::Stays
            }
            Decision::Remove(answer) => replace(one, read, What::Release(Some(answer))),
            Decision::Set(setting) => {
                if setting.token.is_none() {
                    self.count_reuse(read);
                }
                replace(one, read, What::Set(setting))
            }
        }
    }

    fn count_reuse(&mut self, read: &Read) {
        let Some(record) = &read.record else {
            return;
        };
        if record.state == RecordState::Released {
            self.counters.tombstones += 1;
        } else {
            self.counters.lapsed += 1;
            self.counters.takeovers += u64::from(record.id.incarnation != self.incarnation);
        }
    }

    /// Returns the next step for a request whose earlier writes have an unknown outcome, if what was
    /// read decides it.
    fn resolve(&mut self, key: &Arc<[u8]>, one: &mut Pending, read: &Read) -> Option<Next> {
        let last = one.attempts.last()?;
        let id = read.record.as_ref().map(|record| record.id);
        if let Some(attempt) = one.attempts.iter().find(|attempt| Some(attempt.id) == id) {
            self.counters.found += 1;
            let attempt = attempt.clone();
            self.answer_written(key, one, attempt);
            return Some(Next::Ends);
        }
        let is_unchanged = last.over.version() == Some(read.version);
        let Work::Client(ticket, wanted) = &one.work else {
            return None;
        };
        let is_repeatable = matches!(
            wanted,
            OwnedRequest::Acquire { .. } | OwnedRequest::Renew { .. }
        );
        if is_unchanged || is_repeatable || one.cancelled {
            self.counters.repeated += 1;
            return None;
        }
        // The write may have taken effect, and other writes may have followed.
        let what = self.trouble.clone();
        self.counters.uncertain += 1;
        self.answer(*ticket, Err(LockError::Uncertain { what }));
        Some(Next::Ends)
    }

    /// Returns the lock of a record, unless its lease has ended by every clock.
    fn lock(&self, key: &[u8], read: &Read, waiters: usize) -> Option<Lock> {
        let record = read.record.as_ref()?;
        let RecordState::Held { value, .. } = &record.state else {
            return None;
        };
        let entry = self.entries.get(key)?;
        let LastSeen::Held(sighting) = &entry.known else {
            return None;
        };
        if sighting.has_ended(self.now) || self.seems_ended(record) {
            return None;
        }
        Some(Lock {
            waiters,
            ..sighting.lock(value, record, self.options.margin, self.now)
        })
    }

    /// Returns `true` if another proxy's lease has ended by the wall clock, with the planted bug.
    fn seems_ended(&self, record: &LockRecord) -> bool {
        if !planted::is(Bug::TrustedWallClock) {
            return false;
        }
        match record.state {
            RecordState::Held {
                lease: LockLease::For(time),
                ..
            } if record.id.incarnation != self.incarnation => {
                u128::from(record.token.ms()) + time.as_millis() <= u128::from(self.wall_ms)
            }
            _ => false,
        }
    }
}

impl Over {
    fn version(self) -> Option<Version> {
        match self {
            Over::Absent => None,
            Over::Version(version, _) => Some(version),
        }
    }
}

fn is_held(read: &Read) -> bool {
    let state = read.record.as_ref().map(|record| &record.state);
    matches!(state, Some(RecordState::Held { .. }))
}

/// Returns the write for a request over what was read.
fn replace(one: &Pending, read: &Read, what: What) -> Next {
    let over = match &read.record {
        None => Over::Absent,
        Some(record) => Over::Version(read.version, record.token),
    };
    Next::Writes(Write {
        arrival: one.arrival,
        over,
        what,
    })
}
