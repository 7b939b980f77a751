//! A part of the table: some keys, their holders and the requests that wait.
//!
//! 1. A key has an entry if and only if it is held or a request waits for it.
//! 2. A request waits only while another owner holds the key.
//! 3. `due` has one entry for each lock, no later than its end, and one for the end of each wait. If
//!    a lock was prolonged, its entry is put off when it comes up, so that prolonging costs nothing.
//! 4. Time does not go back: a call with an earlier moment is served at the latest one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::quality::RandomState;

use super::command::AuthorityCommand;
use super::gate::{GrantGate, ParkedRequest, WaitSpan};
use crate::decision::{Decision, Setting, decide};
use crate::error::LockError;
use crate::limits::LockLimits;
use crate::lock::{Answer, FencingToken, Lock, LockLease, OwnedRequest, Request, Ticket};
use crate::moment::{MonotonicTime, by_every_clock, by_one_clock};

/// What a call needs besides the shard.
pub(super) struct ShardCall<'a> {
    pub(super) now: MonotonicTime,
    pub(super) gate: &'a GrantGate,
    pub(super) limits: &'a LockLimits,
    /// Locks of all shards.
    pub(super) held: &'a AtomicUsize,
    /// Bytes of the keys and values of all locks.
    pub(super) bytes: &'a AtomicUsize,
    /// Requests that wait in all shards, as of the last calls.
    pub(super) waiting: &'a AtomicUsize,
    /// Locks that have ended with their lease.
    pub(super) expired: &'a AtomicU64,
    pub(super) out: &'a mut Vec<AuthorityCommand>,
}

/// Result of serving a request.
pub(super) enum Served {
    Now(Result<Answer, LockError>),
    /// The request waits for others.
    Waits,
    /// The request has to wait until a ledger allows this lease, or has tokens.
    Parks(Duration),
}

#[derive(Default)]
pub(super) struct Shard {
    entries: HashMap<Arc<[u8]>, Entry, RandomState>,
    /// What ends, and when: the wait of a ticket, or the lock of the key if there is no ticket. The
    /// number distinguishes entries of one moment without a look at their keys.
    due: BTreeMap<ExpiryKey, (Arc<[u8]>, Option<Ticket>)>,
    dues: u64,
    latest: MonotonicTime,
}

type ExpiryKey = (MonotonicTime, u64);

#[derive(Default)]
struct Entry {
    held: Option<HeldLock>,
    waiters: VecDeque<Waiter>,
}

struct HeldLock {
    value: Arc<[u8]>,
    token: FencingToken,
    /// At this moment the lease is over by every clock.
    ends: MonotonicTime,
    due: ExpiryKey,
}

struct Waiter {
    ticket: Ticket,
    owner: Arc<[u8]>,
    lease: Duration,
    span: WaitSpan,
    due: ExpiryKey,
}

impl Entry {
    /// Returns the bytes that the lock of this key counts for.
    fn bytes(&self, key: &[u8]) -> usize {
        let held = self.held.as_ref();
        held.map_or(0, |held| key.len() + held.value.len())
    }

    fn lock(&self, now: MonotonicTime) -> Option<Lock> {
        let held = self.held.as_ref()?;
        Some(Lock {
            value: Arc::clone(&held.value),
            token: held.token,
            left: LockLease::For(by_one_clock(held.ends.since(now))),
            waiters: self.waiters.len(),
        })
    }
}

