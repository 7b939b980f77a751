//! A table that a partition keeps, for one proxy or for several.
//!
//! The record in the partition is the truth (its format: the module `record` of this crate).
//! Requests become transactions ([`Command::Transact`]); what is waiting when a transaction is
//! built travels together. The machine does no I/O: requests and results go in, transactions and
//! answers come out of [`Shared::step`].
//!
//! | module | concept |
//! |---|---|
//! | `entry` | what a proxy knows of one key, and who asks for it |
//! | `serving` | requests: what is to be done for them next, and when |
//! | `flight`, `operation` | how transactions are built of what waits; transactions that own their bytes |
//! | `settling`, `failing` | transactions that have committed; and others |
//! | `reading` | what was read of a key, and who is answered by it |
//! | `era` | how tokens are drawn when there is no record |
//! | `sweep` | looking at all records |
//! | `counters` | what has happened |
//!
//! Nobody believes anybody's clock. How long a lease lasts is measured by each proxy on its own
//! monotonic clock: by the one that wrote the record from before the record was sent, by every
//! other one from when it has first seen that very write. A holder counts from when it sent its
//! request, so that all of them count longer than the holder does; besides they leave a margin for
//! clocks that run differently.
//!
//! | event | what follows |
//! |---|---|
//! | a request for a key of which nothing is known | *create*: put if absent, in the era; and read what is there otherwise |
//! | another request | *read* value and version |
//! | what was read answers the request | the answer |
//! | it does not | *replace*: check the version, put the record |
//! | a transaction did not happen | read again, a while later |
//! | nobody knows whether a transaction happened | read: the record tells by its incarnation and sequence |
//! | a lease has ended | read, and release what is still the same write |
//!
//! A lock is released by putting a record that says so and stays for some seconds, so that the
//! next token is above the last one.
//!
//! 1. A record is replaced only by a transaction that checks its version, and created only where
//!    there is none. So a write that comes late, after its proxy gave it up, has no effect if any
//!    other write came before, and none at all after its era.
//! 2. A held record whose lease is not known to have ended for everybody is replaced only for its
//!    owner, or by a [`Change`](crate::Change) that decides so. An owner's lease never becomes
//!    shorter but by a change.
//! 3. Every answer rests on a transaction that was sent after the request had come.
//! 4. Tokens of a key grow: a record is replaced with a greater token or, for the same holder, the
//!    same; one that is created has a token of an era that began after the last lock was released.
//! 5. Who waits for a key at this proxy gets it in the order of arrival. Between proxies there is no
//!    order.
//! 6. Every request is answered by the end of its wait and
//!    [`Options::request_timeout`], whatever the partition does.

mod counters;
mod entry;
mod era;
mod failing;
mod flight;
mod operation;
mod reading;
mod serving;
mod settling;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::partition::OwnedReply;
use base::transaction::Abort;

use crate::error::LockError;
use crate::limits::Limits;
use crate::lock::{Answer, Request, Ticket, Wanted};
use crate::moment::Moment;
pub use counters::Counters;
use entry::{Entry, Pending, Phase, Work};
use era::Era;
use flight::Flight;
pub use operation::{Operation, transaction};
use sweep::{Listing, Sweep};

/// Names a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransactionNumber(pub u64);

/// What a table asks its driver to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Execute a transaction in the partition, and tell [`Shared::transacted`] how it ended. What
    /// does not end in [`Options::transaction_timeout`] counts as unknown.
    Transact {
        /// Its name.
        number: TransactionNumber,
        /// Its operations.
        operations: Vec<Operation>,
    },
    /// A request has its answer.
    Answer {
        /// Which request.
        ticket: Ticket,
        /// Its answer.
        outcome: Result<Answer, LockError>,
    },
}

/// How a table that a partition keeps is set up. All proxies of a table have the same `prefix`, and
/// should have the same margins.
#[derive(Clone, Debug)]
pub struct Options {
    /// What clients may ask for.
    pub limits: Limits,
    /// With what the table's keys begin in the partition.
    pub prefix: Vec<u8>,
    /// How long to wait after a lease, besides a thirty-first part of it: clocks differ in speed.
    pub margin: Duration,
    /// How long a request may take that waits for nobody.
    pub request_timeout: Duration,
    /// How long a transaction may take. Shorter than `request_timeout`, so that requests
    /// outlive one that is lost.
    pub transaction_timeout: Duration,
    /// How many transactions are under way at once.
    pub transactions: usize,
    /// How many keys a transaction has at most.
    pub batch: usize,
    /// How often the partition is asked for a key that somebody waits for: at first, doubling up
    /// to the second.
    pub poll: (Duration, Duration),
    /// How often all records are looked at for those whose proxies have gone.
    pub sweep: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            prefix: b"lock/".to_vec(),
            margin: Duration::from_millis(50),
            request_timeout: Duration::from_secs(5),
            transaction_timeout: Duration::from_secs(1),
            transactions: 4,
            batch: 64,
            poll: (Duration::from_millis(5), Duration::from_millis(250)),
            sweep: Duration::from_secs(30),
        }
    }
}

