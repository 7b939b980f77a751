//! What clients ask for.

use std::time::Duration;

use crate::lock::{Change, ChangeVerdict, LockLease, Request};

/// A client's request, under one of its names.
#[derive(Clone, Debug)]
pub(super) struct ClientRequest {
    pub(super) owner: String,
    pub(super) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Acquire {
        lease: Duration,
        wait: Duration,
    },
    Renew {
        lease: Duration,
    },
    Release,
    Info,
    /// A change that acquires the key if it is free.
    Insert {
        lease: Duration,
    },
    /// A change that frees the key if this owner holds it.
    Delete,
}

impl ClientRequest {
    pub(super) fn wait(&self) -> Duration {
        match self.what {
            What::Acquire { wait, .. } => wait,
            _ => Duration::ZERO,
        }
    }

    /// Calls `f` with the request.
    pub(super) fn with<T>(&self, f: impl FnOnce(&Request<'_>) -> T) -> T {
        let owner = self.owner.as_bytes();
        let name = owner.to_vec();
        match self.what {
            What::Acquire { lease, wait } => {
                let lease = LockLease::For(lease);
                f(&Request::Acquire { owner, lease, wait })
            }
            What::Renew { lease } => {
                let lease = LockLease::For(lease);
                f(&Request::Renew { owner, lease })
            }
            What::Release => f(&Request::Release { owner }),
            What::Info => f(&Request::Info),
            What::Insert { lease } => {
                let change = Change::new(move |lock| match lock {
                    Some(_) => ChangeVerdict::Keep,
                    None => ChangeVerdict::Set {
                        value: name.clone(),
                        lease: LockLease::For(lease),
                    },
                });
                f(&Request::Change(&change))
            }
            What::Delete => {
                let change = Change::new(move |lock| match lock {
                    Some(lock) if *lock.value == *name => ChangeVerdict::Remove,
                    _ => ChangeVerdict::Keep,
                });
                f(&Request::Change(&change))
            }
        }
    }
}
