//! What must be durable before a lock is granted: the token, and a bound on the lease.
//!
//! Threads share the gate. Tokens are drawn without a lock; a thread that asks for a ledger, or
//! parks a request until one is kept, takes one mutex. It may be taken with a shard locked, never
//! the other way round.
//!
//! 1. `next <= end`, and a ledger that reserves everything below `end` has been kept.
//! 2. No lease longer than `bound` is granted, and a ledger with `bound` has been kept. No lease
//!    that is longer than `least` and may still run, or may still be granted to a request that
//!    waits, ends after `long_until`; the bound is lowered to `least` when that has passed.
//! 3. One ledger is under way at a time, and each says at least what those before it said, except
//!    for leases of the life before once these have ended, and for longer leases that have ended.
//!
//! A thread that grants a long lease raises `long_until` before it reads the bound; a thread that
//! lowers the bound reads `long_until` after that. So one of them sees what the other has done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::planted::{self, Bug};
use parking_lot::Mutex;

use super::command::AuthorityCommand;
use super::ledger::Ledger;
use super::options::Options;
use crate::error::LockError;
use crate::lock::{FencingToken, OwnedRequest, Ticket};
use crate::moment::{MonotonicTime, by_every_clock};

/// When a request came, and how long it may wait for others.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitSpan {
    pub(super) came: MonotonicTime,
    pub(super) until: MonotonicTime,
}

/// A request that waits for a ledger.
pub(super) struct ParkedRequest {
    pub(super) ticket: Ticket,
    pub(super) key: Box<[u8]>,
    pub(super) wanted: OwnedRequest,
    pub(super) span: WaitSpan,
}

pub(super) struct GrantGate {
    next: AtomicU64,
    end: AtomicU64,
    bound_ms: AtomicU64,
    /// The bound in every ledger.
    least_ms: u64,
    /// The longest lease that a client may ask for.
    most_ms: u64,
    /// Long leases end before this time; see invariant 2. In microseconds.
    long_until_us: AtomicU64,
    /// Before this time nothing is granted: leases of the life before may still run. In
    /// microseconds.
    opens_us: u64,
    block: u64,
    waiting: usize,
    stopping: AtomicBool,
    /// No lease of the life before still runs, and the ledger says so, or is about to.
    settled: AtomicBool,
    state: Mutex<GateState>,
}

struct GateState {
    under_way: Option<Ledger>,
    /// The bound that the ledger under way will allow.
    allows_ms: u64,
    /// The bound that parked requests need.
    wanted_ms: u64,
    /// The bound of the life before.
    before_ms: u64,
    parked: Vec<ParkedRequest>,
}

impl GrantGate {
    pub(super) fn new(
        options: &Options,
        last: Option<Ledger>,
        wall_ms: u64,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) -> GrantGate {
        let reserved = last.map_or(FencingToken(0), |last| last.reserved);
        let start = reserved.max(FencingToken::at_ms(wall_ms)).0;
        let running = last.filter(|last| !last.clean);
        let before = running.map_or(Duration::ZERO, |last| {
            by_every_clock(last.longest) + options.margin
        });
        let opens = if planted::is(Bug::ForgottenGrace) {
            now
        } else {
            now + before
        };
        let most_ms = ms(options.limits.lease);
        let least_ms = ms(options.first_bound).min(most_ms);
        let gate = GrantGate {
            least_ms,
            most_ms,
            long_until_us: AtomicU64::new(0),
            next: AtomicU64::new(start),
            end: AtomicU64::new(start),
            bound_ms: AtomicU64::new(0),
            opens_us: opens.as_us(),
            block: options.block,
            waiting: options.limits.waiters,
            stopping: AtomicBool::new(false),
            settled: AtomicBool::new(running.is_none()),
            state: Mutex::new(GateState {
                under_way: None,
                allows_ms: 0,
                wanted_ms: least_ms,
                before_ms: running.map_or(0, |last| ms(last.longest)),
                parked: Vec::new(),
            }),
        };
        gate.ask(&mut gate.state.lock(), now, out);
        gate
    }

    /// Returns an error while leases of the life before may still run.
    pub(super) fn open(&self, now: MonotonicTime) -> Result<(), LockError> {
        let left = MonotonicTime::from_us(self.opens_us).since(now);
        if left.is_zero() {
            Ok(())
        } else {
            Err(LockError::Settling { left })
        }
    }

