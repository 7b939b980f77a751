//! What a proxy knows of one key, and the requests for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::ids::Version;

use crate::decision::Setting;
use crate::lock::{Answer, FencingToken, Lock, LockLease, OwnedRequest, Ticket};
use crate::moment::{MonotonicTime, by_one_clock};
use crate::record::{LockRecord, RecordWriteId};

/// The state of one key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) known: LastSeen,
    /// Requests, in the order in which they came.
    pub(super) pending: VecDeque<Pending>,
    pub(super) phase: Phase,
    /// When the partition is asked again for the requests that wait.
    pub(super) poll_at: Option<MonotonicTime>,
    pub(super) patience: Duration,
    /// The key's time in the table's list `due`.
    pub(super) due: Option<MonotonicTime>,
    /// The table counts the key as held.
    pub(super) is_counted: bool,
}

/// What a proxy saw of a key last.
#[derive(Debug)]
pub(super) enum LastSeen {
    /// Nothing, or no record.
    Nothing,
    /// A held record.
    Held(Sighting),
    /// A released record, which is there until about this moment.
    Released(MonotonicTime),
}

/// A held record, and when its lease ends.
#[derive(Debug)]
pub(super) struct Sighting {
    pub(super) id: RecordWriteId,
    /// When the lease is over by every clock: counted from before the record was sent if this proxy
    /// wrote it, and from when it was seen first if another one did. `None`: endless.
    pub(super) ends: Option<MonotonicTime>,
    /// When to look at the record, to release it if its lease has ended.
    pub(super) look_at: Option<MonotonicTime>,
}

/// State of a key between its requests and transactions.
#[derive(Debug)]
pub(super) enum Phase {
    Idle,
    /// The key waits to be sent.
    Ready(Plan),
    /// The key is in a transaction. If that writes, the number is that of the request.
    Flying(Option<u64>),
}

#[derive(Debug)]
pub(super) enum Plan {
    Read,
    Write(Write),
}

/// A write that waits to be sent.
#[derive(Debug)]
pub(super) struct Write {
    /// The request that it is for.
    pub(super) arrival: u64,
    pub(super) over: Over,
    pub(super) what: What,
}

/// The record that a write expects to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Absent,
    /// This version, whose record has this token.
    Version(Version, FencingToken),
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Set(Setting),
    Release(Option<Answer>),
}

/// A request for a key.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its number among all requests.
    pub(super) arrival: u64,
    pub(super) work: Work,
    pub(super) came: MonotonicTime,
    /// When it stops waiting for other holders.
    pub(super) until: MonotonicTime,
    /// The latest time for its answer.
    pub(super) limit: MonotonicTime,
    /// It has been tried, and another owner held the key.
    pub(super) waits: bool,
    /// Writes for it whose outcome is unknown.
    pub(super) attempts: Vec<Attempt>,
    pub(super) cancelled: bool,
}

#[derive(Debug)]
pub(super) enum Work {
    Client(Ticket, OwnedRequest),
    /// Releases a lock whose lease has ended.
    Expire,
    /// Releases the lock of this write, whose client has gone.
    Undo(RecordWriteId),
}

/// A write whose outcome is unknown.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) id: RecordWriteId,
    pub(super) over: Over,
    /// It would grant a lock that was free.
    pub(super) is_new: bool,
    pub(super) sent: MonotonicTime,
    pub(super) answer: Option<Answer>,
}

impl Entry {
    pub(super) fn new(patience: Duration) -> Entry {
        Entry {
            known: LastSeen::Nothing,
            pending: VecDeque::new(),
            phase: Phase::Idle,
            poll_at: None,
            patience,
            due: None,
            is_counted: false,
        }
    }

    pub(super) fn position(&self, arrival: u64) -> Option<usize> {
        self.pending.iter().position(|one| one.arrival == arrival)
    }

    pub(super) fn waiters(&self) -> usize {
        self.pending.iter().filter(|one| one.waits).count()
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.known, LastSeen::Held(_))
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Returns when the key needs attention, if nothing comes before.
    pub(super) fn next_due(&self) -> Option<MonotonicTime> {
        let limits = self.pending.iter().map(|one| one.limit).min();
        if !self.is_idle() {
            return limits;
        }
        let waits = self.pending.iter().filter(|one| one.waits);
        let known = match &self.known {
            LastSeen::Nothing => None,
            LastSeen::Held(sighting) => sighting.look_at,
            LastSeen::Released(until) => Some(*until),
        };
        let polls = self.poll_at.filter(|_| !self.pending.is_empty());
        let all = [limits, waits.map(|one| one.until).min(), known, polls];
        all.into_iter().flatten().min()
    }

    /// Returns `true` if there is nothing to remember about the key. An endless lock has no lease to
    /// measure.
    pub(super) fn is_forgettable(&self) -> bool {
        let is_measured = match &self.known {
            LastSeen::Nothing => false,
            LastSeen::Held(sighting) => sighting.look_at.is_some(),
            LastSeen::Released(_) => true,
        };
        self.is_idle() && self.pending.is_empty() && !is_measured
    }
}

impl Sighting {
    /// Returns `true` if the lease has ended by every clock.
    pub(super) fn has_ended(&self, now: MonotonicTime) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }

    /// Returns what is left of the lease. A lease of this length, with `margin` and from now on,
    /// ends no earlier.
    pub(super) fn left(&self, margin: Duration, now: MonotonicTime) -> LockLease {
        self.ends.map_or(LockLease::Endless, |ends| {
            LockLease::For(by_one_clock(ends.since(now).saturating_sub(margin)))
        })
    }

    pub(super) fn lock(
        &self,
        value: &Arc<[u8]>,
        record: &LockRecord,
        margin: Duration,
        now: MonotonicTime,
    ) -> Lock {
        Lock {
            value: Arc::clone(value),
            token: record.token,
            left: self.left(margin, now),
            waiters: 0,
        }
    }
}
