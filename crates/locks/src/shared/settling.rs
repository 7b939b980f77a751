//! Results: what is known after a transaction, and who is answered by it.

use std::sync::Arc;

use base::ids::Version;
use base::partition::OwnedReply;
use base::transaction::Abort;

use super::Shared;
use super::entry::{Attempt, Known, Over, Pending, Phase, Plan, Sighting, What, Work, Write};
use super::era::TOMBSTONE_MS;
use super::flight::{Flight, Freight, Item, Written};
use crate::decision::{Decision, decide};
use crate::error::LockError;
use crate::lock::{Answer, Lease, Lock, Wanted};
use crate::moment::Moment;
use crate::record::{Record, State, WriteId};

/// What became of a transaction that did not commit.
#[derive(Clone, Debug)]
enum Failure {
    /// Nothing has happened.
    Nothing(String),
    /// This operation found something else than was expected. Nothing has happened.
    Precondition(usize),
    /// Nobody knows.
    Unknown(String),
    /// Nothing has happened, and it will not.
    Refused(String),
}

impl Failure {
    fn of(abort: &Abort) -> Failure {
        let what = abort.to_string();
        match abort {
            Abort::Precondition { op } => Failure::Precondition(*op),
            Abort::Conflict { .. }
            | Abort::Held { .. }
            | Abort::Overtaken { .. }
            | Abort::Refused
            | Abort::Elsewhere { .. }
            | Abort::Unavailable { .. } => Failure::Nothing(what),
            Abort::Unknown { .. } | Abort::Forgotten | Abort::ReadOnly { .. } => {
                Failure::Unknown(what)
            }
            Abort::Stale { .. }
            | Abort::Unsupported { .. }
            | Abort::TooLarge { .. }
            | Abort::Failed(_)
            | Abort::Cancelled => Failure::Refused(what),
        }
    }
}

/// A record as it was read.
struct Read {
    record: Option<Record>,
    version: Version,
}

impl Shared {
    /// Gives up the transactions that have taken too long: nobody knows what became of them.
    pub(super) fn give_up_flights(&mut self) {
        while let Some(first) = self.flights.first_entry()
            && first.get().sent + self.options.transaction_timeout <= self.now
        {
            let flight = first.remove();
            self.fail(flight, Failure::Unknown("no answer in time".to_owned()));
        }
    }

    pub(super) fn settle(&mut self, flight: Flight, result: Result<Vec<OwnedReply>, Abort>) {
        let replies = match result {
            Ok(replies) => replies,
            Err(abort) => return self.fail(flight, Failure::of(&abort)),
        };
        self.pause = super::PAUSE.0;
        let sent = flight.sent;
        match flight.freight {
            Freight::Era(number) => {
                self.era.is_asked = false;
                if let [_, OwnedReply::Deadline(Some(deadline))] = replies[..] {
                    self.era.opened(number, deadline, sent);
                }
            }
            Freight::Listing(listing) => self.listed(&listing, sent, &replies),
            Freight::Sweep => self.swept(Some(&replies)),
            Freight::Keys { needs_era, items } => {
                let mut rest = &replies[usize::from(needs_era)..];
                for item in items {
                    let (own, others) = rest.split_at(item.replies());
                    rest = others;
                    self.settle_item(item, sent, own);
                }
            }
        }
    }

    fn settle_item(&mut self, item: Item, sent: Moment, replies: &[OwnedReply]) {
        let Some(written) = item.writes else {
            return self.read(&item.key, replies, item.before);
        };
        let (put, seen) = match written.over {
            Over::Absent => (&replies[0], &replies[1..]),
            Over::Version(..) => (&replies[1], &replies[2..]),
        };
        match put {
            OwnedReply::Ok => self.written(&item.key, written, sent),
            OwnedReply::Error(error) => {
                let what = error.to_string();
                self.entries
                    .get_mut(&item.key)
                    .expect("it was under way")
                    .phase = Phase::Idle;
                self.refuse(&item.key, item.before, &LockError::Refused { what });
                self.advance(&item.key);
            }
            _ => self.read(&item.key, seen, item.before),
        }
    }

    /// A write has taken effect.
    fn written(&mut self, key: &Arc<[u8]>, written: Written, sent: Moment) {
        let now = self.now;
        let known = match written.lease {
            Some(lease) => Known::Held(self.own(written.id, lease, sent)),
            None => Known::Released(now + millis(TOMBSTONE_MS)),
        };
        let entry = self.entries.get_mut(key).expect("it was under way");
        entry.known = known;
        entry.phase = Phase::Idle;
        if written.lease.is_none() {
            // Whoever waits may have it.
            entry.poll_at = Some(now);
            entry.patience = self.options.poll.0;
        }
        if let Some(at) = entry.position(written.arrival) {
            let one = entry.pending.remove(at).expect("it was found");
            let attempt = written.attempt(sent);
            self.answer_written(key, &one, attempt);
        }
        self.advance(key);
    }

