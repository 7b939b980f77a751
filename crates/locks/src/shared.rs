//! A table that a partition keeps, for one proxy or for several.
//!
//! The record in the partition is the truth (its format: the module `record` of this crate).
//! Requests become transactions ([`SharedCommand::Transact`]); requests that wait when a transaction is
//! built travel together. The machine does no I/O: requests and results go in, transactions and
//! answers come out of [`Shared::step`].
//!
//! | module | concept |
//! |---|---|
//! | `entry` | what a proxy knows of one key, and the requests for it |
//! | `serving` | requests: the next step for each, and its time |
//! | `in_flight`, `operation` | transactions that are under way; operations that own their bytes |
//! | `building` | how transactions are built of waiting requests |
//! | `settling`, `failing` | transactions that have committed; and others |
//! | `reading` | what a read of a key means, and which requests it answers |
//! | `era` | how tokens are drawn when there is no record |
//! | `scan`, `scanning` | listings and the sweep; scans of all records |
//! | `options`, `command`, `counters` | how a table is set up; what it asks its driver to do; counters of a proxy |
//!
//! No proxy relies on another machine's clock. Each proxy measures a lease on its own monotonic
//! clock: the proxy that wrote the record from before the record was sent, every other one from when
//! it first saw that very write. A holder counts from when it sent its request, so that all proxies
//! count longer than the holder does; besides, they leave a margin for clocks that run differently.
//!
//! | event | what follows |
//! |---|---|
//! | a request for a key of which nothing is known | *create*: put if absent, in the era; otherwise read what is there |
//! | another request | *read* value and version |
//! | what was read answers the request | the answer |
//! | it does not | *replace*: check the version, put the record |
//! | a transaction did not happen | read again, a while later |
//! | the outcome of a transaction is unknown | read: the record shows it by its incarnation and sequence |
//! | a lease has ended | read, and release the lock if its record is still the same write |
//!
//! A lock is released by putting a record that says so and stays for some seconds, so that the
//! next token is above the last one.
//!
//! 1. A record is replaced only by a transaction that checks its version, and created only where
//!    there is none. So a write that comes late, after its proxy gave it up, has no effect if any
//!    other write came before, and none at all after its era.
//! 2. A held record whose lease is not known to have ended by every clock is replaced only for its
//!    owner, or by a [`Change`](crate::Change) that decides so. Only a change makes an owner's lease
//!    shorter.
//! 3. Every answer rests on a transaction that was sent after the request had come.
//! 4. Tokens of a key grow: a record is replaced with a greater token or, for the same holder, the
//!    same; one that is created has a token of an era that began after the last lock was released.
//! 5. Requests that wait for a key at this proxy get it in the order of arrival. Between proxies
//!    there is no order.
//! 6. Every request is answered by the end of its wait and
//!    [`Options::request_timeout`], also if the partition does not answer.

mod building;
mod command;
mod counters;
mod entry;
mod era;
mod failing;
mod in_flight;
mod operation;
mod options;
mod reading;
mod scan;
mod scanning;
mod serving;
mod settling;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::partition::OwnedReply;
use base::transaction::Abort;

use crate::error::LockError;
use crate::lock::{Answer, OwnedRequest, Request, Ticket};
use crate::moment::MonotonicTime;
pub use command::{SharedCommand, TransactionNumber};
pub use counters::Counters;
use entry::{Entry, Pending, Phase, Work};
use era::Era;
use in_flight::InFlightTransaction;
pub use operation::{Operation, transaction};
pub use options::Options;
use scan::{Listing, Sweep};

