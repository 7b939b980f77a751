//! The effect of a request on a key, given the lock that is there: the same for every kind of table.

use std::sync::Arc;

use crate::error::LockError;
use crate::limits::LockLimits;
use crate::lock::{Answer, ChangeEffect, ChangeVerdict, FencingToken, Lock, LockLease, Request};

/// What the table must do.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Nothing changes.
    Answer(Result<Answer, LockError>),
    /// Another owner holds the key; the request may wait.
    Wait(Lock),
    /// The key is held from now on.
    Set(Setting),
    /// The key is free from now on.
    Remove(Answer),
}

/// How the key is to be held.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) value: Arc<[u8]>,
    pub(crate) lease: LockLease,
    /// The token to keep; `None`: a new one is drawn.
    pub(crate) token: Option<FencingToken>,
    /// The lock that a change found; `None` for requests that answer `Granted`.
    pub(crate) found: Option<Option<Lock>>,
}

impl Setting {
    /// Returns the answer to the request, given the token and the lease that the holder gets.
    pub(crate) fn answer(&self, token: FencingToken, lease: LockLease) -> Answer {
        match &self.found {
            None => Answer::Granted { token, lease },
            Some(found) => Answer::Changed {
                found: found.clone(),
                effect: ChangeEffect::Set(token),
            },
        }
    }
}

/// Decides what `request` does to a key with this lock. A lock whose lease has ended counts as
/// `None`.
pub(crate) fn decide(request: &Request<'_>, lock: Option<Lock>, limits: &LockLimits) -> Decision {
    match *request {
        Request::Acquire { owner, lease, .. } => match lock {
            None => Decision::Set(granted(owner.into(), lease, None)),
            Some(lock) if &*lock.value == owner => extend(lock, lease),
            Some(lock) => Decision::Wait(lock),
        },
        Request::Renew { owner, lease } => match lock {
            Some(lock) if &*lock.value == owner => extend(lock, lease),
            lock => Decision::Answer(Ok(Answer::NotHeld(lock))),
        },
        Request::Release { owner } => match lock {
            Some(lock) if &*lock.value == owner => Decision::Remove(Answer::Released),
            lock => Decision::Answer(Ok(Answer::NotHeld(lock))),
        },
        Request::Info => Decision::Answer(Ok(Answer::Info(lock))),
        Request::Change(change) => judged(change.decide(lock.as_ref()), lock, limits),
    }
}

fn granted(value: Arc<[u8]>, lease: LockLease, token: Option<FencingToken>) -> Setting {
    Setting {
        value,
        lease,
        token,
        found: None,
    }
}

fn extend(lock: Lock, lease: LockLease) -> Decision {
    let lease = lease.max(lock.left);
    Decision::Set(granted(lock.value, lease, Some(lock.token)))
}

fn judged(verdict: ChangeVerdict, found: Option<Lock>, limits: &LockLimits) -> Decision {
    let changed = |found, effect| Answer::Changed { found, effect };
    match verdict {
        ChangeVerdict::Keep => Decision::Answer(Ok(changed(found, ChangeEffect::Kept))),
        ChangeVerdict::Remove if found.is_none() => {
            Decision::Answer(Ok(changed(found, ChangeEffect::Kept)))
        }
        ChangeVerdict::Remove => Decision::Remove(changed(found, ChangeEffect::Removed)),
        ChangeVerdict::Set { value, lease } => match limits.check_value(&value, lease) {
            Err(error) => Decision::Answer(Err(error)),
            Ok(()) => Decision::Set(Setting {
                token: found
                    .as_ref()
                    .filter(|lock| *lock.value == *value)
                    .map(|lock| lock.token),
                value: value.into(),
                lease,
                found: Some(found),
            }),
        },
    }
}