    /// Answers a request whose write has taken effect.
    fn answer_written(&mut self, key: &Arc<[u8]>, one: &Pending, attempt: Attempt) {
        let is_grant = matches!(attempt.answer, Some(Answer::Granted { .. }));
        self.counters.grants += u64::from(is_grant);
        self.counters.waited += u64::from(is_grant && one.waits);
        match (&one.work, attempt.answer) {
            (Work::Client(_, Wanted::Acquire { .. }), _) if one.cancelled && attempt.is_new => {
                self.ask(key, Work::Undo(attempt.id), self.now);
            }
            (Work::Client(ticket, _), Some(answer)) if !one.cancelled => {
                let answer = match answer {
                    Answer::Granted { token, lease } => Answer::Granted {
                        token,
                        lease: lease.told(one.came, attempt.sent),
                    },
                    other => other,
                };
                self.answer(*ticket, Ok(answer));
            }
            (Work::Client(..), _) => {}
            (Work::Expire, _) => self.counters.expired += 1,
            (Work::Undo(_), _) => self.counters.undone += 1,
        }
    }

    /// A record was read, for the requests that came before `before`.
    fn read(&mut self, key: &Arc<[u8]>, replies: &[OwnedReply], before: u64) {
        let entry = self.entries.get_mut(key).expect("it was under way");
        entry.phase = Phase::Idle;
        let read = match replies {
            [OwnedReply::Nil, OwnedReply::Version(version)] => Some(Read {
                record: None,
                version: *version,
            }),
            [OwnedReply::Bytes(bytes), OwnedReply::Version(version)] => {
                Record::decode(bytes).map(|record| Read {
                    record: Some(record),
                    version: *version,
                })
            }
            _ => None,
        };
        match read {
            Some(read) => {
                self.note(key, &read);
                self.serve(key, &read, before);
            }
            None => {
                self.entries.get_mut(key).expect("it was read").known = Known::Nothing;
                self.refuse(key, before, &LockError::Damaged);
            }
        }
        self.advance(key);
    }

    /// Keeps what was read. The same write goes on being measured; another one begins to be.
    fn note(&mut self, key: &Arc<[u8]>, read: &Read) {
        let known = match &read.record {
            None => Known::Nothing,
            Some(Record {
                state: State::Released,
                ..
            }) => Known::Released(self.now + millis(TOMBSTONE_MS)),
            Some(Record {
                id,
                state: State::Held { lease, .. },
                ..
            }) => Known::Held(self.sight(key, *id, *lease)),
        };
        self.entries.get_mut(key).expect("it was read").known = known;
    }

    fn sight(&mut self, key: &Arc<[u8]>, id: WriteId, lease: Lease) -> Sighting {
        let entry = self.entries.get_mut(key).expect("it was read");
        if let Known::Held(sighting) = std::mem::replace(&mut entry.known, Known::Nothing)
            && sighting.id == id
        {
            return sighting;
        }
        entry.patience = self.options.poll.0;
        // A write of ours of which nobody knew has been measured from before it was sent.
        let attempts = entry.pending.iter().flat_map(|one| &one.attempts);
        match attempts.into_iter().find(|attempt| attempt.id == id) {
            Some(attempt) => {
                let sent = attempt.sent;
                self.own(id, lease, sent)
            }
            None => self.first_sight(id, lease),
        }
    }

    /// Answers, in their order, the requests that came before `before` and that nothing has to be
    /// written for. For the first other one it plans the write.
    fn serve(&mut self, key: &Arc<[u8]>, read: &Read, before: u64) {
        let mut at = 0;
        let entry = self.entries.get_mut(key).expect("it was read");
        // What comes meanwhile, to undo something, sends nothing on its way.
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

    /// When the partition is asked again for those who wait.
    fn plan_poll(&mut self, key: &Arc<[u8]>) {
        let now = self.now;
        // Proxies that wait for the same key do not ask in step for long.
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
            Known::Held(sighting) => sighting.ends.filter(|ends| *ends > now),
            Known::Nothing | Known::Released(_) => None,
        };
        let at = now + wait;
        entry.poll_at = Some(ends.map_or(at, |ends| ends.min(at)));
    }

