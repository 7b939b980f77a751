//! What a proxy knows of one key, and who asks for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::ids::Version;

use crate::decision::Setting;
use crate::lock::{Answer, Lease, Lock, Ticket, Token, Wanted};
use crate::moment::{Moment, by_one_clock};
use crate::record::{Record, WriteId};

/// One key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) known: Known,
    /// Requests, in the order in which they came.
    pub(super) pending: VecDeque<Pending>,
    pub(super) phase: Phase,
    /// When the partition is asked again for those who wait.
    pub(super) poll_at: Option<Moment>,
    pub(super) patience: Duration,
    /// Where it stands in the table's list of what is due.
    pub(super) due: Option<Moment>,
    /// Whether the table counts it as held.
    pub(super) is_counted: bool,
}

/// What was seen of a key last.
#[derive(Debug)]
pub(super) enum Known {
    /// Nothing, or no record.
    Nothing,
    /// A held record.
    Held(Sighting),
    /// A released one, which is there until this moment or so.
    Released(Moment),
}

/// A held record, and how long its lease is waited for.
#[derive(Debug)]
pub(super) struct Sighting {
    pub(super) id: WriteId,
    /// When the lease is over by every clock: counted from before the record was sent if it is
    /// ours, and from when it was seen first if it is not. `None`: endless.
    pub(super) ends: Option<Moment>,
    /// When the record is to be looked at, to release it if its lease has ended.
    pub(super) look_at: Option<Moment>,
}

/// Where a key stands.
#[derive(Debug)]
pub(super) enum Phase {
    Idle,
    /// It waits to be sent.
    Ready(Plan),
    /// It is in a transaction; if it writes, for this request.
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

/// What a write expects to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Absent,
    /// This version, whose token is this.
    Version(Version, Token),
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Set(Setting),
    Release(Option<Answer>),
}

/// A request.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its number among all requests.
    pub(super) arrival: u64,
    pub(super) work: Work,
    pub(super) came: Moment,
    /// Until when it may wait for others.
    pub(super) until: Moment,
    /// When it is answered at the latest.
    pub(super) limit: Moment,
    /// Whether it has been tried, and others held the key.
    pub(super) waits: bool,
    /// Writes for it of which nobody knows whether they took effect.
    pub(super) attempts: Vec<Attempt>,
    pub(super) cancelled: bool,
}

#[derive(Debug)]
pub(super) enum Work {
    Client(Ticket, Wanted),
    /// To release what has ended.
    Expire,
    /// To release this one, whose client has gone.
    Undo(WriteId),
}

/// A write of which nobody knows whether it took effect.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) id: WriteId,
    pub(super) over: Over,
    /// Whether it would grant a lock that was free.
    pub(super) is_new: bool,
    pub(super) sent: Moment,
    pub(super) answer: Option<Answer>,
}

impl Entry {
    pub(super) fn new(patience: Duration) -> Entry {
        Entry {
            known: Known::Nothing,
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
        matches!(self.known, Known::Held(_))
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// When something is to be done, if nothing comes before.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let limits = self.pending.iter().map(|one| one.limit).min();
        if !self.is_idle() {
            return limits;
        }
        let waits = self.pending.iter().filter(|one| one.waits);
        let known = match &self.known {
            Known::Nothing => None,
            Known::Held(sighting) => sighting.look_at,
            Known::Released(until) => Some(*until),
        };
        let polls = self.poll_at.filter(|_| !self.pending.is_empty());
        let all = [limits, waits.map(|one| one.until).min(), known, polls];
        all.into_iter().flatten().min()
    }

    /// Whether nothing about it is worth remembering. Of an endless lock there is nothing to
    /// measure.
    pub(super) fn is_forgettable(&self) -> bool {
        let is_measured = match &self.known {
            Known::Nothing => false,
            Known::Held(sighting) => sighting.look_at.is_some(),
            Known::Released(_) => true,
        };
        self.is_idle() && self.pending.is_empty() && !is_measured
    }
}

impl Sighting {
    /// Whether the lease has ended for everybody.
    pub(super) fn has_ended(&self, now: Moment) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }

    /// What is left of the lease. A lease that is as long as this, with `margin` and from now on,
    /// ends no earlier.
    pub(super) fn left(&self, margin: Duration, now: Moment) -> Lease {
        self.ends.map_or(Lease::Endless, |ends| {
            Lease::For(by_one_clock(ends.since(now).saturating_sub(margin)))
        })
    }

    pub(super) fn lock(
        &self,
        value: &Arc<[u8]>,
        record: &Record,
        margin: Duration,
        now: Moment,
    ) -> Lock {
        Lock {
            value: Arc::clone(value),
            token: record.token,
            left: self.left(margin, now),
            waiters: 0,
        }
    }
}