/// A proxy's part of a table that a partition keeps.
pub struct Shared {
    options: Options,
    incarnation: u64,
    now: Moment,
    entries: BTreeMap<Arc<[u8]>, Entry>,
    due: BTreeSet<(Moment, Arc<[u8]>)>,
    /// Keys that wait to be sent. Each is in its phase `Ready`; some have left it since.
    ready: VecDeque<Arc<[u8]>>,
    flights: BTreeMap<TransactionNumber, Flight>,
    listings: VecDeque<Listing>,
    era: Era,
    sweep: Sweep,
    /// Nothing is sent until then, because the partition was in trouble.
    pause_until: Moment,
    pause: Duration,
    trouble: String,
    /// How many writes, requests and transactions there were.
    writes: u64,
    arrivals: u64,
    transactions: u64,
    /// How many requests have no answer yet.
    open: usize,
    /// How many keys are known to be held.
    held: usize,
    counters: Counters,
    out: Vec<Command>,
    /// What the wall clock shows. Only a planted bug sets and reads it.
    wall_ms: u64,
}

/// The first pause after trouble, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

impl Shared {
    /// A proxy's part of the table. No two lives of proxies may have the same `incarnation`: draw
    /// it at random.
    #[must_use]
    pub fn new(options: Options, incarnation: u64, now: Moment) -> Shared {
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

    /// Takes a request. Its answer is a later command; no other request may use `ticket` until
    /// then.
    ///
    /// # Errors
    /// [`LockError`], if it cannot be taken; then there is no command.
    pub fn request(
        &mut self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        now: Moment,
    ) -> Result<(), LockError> {
        self.tick(now);
        let limits = &self.options.limits;
        limits.check(key, request)?;
        // Who holds a lock can prolong and release it, however many others ask.
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
        self.ask(&key, Work::Client(ticket, Wanted::new(request)), until);
        Ok(())
    }

    /// Lists the locks whose keys begin with `prefix`, at most `limit`: fewer if released ones lie
    /// between them. Answers `Listing` as a later command.
    pub fn scan(&mut self, ticket: Ticket, prefix: &[u8], limit: usize, now: Moment) {
        self.tick(now);
        self.open += 1;
        self.listings.push_back(Listing {
            ticket,
            prefix: prefix.to_vec(),
            at_most: limit,
            limit: self.now + self.options.request_timeout,
        });
    }

    /// Forgets a request: its client has gone. What it may have acquired meanwhile is released.
    /// Says whether it was found; if not, it has its answer already.
    pub fn cancel(&mut self, key: &[u8], ticket: Ticket, now: Moment) -> bool {
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
            // It stays until it is known what became of it.
            one.cancelled = true;
        } else {
            entry.pending.remove(at);
        }
        let key = self.key(key);
        self.arm(&key);
        true
    }

    /// A transaction has ended. `now` must have been read after its result had come.
    pub fn transacted(
        &mut self,
        number: TransactionNumber,
        result: Result<Vec<OwnedReply>, Abort>,
        now: Moment,
    ) {
        self.tick(now);
        // One that was given up already counts as unknown.
        if let Some(flight) = self.flights.remove(&number) {
            self.settle(flight, result);
        }
    }

    /// Does what is due, and gives out what there is to do. To be called after requests and
    /// results, once for all that came together, and when [`Shared::next_due`] has come. `now` must
    /// have been read before the commands are carried out.
    pub fn step(&mut self, now: Moment, out: &mut Vec<Command>) {
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

    /// When [`Shared::step`] is to be called again at the latest.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        let timeout = self.options.transaction_timeout;
        let flight = self
            .flights
            .values()
            .next()
            .map(|flight| flight.sent + timeout);
        // What could be sent has been: the rest waits for a result, or for the end of the pause.
        let resumes = Some(self.pause_until).filter(|at| *at > self.now);
        let sweep = self.sweep.next_due().filter(|at| *at > self.now);
        let listing = self.listings.iter().map(|listing| listing.limit).min();
        let due = self.due.first().map(|(at, _)| *at);
        let all = [flight, resumes, listing, due, sweep];
        all.into_iter().flatten().min()
    }

    /// What has happened here.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many keys this proxy knows of, and how many requests it has in hand: those that have no
    /// answer yet, and its own. It looks at every key.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let requests = self.entries.values().map(|entry| entry.pending.len());
        (
            self.entries.len(),
            requests.sum::<usize>() + self.listings.len(),
        )
    }

    /// How many requests have no answer yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// How many requests are to be carried out that wait for no other holder: those of clients, and
    /// what gives back the locks of clients that have gone. It looks at every key.
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

    /// How many locks this proxy knows to be held, whoever granted them. Those that nobody has
    /// asked it for are found by sweeps; endless ones are forgotten while nobody asks.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Tells what the wall clock shows, which the planted bug believes.
    #[cfg(feature = "simulation")]
    pub(crate) fn set_wall_ms(&mut self, wall_ms: u64) {
        self.wall_ms = wall_ms;
    }

    /// Time does not go back, whatever the callers' threads have read.
    fn tick(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// The shared bytes of a key that has an entry, or new ones.
    fn key(&self, key: &[u8]) -> Arc<[u8]> {
        self.entries
            .get_key_value(key)
            .map_or_else(|| key.into(), |(key, _)| Arc::clone(key))
    }

    fn answer(&mut self, ticket: Ticket, outcome: Result<Answer, LockError>) {
        self.open -= 1;
        self.out.push(Command::Answer { ticket, outcome });
    }
}
