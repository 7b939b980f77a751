//! Limits on what clients may ask for.

use std::time::Duration;

use crate::error::LockError;
use crate::lock::{LockLease, Request};

/// The shortest lease: records have leases in milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// Limits on what clients may ask for.
#[derive(Clone, Debug)]
pub struct LockLimits {
    /// The longest key, in bytes.
    pub key: usize,
    /// The longest owner, in bytes.
    pub owner: usize,
    /// The longest value that a change sets, in bytes.
    pub value: usize,
    /// The longest lease.
    pub lease: Duration,
    /// The largest number of locks (of a shared table: of keys that this proxy may know).
    pub locks: usize,
    /// The largest number of bytes of all keys and values of a table in memory together. The table
    /// takes some hundred bytes more for each lock.
    pub bytes: usize,
    /// The largest number of requests that wait for one key. In a table that a partition keeps, as
    /// many again may be under way that wait for no other holder, and as many again that prolong or
    /// release locks: a holder can give its lock up however many others ask.
    pub waiters: usize,
    /// The same limit for all keys together.
    pub all_waiters: usize,
}

impl Default for LockLimits {
    fn default() -> LockLimits {
        LockLimits {
            key: 1024,
            owner: 1024,
            value: 64 * 1024,
            lease: Duration::from_secs(24 * 60 * 60),
            locks: 1_000_000,
            bytes: 1 << 30,
            waiters: 10_000,
            all_waiters: 100_000,
        }
    }
}

impl LockLimits {
    pub(crate) fn check(&self, key: &[u8], request: &Request<'_>) -> Result<(), LockError> {
        if key.is_empty() || key.len() > self.key {
            return Err(LockError::KeyLength { limit: self.key });
        }
        match *request {
            Request::Acquire { owner, .. } | Request::Renew { owner, .. }
                if owner.len() > self.owner =>
            {
                Err(LockError::ValueLength { limit: self.owner })
            }
            Request::Acquire { lease, .. } | Request::Renew { lease, .. } => {
                self.check_lease(lease)
            }
            Request::Release { .. } | Request::Info | Request::Change(_) => Ok(()),
        }
    }

    pub(crate) fn check_value(&self, value: &[u8], lease: LockLease) -> Result<(), LockError> {
        if value.len() > self.value {
            return Err(LockError::ValueLength { limit: self.value });
        }
        self.check_lease(lease)
    }

    fn check_lease(&self, lease: LockLease) -> Result<(), LockError> {
        match lease {
            LockLease::For(time) if time < SHORTEST || time > self.lease => {
                Err(LockError::LeaseLength { limit: self.lease })
            }
            LockLease::For(_) | LockLease::Endless => Ok(()),
        }
    }
}
