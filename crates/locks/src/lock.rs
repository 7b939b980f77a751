//! What is asked of a table of locks, and what it answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::moment::{Moment, by_one_clock};

/// A fencing token. The tokens that are granted for one key grow, whoever grants them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

impl Token {
    /// Low bits that count the tokens of one millisecond.
    pub const COUNTER_BITS: u32 = 20;

    /// The first token of a millisecond since the Unix epoch.
    #[must_use]
    pub fn at_ms(ms: u64) -> Token {
        Token(ms << Self::COUNTER_BITS)
    }

    /// The millisecond that a token belongs to.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a request that is not answered at once. The caller chooses it; no two requests that wait
/// may have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// For how long a lock is held if nobody releases it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lease {
    /// So long from the grant. The holder counts from when it *sent* its request, and takes what
    /// [`Answer::Granted`] tells.
    For(Duration),
    /// Until it is released.
    Endless,
}

impl Lease {
    /// What is told of a lease to who asked at `came` and got it at `began`, and counts from when it
    /// sent its request: it lasts that much longer. The time between counts as it would on the
    /// slowest clock, so that no holder counts longer than the table does.
    pub(crate) fn told(self, came: Moment, began: Moment) -> Lease {
        match self {
            Lease::For(time) => Lease::For(time.saturating_add(by_one_clock(began.since(came)))),
            Lease::Endless => Lease::Endless,
        }
    }

    /// The longer of the two.
    #[must_use]
    pub fn max(self, other: Lease) -> Lease {
        match (self, other) {
            (Lease::For(one), Lease::For(two)) => Lease::For(one.max(two)),
            _ => Lease::Endless,
        }
    }
}

/// A lock as a table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The owner, or whatever [`Change`] has set.
    pub value: Arc<[u8]>,
    /// The token of the grant.
    pub token: Token,
    /// How much of the lease is left, at most.
    pub left: Lease,
    /// How many requests wait for the key here.
    pub waiters: usize,
}

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Keep,
    /// It is held with this value from now on. The token is a new one, unless the same value was
    /// there already.
    Set {
        /// The value.
        value: Vec<u8>,
        /// The lease, which replaces the one before and may be shorter.
        lease: Lease,
    },
    /// It is free from now on.
    Remove,
}

/// What a [`Change`] did to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: that was the verdict, or nobody held what was to be removed.
    Kept,
    /// It set the key, which has this token.
    Set(Token),
    /// It freed the key.
    Removed,
}

/// A decision about a key that looks at what is there. It may be called several times for one
/// request, and must depend on its argument alone.
#[derive(Clone)]
pub struct Change(Arc<Decide>);

type Decide = dyn Fn(Option<&Lock>) -> Verdict + Send + Sync;

impl Change {
    /// A change that `decide` decides. In the table of one authority it is called with a part of
    /// the table locked, and should be short.
    pub fn new(decide: impl Fn(Option<&Lock>) -> Verdict + Send + Sync + 'static) -> Change {
        Change(Arc::new(decide))
    }

    pub(crate) fn decide(&self, lock: Option<&Lock>) -> Verdict {
        (self.0)(lock)
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

/// What may be asked about a key.
#[derive(Clone, Debug)]
pub enum Request<'a> {
    /// Holds the key. If `owner` holds it already it gets the same token, and the lease becomes as
    /// long as the longer of what was left and `lease`. Answers `Granted` or `Held`.
    Acquire {
        /// Who is to hold it.
        owner: &'a [u8],
        /// For how long, from the grant on.
        lease: Lease,
        /// How long to wait, first come first served, while others hold it.
        wait: Duration,
    },
    /// Makes the lease at least so long. Answers `Granted` or `NotHeld`.
    Renew {
        /// Who holds it.
        owner: &'a [u8],
        /// For how long from now on.
        lease: Lease,
    },
    /// Frees the key. Answers `Released` or `NotHeld`.
    Release {
        /// Who holds it.
        owner: &'a [u8],
    },
    /// Who holds the key. Answers `Info`.
    Info,
    /// Changes the key as its decision says. Answers `Changed`.
    Change(&'a Change),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The owner holds the key.
    Granted {
        /// The token.
        token: Token,
        /// The lock lasts so long from when its holder sent the request: the lease, and for how long
        /// the request had waited when it began.
        lease: Lease,
    },
    /// Somebody else holds the key, and has for as long as the request wanted to wait.
    Held(Lock),
    /// The key is free.
    Released,
    /// The owner does not hold the key; somebody else may.
    NotHeld(Option<Lock>),
    /// Who holds the key, if somebody does.
    Info(Option<Lock>),
    /// The change was decided and done.
    Changed {
        /// What it found.
        found: Option<Lock>,
        /// What it did.
        effect: Effect,
    },
    /// The locks that were asked for, in the order of their keys.
    Listing(Vec<(Vec<u8>, Lock)>),
}

/// A [`Request`] that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Acquire {
        owner: Arc<[u8]>,
        lease: Lease,
        wait: Duration,
    },
    Renew {
        owner: Arc<[u8]>,
        lease: Lease,
    },
    Release {
        owner: Arc<[u8]>,
    },
    Info,
    Change(Change),
}

impl Wanted {
    pub(crate) fn new(request: &Request<'_>) -> Wanted {
        match *request {
            Request::Acquire { owner, lease, wait } => {
                let owner = owner.into();
                Wanted::Acquire { owner, lease, wait }
            }
            Request::Renew { owner, lease } => {
                let owner = owner.into();
                Wanted::Renew { owner, lease }
            }
            Request::Release { owner } => {
                let owner = owner.into();
                Wanted::Release { owner }
            }
            Request::Info => Wanted::Info,
            Request::Change(change) => Wanted::Change(change.clone()),
        }
    }

    pub(crate) fn as_request(&self) -> Request<'_> {
        match self {
            Wanted::Acquire { owner, lease, wait } => {
                let (lease, wait) = (*lease, *wait);
                Request::Acquire { owner, lease, wait }
            }
            Wanted::Renew { owner, lease } => {
                let lease = *lease;
                Request::Renew { owner, lease }
            }
            Wanted::Release { owner } => Request::Release { owner },
            Wanted::Info => Request::Info,
            Wanted::Change(change) => Request::Change(change),
        }
    }
}