    /// What becomes of a request, given what was read.
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
        if record.state == State::Released {
            self.counters.tombstones += 1;
        } else {
            self.counters.lapsed += 1;
            self.counters.takeovers += u64::from(record.id.incarnation != self.incarnation);
        }
    }

    /// What became of the request's writes of which nobody knew, as far as that decides.
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
        let is_repeatable = matches!(wanted, Wanted::Acquire { .. } | Wanted::Renew { .. });
        if is_unchanged || is_repeatable || one.cancelled {
            self.counters.repeated += 1;
            return None;
        }
        // It may have taken effect, and others may have come since.
        let what = self.trouble.clone();
        self.counters.uncertain += 1;
        self.answer(*ticket, Err(LockError::Uncertain { what }));
        Some(Next::Ends)
    }

    /// The lock that a record tells of, unless its lease has ended for everybody.
    fn lock(&self, key: &[u8], read: &Read, waiters: usize) -> Option<Lock> {
        let record = read.record.as_ref()?;
        let State::Held { value, .. } = &record.state else {
            return None;
        };
        let entry = self.entries.get(key)?;
        let Known::Held(sighting) = &entry.known else {
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

    #[cfg(not(feature = "planted-trusted-wall-clock"))]
    fn seems_ended(&self, _: &Record) -> bool {
        false
    }

    #[cfg(feature = "planted-trusted-wall-clock")]
    fn seems_ended(&self, record: &Record) -> bool {
        match record.state {
            State::Held {
                lease: Lease::For(time),
                ..
            } if record.id.incarnation != self.incarnation => {
                u128::from(record.token.ms()) + time.as_millis() <= u128::from(self.wall_ms)
            }
            _ => false,
        }
    }

    /// Answers all requests that came before `before` with an error. What was measured stays.
    fn refuse(&mut self, key: &Arc<[u8]>, before: u64, error: &LockError) {
        let entry = self.entries.get_mut(key).expect("it was under way");
        let pending = std::mem::take(&mut entry.pending).into_iter();
        let (over, rest): (Vec<Pending>, _) = pending.partition(|one| one.arrival <= before);
        entry.pending = rest.into();
        for one in over {
            if let Work::Client(ticket, _) = one.work
                && !one.cancelled
            {
                self.answer(ticket, Err(error.clone()));
            }
        }
    }

    /// A transaction has not committed, or nobody knows.
    fn fail(&mut self, flight: Flight, failure: Failure) {
        match &failure {
            Failure::Nothing(what) | Failure::Unknown(what) => {
                self.trouble.clone_from(what);
                self.pause_until = self.now + self.pause;
                self.pause = (self.pause * 2).min(super::PAUSE.1);
            }
            Failure::Precondition(_) | Failure::Refused(_) => {}
        }
        let sent = flight.sent;
        match flight.freight {
            Freight::Era(_) => self.era.is_asked = false,
            Freight::Sweep => self.swept(None),
            Freight::Listing(listing) => match failure {
                Failure::Refused(what) => {
                    self.answer(listing.ticket, Err(LockError::Refused { what }));
                }
                _ => self.listings.push_back(listing),
            },
            Freight::Keys { needs_era, items } => {
                if let Failure::Precondition(op) = failure {
                    if needs_era && op == 0 {
                        self.counters.eras_lost += 1;
                        self.era.close();
                    } else {
                        self.counters.overtaken += 1;
                    }
                }
                for item in items {
                    self.fail_item(item, sent, &failure);
                }
            }
        }
    }

    fn fail_item(&mut self, item: Item, sent: Moment, failure: &Failure) {
        let entry = self.entries.get_mut(&item.key).expect("it was under way");
        entry.phase = Phase::Idle;
        // Those who wait are looked after again, too.
        entry.poll_at = Some(self.now);
        if let (Failure::Unknown(_), Some(written)) = (failure, item.writes)
            && let Some(at) = entry.position(written.arrival)
        {
            entry.pending[at].attempts.push(written.attempt(sent));
        }
        if let Failure::Refused(what) = failure {
            let what = what.clone();
            self.refuse(&item.key, item.before, &LockError::Refused { what });
        }
        self.advance(&item.key);
    }
}

impl Written {
    fn attempt(self, sent: Moment) -> Attempt {
        Attempt {
            id: self.id,
            over: self.over,
            is_new: self.is_new,
            sent,
            answer: self.answer,
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

/// What becomes of a request.
enum Next {
    Stays,
    Ends,
    Writes(Write),
}

fn is_held(read: &Read) -> bool {
    let state = read.record.as_ref().map(|record| &record.state);
    matches!(state, Some(State::Held { .. }))
}

/// The write for a request over what was read.
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

fn millis(ms: i64) -> std::time::Duration {
    std::time::Duration::from_millis(ms.unsigned_abs())
}