impl Shard {
    /// Returns when the next lease or wait ends.
    pub(super) fn next_due(&self) -> Option<MonotonicTime> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns how many requests wait here: by invariant 3, the entries of `due` that are not locks.
    pub(super) fn waiters(&self) -> usize {
        self.due.len() - self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the moment at which a call with `now` is served.
    fn tick(&mut self, now: MonotonicTime) -> MonotonicTime {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Ends the leases and waits whose time has come.
    pub(super) fn expire(&mut self, turn: &mut ShardCall<'_>) {
        turn.now = self.tick(turn.now);
        while self.next_due().is_some_and(|at| at <= turn.now) {
            let first = self.due.pop_first().expect("it has just been looked at");
            let (_, (key, ticket)) = first;
            match ticket {
                None => self.end_lock(&key, turn),
                Some(ticket) => self.end_wait(&key, ticket, turn),
            }
        }
    }

    /// Serves a request.
    pub(super) fn serve(
        &mut self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        span: WaitSpan,
        turn: &mut ShardCall<'_>,
    ) -> Served {
        turn.now = self.tick(turn.now);
        // Under the shard's lock: a thread that stops the table looks at every shard after it said
        // so.
        if turn.gate.is_stopping() {
            return Served::Now(Err(LockError::Stopping));
        }
        self.vacate_if_ended(key, turn);
        let lock = self.entries.get(key).and_then(|entry| entry.lock(turn.now));
        match decide(request, lock, turn.limits) {
            Decision::Answer(outcome) => Served::Now(outcome),
            Decision::Wait(lock) if span.until <= turn.now => Served::Now(Ok(Answer::Held(lock))),
            Decision::Wait(_) => self.wait(ticket, key, request, span, turn),
            Decision::Set(setting) => self.set(key, &setting, span, turn),
            Decision::Remove(answer) => {
                self.vacate(key, turn);
                Served::Now(Ok(answer))
            }
        }
    }

    fn vacate_if_ended(&mut self, key: &[u8], turn: &mut ShardCall<'_>) {
        let held = self.entries.get(key).and_then(|entry| entry.held.as_ref());
        if held.is_some_and(|held| held.ends <= turn.now) {
            turn.expired.fetch_add(1, Ordering::Relaxed);
            self.vacate(key, turn);
        }
    }

    /// Handles the entry of `due` for a lock. The lock may have been prolonged since.
    fn end_lock(&mut self, key: &Arc<[u8]>, turn: &mut ShardCall<'_>) {
        let entry = self.entries.get_mut(key).expect("what is due is held");
        let held = entry.held.as_mut().expect("what is due is held");
        // Waits that end before the lock come first, even if both have ended.
        if held.ends > held.due.0 {
            self.dues += 1;
            held.due = (held.ends, self.dues);
            self.due.insert(held.due, (Arc::clone(key), None));
        } else {
            turn.expired.fetch_add(1, Ordering::Relaxed);
            self.vacate(key, turn);
        }
    }

    fn wait(
        &mut self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        span: WaitSpan,
        turn: &ShardCall<'_>,
    ) -> Served {
        let Request::Acquire { owner, lease, .. } = *request else {
            unreachable!("nothing else waits")
        };
        let LockLease::For(lease) = lease else {
            return Served::Now(Err(LockError::NeedsLease));
        };
        if !turn.gate.admits(lease, span.until) {
            return Served::Parks(lease);
        }
        let known = self.entries.get_key_value(key).expect("it is held");
        let key = Arc::clone(known.0);
        let entry = self.entries.get_mut(&key).expect("as above");
        let limit = turn.limits.waiters;
        if entry.waiters.len() >= limit {
            return Served::Now(Err(LockError::TooManyWaiters { limit }));
        }
        let limit = turn.limits.all_waiters;
        if turn.waiting.load(Ordering::Relaxed) >= limit {
            return Served::Now(Err(LockError::TooManyWaiters { limit }));
        }
        entry.waiters.push_back(Waiter {
            ticket,
            owner: owner.into(),
            lease,
            span,
            due: (span.until, self.dues + 1),
        });
        self.dues += 1;
        self.due
            .insert((span.until, self.dues), (key, Some(ticket)));
        Served::Waits
    }

    fn set(
        &mut self,
        key: &[u8],
        setting: &Setting,
        span: WaitSpan,
        turn: &mut ShardCall<'_>,
    ) -> Served {
        let LockLease::For(lease) = setting.lease else {
            return Served::Now(Err(LockError::NeedsLease));
        };
        if !turn.gate.admits(lease, turn.now) {
            return Served::Parks(lease);
        }
        let known = self.entries.get_key_value(key);
        let known = known.map(|(key, _)| Arc::clone(key));
        let limit = turn.limits.locks;
        if known.is_none() && turn.held.load(Ordering::Relaxed) >= limit {
            return Served::Now(Err(LockError::TooManyLocks { limit }));
        }
        let before = self.entries.get(key).map_or(0, |entry| entry.bytes(key));
        let more = (key.len() + setting.value.len()).saturating_sub(before);
        if more > 0 && turn.bytes.load(Ordering::Relaxed) + more > turn.limits.bytes {
            let limit = turn.held.load(Ordering::Relaxed);
            return Served::Now(Err(LockError::TooManyLocks { limit }));
        }
        let drawn = setting
            .token
            .or_else(|| turn.gate.token(turn.now, turn.out));
        let Some(token) = drawn else {
            return Served::Parks(lease);
        };
        if known.is_none() {
            turn.held.fetch_add(1, Ordering::Relaxed);
        }
        let value = Arc::clone(&setting.value);
        let key = known.unwrap_or_else(|| key.into());
        self.hold(key, value, token, lease, turn);
        let told = setting.lease.told(span.came, turn.now);
        Served::Now(Ok(setting.answer(token, told)))
    }

    fn hold(
        &mut self,
        key: Arc<[u8]>,
        value: Arc<[u8]>,
        token: FencingToken,
        lease: Duration,
        turn: &ShardCall<'_>,
    ) {
        let ends = turn.now + by_every_clock(lease);
        let entry = self.entries.entry(Arc::clone(&key)).or_default();
        turn.bytes.fetch_sub(entry.bytes(&key), Ordering::Relaxed);
        turn.bytes
            .fetch_add(key.len() + value.len(), Ordering::Relaxed);
        let before = entry.held.as_ref().map(|held| held.due);
        let due = before.filter(|(at, _)| *at <= ends).unwrap_or_else(|| {
            if let Some(before) = before {
                self.due.remove(&before);
            }
            self.dues += 1;
            self.due.insert((ends, self.dues), (key, None));
            (ends, self.dues)
        });
        entry.held = Some(HeldLock {
            value,
            token,
            ends,
            due,
        });
    }

    /// Frees a key whose lock has ended, and grants it to the next request.
    fn vacate(&mut self, key: &[u8], turn: &mut ShardCall<'_>) {
        let (key, mut entry) = self.entries.remove_entry(key).expect("it is held");
        self.dismiss_late(&mut entry, turn);
        turn.bytes.fetch_sub(entry.bytes(&key), Ordering::Relaxed);
        let held = entry.held.take().expect("it is held");
        self.due.remove(&held.due);
        turn.held.fetch_sub(1, Ordering::Relaxed);
        while let Some(waiter) = entry.waiters.pop_front() {
            self.due.remove(&waiter.due);
            if turn.gate.is_stopping() {
                let (ticket, outcome) = (waiter.ticket, Err(LockError::Stopping));
                turn.out.push(AuthorityCommand::Answer { ticket, outcome });
                continue;
            }
            let Some(token) = turn.gate.token(turn.now, turn.out) else {
                self.park(&key, waiter, turn);
                continue;
            };
            turn.held.fetch_add(1, Ordering::Relaxed);
            self.grant(key, entry.waiters, waiter, token, turn);
            return;
        }
    }

    /// Answers requests whose wait has ended, though no call noticed in time: the process stood
    /// still.
    fn dismiss_late(&mut self, entry: &mut Entry, turn: &mut ShardCall<'_>) {
        let is_late = |waiter: &Waiter| waiter.span.until <= turn.now;
        if !entry.waiters.iter().any(is_late) {
            return;
        }
        let waiters = std::mem::take(&mut entry.waiters).into_iter();
        let (late, rest): (VecDeque<Waiter>, VecDeque<Waiter>) = waiters.partition(is_late);
        entry.waiters = rest;
        for waiter in late {
            self.due.remove(&waiter.due);
            let lock = entry.lock(turn.now).expect("it is held");
            turn.out.push(AuthorityCommand::Answer {
                ticket: waiter.ticket,
                outcome: Ok(Answer::Held(lock)),
            });
        }
    }

    /// Grants a free key to the first request, and to all others with the same owner.
    fn grant(
        &mut self,
        key: Arc<[u8]>,
        waiters: VecDeque<Waiter>,
        first: Waiter,
        token: FencingToken,
        turn: &mut ShardCall<'_>,
    ) {
        let is_same = |waiter: &Waiter| waiter.owner == first.owner;
        let (same, others): (VecDeque<Waiter>, _) = waiters.into_iter().partition(is_same);
        let mut longest = first.lease;
        for waiter in &same {
            self.due.remove(&waiter.due);
        }
        for waiter in std::iter::once(&first).chain(&same) {
            longest = longest.max(waiter.lease);
            let lease = LockLease::For(waiter.lease).told(waiter.span.came, turn.now);
            turn.out.push(AuthorityCommand::Answer {
                ticket: waiter.ticket,
                outcome: Ok(Answer::Granted { token, lease }),
            });
        }
        self.hold(Arc::clone(&key), first.owner, token, longest, turn);
        let entry = self.entries.get_mut(&key).expect("it is held now");
        entry.waiters = others;
    }

    fn park(&self, key: &[u8], waiter: Waiter, turn: &mut ShardCall<'_>) {
        let lease = waiter.lease;
        let parked = ParkedRequest {
            ticket: waiter.ticket,
            key: key.into(),
            wanted: OwnedRequest::Acquire {
                owner: waiter.owner,
                lease: LockLease::For(lease),
                wait: waiter.span.until.since(turn.now),
            },
            span: waiter.span,
        };
        turn.gate.park_in_any_case(parked, turn.now, turn.out);
    }

    /// Ends a wait whose entry of `due` has been removed.
    fn end_wait(&mut self, key: &[u8], ticket: Ticket, turn: &mut ShardCall<'_>) {
        if !self.remove_waiter(key, ticket) {
            return;
        }
        let lock = self.entries.get(key).and_then(|entry| entry.lock(turn.now));
        let outcome = Ok(Answer::Held(lock.expect("a holder exists for each wait")));
        turn.out.push(AuthorityCommand::Answer { ticket, outcome });
    }

    fn remove_waiter(&mut self, key: &[u8], ticket: Ticket) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let mut waiters = entry.waiters.iter();
        let Some(at) = waiters.position(|waiter| waiter.ticket == ticket) else {
            return false;
        };
        let waiter = entry.waiters.remove(at).expect("it was found");
        self.due.remove(&waiter.due);
        true
    }

    /// Forgets a request that waits. Returns `true` if it waited.
    pub(super) fn cancel(&mut self, key: &[u8], ticket: Ticket) -> bool {
        self.remove_waiter(key, ticket)
    }

    /// Ends all waits, because the table is being stopped.
    pub(super) fn dismiss(&mut self, out: &mut Vec<AuthorityCommand>) {
        for entry in self.entries.values_mut() {
            for waiter in entry.waiters.drain(..) {
                out.push(AuthorityCommand::Answer {
                    ticket: waiter.ticket,
                    outcome: Err(LockError::Stopping),
                });
            }
        }
        self.due.retain(|_, (_, ticket)| ticket.is_none());
    }

    /// Adds the locks whose keys begin with `prefix`.
    pub(super) fn list(
        &mut self,
        prefix: &[u8],
        now: MonotonicTime,
        into: &mut Vec<(Vec<u8>, Lock)>,
    ) {
        let now = self.tick(now);
        let of_prefix = |(key, _): &(&Arc<[u8]>, &Entry)| key.starts_with(prefix);
        let locks = self
            .entries
            .iter()
            .filter(of_prefix)
            .filter_map(|(key, entry)| {
                let running = entry.held.as_ref().is_some_and(|held| held.ends > now);
                let lock = entry.lock(now).filter(|_| running)?;
                Some((key.to_vec(), lock))
            });
        into.extend(locks);
    }

    /// Panics if an invariant does not hold.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        let mut ends = 0;
        for (key, entry) in &self.entries {
            let held = entry.held.as_ref().expect("invariants 1 and 2");
            assert_eq!(self.due[&held.due], (Arc::clone(key), None));
            assert!(held.due.0 <= held.ends);
            for waiter in &entry.waiters {
                let due = (Arc::clone(key), Some(waiter.ticket));
                assert_eq!(self.due[&waiter.due], due);
                assert_eq!(waiter.due.0, waiter.span.until);
            }
            ends += 1 + entry.waiters.len();
        }
        assert_eq!(self.due.len(), ends, "invariant 3");
    }
}
