//! Requests to a table of locks, and their answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::moment::{MonotonicTime, by_one_clock};

/// A fencing token. The tokens that are granted for one key grow, whichever proxy grants them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FencingToken(pub u64);

impl FencingToken {
    /// Low bits that count the tokens of one millisecond.
    pub const COUNTER_BITS: u32 = 20;

    /// Returns the first token of a millisecond since the Unix epoch.
    #[must_use]
    pub fn at_ms(ms: u64) -> FencingToken {
        FencingToken(ms << Self::COUNTER_BITS)
    }

    /// Returns the millisecond to which the token belongs.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a request that is not answered at once. The caller chooses it; no two requests that wait
/// may have the same ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// How long a lock is held if it is not released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockLease {
    /// This time from the grant on. The holder counts from when it *sent* its request, and uses the
    /// lease in [`Answer::Granted`].
    For(Duration),
    /// Until it is released.
    Endless,
}

impl LockLease {
    /// Returns the lease for the answer to a holder whose request came at `came` and was granted at
    /// `began`. The holder counts from when it sent its request, so the lease lasts that much
    /// longer. The time between counts as it would on the slowest clock, so that no holder counts
    /// longer than the table does.
    pub(crate) fn told(self, came: MonotonicTime, began: MonotonicTime) -> LockLease {
        match self {
            LockLease::For(time) => {
                LockLease::For(time.saturating_add(by_one_clock(began.since(came))))
            }
            LockLease::Endless => LockLease::Endless,
        }
    }

    /// Returns the longer of the two.
    #[must_use]
    pub fn max(self, other: LockLease) -> LockLease {
        match (self, other) {
            (LockLease::For(one), LockLease::For(two)) => LockLease::For(one.max(two)),
            _ => LockLease::Endless,
        }
    }
}

/// A lock as a table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The owner, or the value that a [`Change`] has set.
    pub value: Arc<[u8]>,
    /// The token of the grant.
    pub token: FencingToken,
    /// The most that is left of the lease.
    pub left: LockLease,
    /// Number of requests that wait for the key at this proxy.
    pub waiters: usize,
}

/// The decision of a [`Change`] about its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeVerdict {
    /// The key stays as it is.
    Keep,
    /// The key is held with this value from now on. The token is a new one, unless the same value
    /// was there already.
    Set {
        /// The value.
        value: Vec<u8>,
        /// The lease, which replaces the one before and may be shorter.
        lease: LockLease,
    },
    /// The key is free from now on.
    Remove,
}

/// The effect of a [`Change`] on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeEffect {
    /// Nothing: that was the verdict, or the key to be freed was not held.
    Kept,
    /// It set the key, which has this token.
    Set(FencingToken),
    /// It freed the key.
    Removed,
}

/// A decision about a key that depends on the lock that is there. It may be called several times for
/// one request, and must depend on its argument alone.
#[derive(Clone)]
pub struct Change(Arc<Decide>);

type Decide = dyn Fn(Option<&Lock>) -> ChangeVerdict + Send + Sync;

impl Change {
    /// Creates a change that `decide` decides. A table in memory calls it with a part of the table
    /// locked, so it should be short.
    pub fn new(decide: impl Fn(Option<&Lock>) -> ChangeVerdict + Send + Sync + 'static) -> Change {
        Change(Arc::new(decide))
    }

    pub(crate) fn decide(&self, lock: Option<&Lock>) -> ChangeVerdict {
        (self.0)(lock)
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

/// A request about a key.
#[derive(Clone, Debug)]
pub enum Request<'a> {
    /// Acquires the key. If `owner` holds it already, it gets the same token, and the lease becomes
    /// the longer of what was left and `lease`. Answers `Granted` or `Held`.
    Acquire {
        /// The new holder.
        owner: &'a [u8],
        /// The lease, from the grant on.
        lease: LockLease,
        /// The longest time to wait, first come first served, while others hold the key.
        wait: Duration,
    },
    /// Prolongs the lease to at least this one. Answers `Granted` or `NotHeld`.
    Renew {
        /// The holder.
        owner: &'a [u8],
        /// The lease from now on.
        lease: LockLease,
    },
    /// Frees the key. Answers `Released` or `NotHeld`.
    Release {
        /// The holder.
        owner: &'a [u8],
    },
    /// Asks who holds the key. Answers `Info`.
    Info,
    /// Changes the key as the decision says. Answers `Changed`.
    Change(&'a Change),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The owner holds the key.
    Granted {
        /// The token.
        token: FencingToken,
        /// The lease, counted from when the holder sent the request: it includes the time that the
        /// request had waited when the lease began.
        lease: LockLease,
    },
    /// Another owner holds the key, and has held it for as long as the request could wait.
    Held(Lock),
    /// The key is free.
    Released,
    /// The owner does not hold the key; another owner may.
    NotHeld(Option<Lock>),
    /// The lock of the key, if it is held.
    Info(Option<Lock>),
    /// The change was decided and carried out.
    Changed {
        /// The lock that it found.
        found: Option<Lock>,
        /// What it did.
        effect: ChangeEffect,
    },
    /// The locks that were asked for, in the order of their keys.
    Listing(Vec<(Vec<u8>, Lock)>),
}

/// A [`Request`] that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) enum OwnedRequest {
    Acquire {
        owner: Arc<[u8]>,
        lease: LockLease,
        wait: Duration,
    },
    Renew {
        owner: Arc<[u8]>,
        lease: LockLease,
    },
    Release {
        owner: Arc<[u8]>,
    },
    Info,
    Change(Change),
}

impl OwnedRequest {
    pub(crate) fn new(request: &Request<'_>) -> OwnedRequest {
        match *request {
            Request::Acquire { owner, lease, wait } => {
                let owner = owner.into();
                OwnedRequest::Acquire { owner, lease, wait }
            }
            Request::Renew { owner, lease } => {
                let owner = owner.into();
                OwnedRequest::Renew { owner, lease }
            }
            Request::Release { owner } => {
                let owner = owner.into();
                OwnedRequest::Release { owner }
            }
            Request::Info => OwnedRequest::Info,
            Request::Change(change) => OwnedRequest::Change(change.clone()),
        }
    }

    pub(crate) fn as_request(&self) -> Request<'_> {
        match self {
            OwnedRequest::Acquire { owner, lease, wait } => {
                let (lease, wait) = (*lease, *wait);
                Request::Acquire { owner, lease, wait }
            }
            OwnedRequest::Renew { owner, lease } => {
                let lease = *lease;
                Request::Renew { owner, lease }
            }
            OwnedRequest::Release { owner } => Request::Release { owner },
            OwnedRequest::Info => Request::Info,
            OwnedRequest::Change(change) => Request::Change(change),
        }
    }
}