/// A proxy's part of a table that a partition keeps.
pub struct Shared {
    options: Options,
    incarnation: u64,
    now: MonotonicTime,
    entries: BTreeMap<Arc<[u8]>, Entry>,
    due: BTreeSet<(MonotonicTime, Arc<[u8]>)>,
    /// Keys that wait to be sent. Each was in the phase `Ready` when it was added; some have left it
    /// since.
    ready: VecDeque<Arc<[u8]>>,
    flights: BTreeMap<TransactionNumber, InFlightTransaction>,
    listings: VecDeque<Listing>,
    era: Era,
    sweep: Sweep,
    /// Nothing is sent before this time, because the partition was in trouble.
    pause_until: MonotonicTime,
    pause: Duration,
    trouble: String,
    /// Numbers of writes, requests and transactions so far.
    writes: u64,
    arrivals: u64,
    transactions: u64,
    /// Number of requests that have no answer yet.
    open: usize,
    /// Number of keys that are known to be held.
    held: usize,
    counters: Counters,
    out: Vec<SharedCommand>,
    /// The wall clock's time. Only a planted bug sets and reads it.
    wall_ms: u64,
}

/// The first pause after trouble, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

impl Shared {
    /// Creates a proxy's part of the table. No two lives of proxies may have the same `incarnation`:
    /// draw it at random.
    #[must_use]
    pub fn new(options: Options, incarnation: u64, now: MonotonicTime) -> Shared {
        Shared {
            sweep: Sweep::new(now + options.sweep),
            options,
            incarnation,
            now,
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            ready: VecDeque::new(),
            flights: BTreeMap::new(),
            listings: VecDeque::new(),
            era: Era::default(),
            pause_until: now,
            pause: PAUSE.0,
            trouble: "no answer yet".to_owned(),
            writes: 0,
            arrivals: 0,
            transactions: 0,
            open: 0,
            held: 0,
            counters: Counters::default(),
            out: Vec::new(),
            wall_ms: 0,
        }
    }

    /// Takes a request. Its answer is a later command; no other request may use `ticket` until then.
    ///
    /// # Errors
    /// [`LockError`], if the request cannot be taken; then no answer follows.
    pub fn request(
        &mut self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        now: MonotonicTime,
    ) -> Result<(), LockError> {
        self.tick(now);
        let limits = &self.options.limits;
        limits.check(key, request)?;
        // A holder can prolong and release its lock, however many others ask.
        let (share, creates) = match request {
            Request::Acquire { wait, .. } => (if wait.is_zero() { 2 } else { 1 }, true),
            Request::Change(_) => (2, true),
            Request::Info => (2, false),
            Request::Renew { .. } | Request::Release { .. } => (3, false),
        };
        if creates && self.entries.len() >= limits.locks && !self.entries.contains_key(key) {
            let limit = limits.locks;
            return Err(LockError::TooManyLocks { limit });
        }
        let of_key = self.entries.get(key).map_or(0, |entry| entry.pending.len());
        for (there, limit) in [(of_key, limits.waiters), (self.open, limits.all_waiters)] {
            let limit = share * limit;
            if there >= limit {
                return Err(LockError::TooManyWaiters { limit });
            }
        }
        let until = match *request {
            Request::Acquire { wait, .. } => self.now + wait,
            _ => self.now,
        };
        self.open += 1;
        let key = self.key(key);
        self.ask(
            &key,
            Work::Client(ticket, OwnedRequest::new(request)),
            until,
        );
        Ok(())
    }

    /// Lists the locks whose keys begin with `prefix`, at most `limit`: fewer if released ones lie
    /// between them. Answers `Listing` as a later command.
    pub fn scan(&mut self, ticket: Ticket, prefix: &[u8], limit: usize, now: MonotonicTime) {
        self.tick(now);
        self.open += 1;
        self.listings.push_back(Listing {
            ticket,
            prefix: prefix.to_vec(),
            at_most: limit,
            limit: self.now + self.options.request_timeout,
        });
    }

    /// Forgets a request: its client has gone. If it has acquired the lock meanwhile, that is
    /// released. Returns `false` if the request was not found, because it has its answer already.
    pub fn cancel(&mut self, key: &[u8], ticket: Ticket, now: MonotonicTime) -> bool {
        self.tick(now);
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let is_it = |one: &Pending| {
            matches!(&one.work, Work::Client(of, _) if *of == ticket) && !one.cancelled
        };
        let Some(at) = entry.pending.iter().position(is_it) else {
            return false;
        };
        self.open -= 1;
        let one = &mut entry.pending[at];
        let is_flying =
            matches!(entry.phase, Phase::Flying(Some(arrival)) if arrival == one.arrival);
        if is_flying || !one.attempts.is_empty() {
            // It stays until its outcome is known.
            one.cancelled = true;
        } else {
            entry.pending.remove(at);
        }
        let key = self.key(key);
        self.arm(&key);
        true
    }

