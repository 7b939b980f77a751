//! A table in the memory of one process: many threads share it.
//!
//! Requests are carried out on the caller's thread. Keys are spread over shards, each a hash table
//! behind a mutex that is held for a few hundred nanoseconds; reading allocates nothing.
//!
//! After a restart the table is empty. Only the [`Ledger`] is durable: which tokens are reserved,
//! and how long the longest lease is. The table asks its driver to keep it
//! ([`AuthorityCommand::KeepLedger`]), and the driver reports that it has ([`Authority::ledger_kept`]).
//!
//! 1. No two of the locks of one key overlap: one is granted when the one before was released, or when
//!    its lease had ended on the clock of this process, which began to count when the request had come,
//!    and which adds a thirty-first part for clocks that run differently.
//! 2. No token is granted before a ledger that reserves it was kept. A life begins with the tokens
//!    that are not reserved yet, so that tokens are never repeated; and not before the time of day,
//!    so that they go on growing when a table is moved here from a shared one.
//! 3. No lease is granted before a ledger that tells of one as long was kept. A life says nothing
//!    about locks before the longest lease of the lives before it has passed, unless the last of
//!    them was stopped when nothing was held.
//! 4. Requests that wait get the key in the order of arrival.

mod command;
mod gate;
mod ledger;
mod options;
mod shard;
#[cfg(test)]
mod tests;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::{Mutex, MutexGuard};

use crate::error::LockError;
use crate::limits::LockLimits;
use crate::lock::{Answer, Lock, OwnedRequest, Request, Ticket};
use crate::moment::MonotonicTime;
pub use command::AuthorityCommand;
use gate::{GrantGate, ParkedRequest, WaitSpan};
pub use ledger::Ledger;
pub use options::Options;
use shard::{Served, Shard, ShardCall};

/// A table of locks in memory. Any thread may call it; the caller reads `now` before the call.
pub struct Authority {
    limits: LockLimits,
    shards: Box<[ShardSlot]>,
    hasher: RandomState,
    held: AtomicUsize,
    bytes: AtomicUsize,
    waiting: AtomicUsize,
    expired: AtomicU64,
    gate: GrantGate,
}

/// A shard on its own cache lines.
#[repr(align(128))]
#[derive(Default)]
struct ShardSlot {
    shard: Mutex<Shard>,
    /// When the next lease or wait ends, in microseconds; all ones: none does.
    due_us: AtomicU64,
    /// Number of requests that wait in the shard. Written with the shard locked.
    waiting: AtomicUsize,
}

const NOTHING_DUE: u64 = u64::MAX;

impl Authority {
    /// Creates an empty table. `last` is the ledger that was kept last, if one ever was; `wall_ms`
    /// the time of day in milliseconds since the Unix epoch.
    ///
    /// # Panics
    /// If the number of shards is no power of two, or blocks are odd or empty.
    #[must_use]
    pub fn new(
        options: &Options,
        last: Option<Ledger>,
        wall_ms: u64,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) -> Authority {
        assert!(options.shards.is_power_of_two(), "shards: a power of two");
        assert!(
            options.block >= 2 && options.block.is_multiple_of(2),
            "tokens are reserved in even blocks"
        );
        let part = |_| ShardSlot {
            due_us: AtomicU64::new(NOTHING_DUE),
            ..ShardSlot::default()
        };
        Authority {
            limits: options.limits.clone(),
            shards: (0..options.shards).map(part).collect(),
            hasher: RandomState::default(),
            held: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            expired: AtomicU64::new(0),
            gate: GrantGate::new(options, last, wall_ms, now, out),
        }
    }

    /// Carries out a request. Returns `None` if the answer comes as a later command. No other
    /// request may use `ticket` until then.
    ///
    /// # Errors
    /// [`LockError`] says why nothing was done.
    pub fn request(
        &self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) -> Option<Result<Answer, LockError>> {
        let open = self
            .limits
            .check(key, request)
            .and_then(|()| self.gate.open(now));
        if let Err(error) = open {
            return Some(Err(error));
        }
        let until = match *request {
            Request::Acquire { wait, .. } => now + wait,
            _ => now,
        };
        let span = WaitSpan { came: now, until };
        self.serve(ticket, key, request, span, now, out)
    }

    fn serve(
        &self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        span: WaitSpan,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) -> Option<Result<Answer, LockError>> {
        loop {
            let part = self.part(key);
            let mut shard = part.shard.lock();
            let served = shard.serve(ticket, key, request, span, &mut self.turn(now, out));
            self.note(part, &shard);
            drop(shard);
            let lease = match served {
                Served::Now(outcome) => return Some(outcome),
                Served::Waits => return None,
                Served::Parks(lease) => lease,
            };
            let parked = ParkedRequest {
                ticket,
                key: key.into(),
                wanted: OwnedRequest::new(request),
                span,
            };
            if self.gate.park(parked, lease, now, out).is_ok() {
                return None;
            }
        }
    }