    /// Returns `true` if a lease of this length may be granted, now or until `latest`.
    pub(super) fn admits(&self, lease: Duration, latest: MonotonicTime) -> bool {
        if ms(lease) > self.least_ms {
            let ends = (latest + by_every_clock(lease)).as_us();
            self.long_until_us.fetch_max(ends, Ordering::SeqCst);
        }
        ms(lease) <= self.bound_ms.load(Ordering::SeqCst)
    }

    /// Returns `true` if a ledger that was kept allows a lease of this length.
    fn allows(&self, lease: Duration) -> bool {
        ms(lease) <= self.bound_ms.load(Ordering::SeqCst)
    }

    /// Draws a token. Returns `None` if a block has to be reserved first.
    pub(super) fn token(
        &self,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) -> Option<FencingToken> {
        let end = self.end.load(Ordering::Acquire);
        let draw = |next| (next < end).then(|| next + 1);
        let drawn = self
            .next
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, draw);
        let token = drawn.ok()?;
        // The next block is asked for when half of this one is left.
        if end - token == self.block / 2 {
            self.ask(&mut self.state.lock(), now, out);
        }
        Some(FencingToken(token))
    }

    /// Lets a request wait for a ledger that allows `lease` and has tokens. Returns the request if
    /// it can be served now.
    pub(super) fn park(
        &self,
        parked: ParkedRequest,
        lease: Duration,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) -> Result<(), ParkedRequest> {
        let mut state = self.state.lock();
        let has_tokens = self.next.load(Ordering::Acquire) < self.end.load(Ordering::Acquire);
        if self.allows(lease) && has_tokens {
            return Err(parked);
        }
        // Doubling keeps the number of ledgers small however the leases grow.
        let wanted = ms(lease).checked_next_power_of_two().unwrap_or(u64::MAX);
        if !self.allows(lease) {
            state.wanted_ms = state.wanted_ms.max(wanted.min(self.most_ms));
        }
        self.push(&mut state, parked, now, out);
        Ok(())
    }

    /// Lets a request wait for the next ledger that is kept, even if it could be served now.
    pub(super) fn park_in_any_case(
        &self,
        parked: ParkedRequest,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) {
        self.push(&mut self.state.lock(), parked, now, out);
    }

    fn push(
        &self,
        state: &mut GateState,
        parked: ParkedRequest,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) {
        let limit = self.waiting;
        let refusal = if self.is_stopping() {
            Some(LockError::Stopping)
        } else {
            (state.parked.len() >= limit).then_some(LockError::TooManyWaiters { limit })
        };
        if let Some(error) = refusal {
            let (ticket, outcome) = (parked.ticket, Err(error));
            out.push(AuthorityCommand::Answer { ticket, outcome });
            return;
        }
        state.parked.push(parked);
        self.ask(state, now, out);
    }

    /// Forgets a request that waits. Returns `true` if it waited.
    pub(super) fn cancel(&self, ticket: Ticket) -> bool {
        let mut state = self.state.lock();
        let before = state.parked.len();
        state.parked.retain(|parked| parked.ticket != ticket);
        state.parked.len() < before
    }

    /// Notes that the ledger that is under way was kept, or was not. Returns the requests that
    /// waited.
    ///
    /// # Panics
    /// If no ledger is under way.
    pub(super) fn kept(
        &self,
        kept: bool,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) -> Vec<ParkedRequest> {
        let mut state = self.state.lock();
        let ledger = state.under_way.take().expect("a ledger is under way");
        if kept && !ledger.clean {
            self.end.fetch_max(ledger.reserved.0, Ordering::AcqRel);
            self.bound_ms.fetch_max(state.allows_ms, Ordering::SeqCst);
            // It may have been under way when the leases of the life before ended.
            if self.settles().is_none() && ms(ledger.longest) > state.allows_ms {
                self.ask(&mut state, now, out);
            }
        }
        std::mem::take(&mut state.parked)
    }

    /// Returns when the ledger may say less, if it will.
    pub(super) fn next_due(&self) -> Option<MonotonicTime> {
        let is_high = self.bound_ms.load(Ordering::SeqCst) > self.least_ms
            && self.state.lock().under_way.is_none();
        let lowers =
            is_high.then(|| MonotonicTime::from_us(self.long_until_us.load(Ordering::SeqCst)));
        self.settles().into_iter().chain(lowers).min()
    }

    /// Lets the ledger say less, once longer leases have ended: those of the life before, or of this
    /// one.
    pub(super) fn expire(&self, now: MonotonicTime, out: &mut Vec<AuthorityCommand>) {
        self.settle(now, out);
        self.lower(now, out);
    }

    /// Lowers the bound if no lease needs it any more.
    fn lower(&self, now: MonotonicTime, out: &mut Vec<AuthorityCommand>) {
        let bound = self.bound_ms.load(Ordering::SeqCst);
        let is_over = || self.long_until_us.load(Ordering::SeqCst) <= now.as_us();
        if bound <= self.least_ms || !is_over() {
            return;
        }
        let mut state = self.state.lock();
        if state.under_way.is_some() || !state.parked.is_empty() {
            return;
        }
        let bound = self.bound_ms.swap(self.least_ms, Ordering::SeqCst);
        if !is_over() {
            // Another thread was about to grant a long lease, and may have done so.
            self.bound_ms.store(bound, Ordering::SeqCst);
            return;
        }
        state.wanted_ms = self.least_ms;
        self.ask(&mut state, now, out);
    }

    /// Returns when the leases of the life before will have ended, if the ledger does not say so
    /// yet.
    fn settles(&self) -> Option<MonotonicTime> {
        let settled = self.settled.load(Ordering::Acquire);
        (!settled).then_some(MonotonicTime::from_us(self.opens_us))
    }

    /// Lets the ledger say that the leases of the life before have ended.
    fn settle(&self, now: MonotonicTime, out: &mut Vec<AuthorityCommand>) {
        if self.settles().is_none_or(|at| at > now) {
            return;
        }
        let mut state = self.state.lock();
        self.settled.store(true, Ordering::Release);
        self.ask(&mut state, now, out);
    }

    /// Returns `true` if the table is being stopped.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Stops the gate: nothing is granted from now on, and requests that wait for a ledger get
    /// [`LockError::Stopping`].
    pub(super) fn stop(&self, out: &mut Vec<AuthorityCommand>) {
        self.stopping.store(true, Ordering::SeqCst);
        // Under this lock, a later request finds the table stopping.
        for parked in std::mem::take(&mut self.state.lock().parked) {
            let (ticket, outcome) = (parked.ticket, Err(LockError::Stopping));
            out.push(AuthorityCommand::Answer { ticket, outcome });
        }
    }

    /// Lets the ledger say that nothing is held. No lock may be granted after that.
    pub(super) fn stop_clean(&self, out: &mut Vec<AuthorityCommand>) {
        let mut state = self.state.lock();
        // A ledger that is under way would be kept after this one; then the stop is not a clean one.
        if state.under_way.is_none() && self.settles().is_none() {
            let ledger = Ledger {
                reserved: FencingToken(self.end.load(Ordering::Acquire)),
                longest: Duration::ZERO,
                clean: true,
            };
            state.under_way = Some(ledger);
            out.push(AuthorityCommand::KeepLedger(ledger));
        }
    }

    fn ask(&self, state: &mut GateState, now: MonotonicTime, out: &mut Vec<AuthorityCommand>) {
        if state.under_way.is_some() || self.is_stopping() {
            return;
        }
        let (next, end) = (
            self.next.load(Ordering::Acquire),
            self.end.load(Ordering::Acquire),
        );
        let is_low = end.saturating_sub(next) <= self.block / 2;
        let before = if now.as_us() < self.opens_us {
            state.before_ms
        } else {
            0
        };
        let bound = self.bound_ms.load(Ordering::SeqCst).max(state.wanted_ms);
        let ledger = Ledger {
            reserved: FencingToken(if is_low { end + self.block } else { end }),
            longest: Duration::from_millis(bound.max(before)),
            clean: false,
        };
        state.under_way = Some(ledger);
        state.allows_ms = bound;
        out.push(AuthorityCommand::KeepLedger(ledger));
    }
}

/// Returns whole milliseconds, rounded up.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