    /// Notes that a transaction has ended. `now` must have been read after its result had come.
    pub fn transacted(
        &mut self,
        number: TransactionNumber,
        result: Result<Vec<OwnedReply>, Abort>,
        now: MonotonicTime,
    ) {
        self.tick(now);
        // One that was given up already counts as unknown.
        if let Some(flight) = self.flights.remove(&number) {
            self.settle(flight, result);
        }
    }

    /// Does what is due, and adds the commands to `out`. To be called after requests and results,
    /// once for all that came together, and when [`Shared::next_due`] has come. `now` must have been
    /// read before the commands are carried out.
    pub fn step(&mut self, now: MonotonicTime, out: &mut Vec<SharedCommand>) {
        self.tick(now);
        self.give_up_flights();
        while let Some((at, key)) = self.due.first()
            && *at <= self.now
        {
            let key = Arc::clone(key);
            self.expire(&key);
        }
        self.end_listings();
        self.send();
        out.append(&mut self.out);
    }

    /// Returns the latest time for the next call of [`Shared::step`].
    #[must_use]
    pub fn next_due(&self) -> Option<MonotonicTime> {
        let timeout = self.options.transaction_timeout;
        let flight = self
            .flights
            .values()
            .next()
            .map(|flight| flight.sent + timeout);
        // All that could be sent has been: the rest waits for a result, or for the end of the pause.
        let resumes = Some(self.pause_until).filter(|at| *at > self.now);
        let sweep = self.sweep.next_due().filter(|at| *at > self.now);
        let listing = self.listings.iter().map(|listing| listing.limit).min();
        let due = self.due.first().map(|(at, _)| *at);
        let all = [flight, resumes, listing, due, sweep];
        all.into_iter().flatten().min()
    }

    /// Returns this proxy's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many keys this proxy knows, and how many requests it has in hand: those that have
    /// no answer yet, and its own. It looks at every key.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let requests = self.entries.values().map(|entry| entry.pending.len());
        (
            self.entries.len(),
            requests.sum::<usize>() + self.listings.len(),
        )
    }

    /// Returns how many requests have no answer yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Returns how many requests are to be carried out that wait for no other holder: those of
    /// clients, and those that release the locks of clients that have gone. It looks at every key.
    #[must_use]
    pub fn owed(&self) -> usize {
        let is_owed = |one: &&Pending| match one.work {
            Work::Client(..) => one.cancelled || !one.waits,
            Work::Undo(_) => true,
            Work::Expire => false,
        };
        let owed = |entry: &Entry| entry.pending.iter().filter(is_owed).count();
        self.entries.values().map(owed).sum()
    }

    /// Returns how many locks this proxy knows to be held, whichever proxy granted them. Sweeps find
    /// those that no client of this proxy has asked for; endless ones are forgotten while there are
    /// no requests for them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Sets the wall clock's time, which the planted bug relies on.
    #[cfg(feature = "simulation")]
    pub(crate) fn set_wall_ms(&mut self, wall_ms: u64) {
        self.wall_ms = wall_ms;
    }

    /// Advances the time. It does not go back, even if a caller has read an earlier one.
    fn tick(&mut self, now: MonotonicTime) {
        self.now = self.now.max(now);
    }

    /// Returns the shared bytes of a key that has an entry, or new ones.
    fn key(&self, key: &[u8]) -> Arc<[u8]> {
        self.entries
            .get_key_value(key)
            .map_or_else(|| key.into(), |(key, _)| Arc::clone(key))
    }

    fn answer(&mut self, ticket: Ticket, outcome: Result<Answer, LockError>) {
        self.open -= 1;
        self.out.push(SharedCommand::Answer { ticket, outcome });
    }
}