    /// Forgets a request for `key` that waits: its client has gone. Returns `false` if the request
    /// does not wait, because it has its answer already.
    pub fn cancel(&self, key: &[u8], ticket: Ticket) -> bool {
        let part = self.part(key);
        let mut shard = part.shard.lock();
        let found = shard.cancel(key, ticket);
        self.note(part, &shard);
        drop(shard);
        found || self.gate.cancel(ticket)
    }

    /// Notes that the ledger in [`AuthorityCommand::KeepLedger`] is durable, or that it is not and will not
    /// be; then the requests that waited for it get the error.
    ///
    /// # Panics
    /// If no ledger is under way.
    pub fn ledger_kept(
        &self,
        kept: Result<(), LockError>,
        now: MonotonicTime,
        out: &mut Vec<AuthorityCommand>,
    ) {
        let parked = self.gate.kept(kept.is_ok(), now, out);
        for ParkedRequest {
            ticket,
            key,
            wanted,
            span,
        } in parked
        {
            let outcome = match &kept {
                Ok(()) => self.serve(ticket, &key, &wanted.as_request(), span, now, out),
                Err(error) => Some(Err(error.clone())),
            };
            if let Some(outcome) = outcome {
                out.push(AuthorityCommand::Answer { ticket, outcome });
            }
        }
    }

    /// Ends the leases and waits whose time has come. The driver calls it when
    /// [`Authority::next_due`] has come.
    pub fn expire(&self, now: MonotonicTime, out: &mut Vec<AuthorityCommand>) {
        self.gate.expire(now, out);
        for part in &self.shards {
            if part.due_us.load(Ordering::Acquire) <= now.as_us() {
                let mut shard = part.shard.lock();
                shard.expire(&mut self.turn(now, out));
                self.note(part, &shard);
            }
        }
    }

    /// Returns when the next lease or wait ends. A lock for which no request waits also ends without
    /// this call, when the next request for its key comes.
    #[must_use]
    pub fn next_due(&self) -> Option<MonotonicTime> {
        let due = self
            .shards
            .iter()
            .map(|part| part.due_us.load(Ordering::Acquire));
        let due = due
            .filter(|&us| us != NOTHING_DUE)
            .min()
            .map(MonotonicTime::from_us);
        due.into_iter().chain(self.gate.next_due()).min()
    }

    /// Returns the locks whose keys begin with `prefix`, in the order of their keys, at most
    /// `limit`. It looks at every lock: for small tables, or for people.
    ///
    /// # Errors
    /// [`LockError::Settling`].
    pub fn scan(
        &self,
        prefix: &[u8],
        limit: usize,
        now: MonotonicTime,
    ) -> Result<Vec<(Vec<u8>, Lock)>, LockError> {
        self.gate.open(now)?;
        let mut found = Vec::new();
        for part in &self.shards {
            part.shard.lock().list(prefix, now, &mut found);
        }
        found.sort_by(|one, two| one.0.cmp(&two.0));
        found.truncate(limit);
        Ok(found)
    }

    /// Returns the number of locks, including those that have ended but were not removed yet.
    #[must_use]
    pub fn locks(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that wait for other holders.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of locks that ended with their lease, without a release.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Stops the table: nothing is granted any more, and requests that wait get
    /// [`LockError::Stopping`]. If nothing is held, it asks for a ledger that says so, which lets
    /// the next life grant at once.
    pub fn stop(&self, now: MonotonicTime, out: &mut Vec<AuthorityCommand>) {
        self.gate.stop(out);
        let mut clean = true;
        for part in &self.shards {
            let mut shard = part.shard.lock();
            shard.dismiss(out);
            shard.expire(&mut self.turn(now, out));
            self.note(part, &shard);
            clean &= shard.is_empty();
        }
        if clean {
            self.gate.stop_clean(out);
        }
    }

    fn turn<'a>(&'a self, now: MonotonicTime, out: &'a mut Vec<AuthorityCommand>) -> ShardCall<'a> {
        ShardCall {
            now,
            gate: &self.gate,
            limits: &self.limits,
            held: &self.held,
            bytes: &self.bytes,
            waiting: &self.waiting,
            expired: &self.expired,
            out,
        }
    }

    /// Stores what other threads read without the shard's lock.
    fn note(&self, part: &ShardSlot, shard: &MutexGuard<'_, Shard>) {
        let due = shard.next_due().map_or(NOTHING_DUE, MonotonicTime::as_us);
        part.due_us.store(due, Ordering::Release);
        let (now, before) = (shard.waiters(), part.waiting.load(Ordering::Relaxed));
        if now != before {
            part.waiting.store(now, Ordering::Relaxed);
            // A negative difference wraps around, and so does the sum.
            self.waiting
                .fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    fn part(&self, key: &[u8]) -> &ShardSlot {
        // Each shard's table hashes with its own key, so all bits can be used here.
        let hash = self.hasher.hash_one(key) as usize;
        &self.shards[hash & (self.shards.len() - 1)]
    }
}
