//! What the connections of a process share: memory, and places before they have authenticated.
//!
//! | part | concept |
//! |---|---|
//! | this | memory in flight: what connections hold of requests and replies, and the bound that all of them have together |
//! | [`newcomers`] | connections that have not authenticated yet |
//!
//! Each connection has a [`Share`], which it keeps at what it holds. A share that would take more than is left
//! is refused: its owner closes the connection. What a share has is given back when it is dropped.
//!
//! Invariant: the sum of all shares is at most the limit, but for shares that grew while others did, each by what
//! it added last.

#![forbid(unsafe_code)]

pub mod newcomers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shares are counted in pieces of so many bytes, and what is less is not counted: most connections hold a few
/// kilobytes for a moment, and must not contend for one counter.
const PIECE: u64 = 64 * 1024;

/// A bound on the bytes that all shares have together.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// Returns a budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget {
            limit,
            used: AtomicU64::new(0),
        })
    }

    /// Returns the bound, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns what all shares have together, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one connection has of a [`Budget`].
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    taken: u64,
}

/// There is no room for what a connection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Share {
    /// Returns a share that has nothing yet.
    #[must_use]
    pub fn new(budget: &Arc<Budget>) -> Share {
        Share {
            budget: Arc::clone(budget),
            taken: 0,
        }
    }

    /// Says that the connection holds `bytes` now. Parts of 64 KiB are not counted.
    ///
    /// # Errors
    /// [`Full`] if that is more than before and more than is left; the share stays as it was.
    #[inline]
    pub fn set(&mut self, bytes: usize) -> Result<(), Full> {
        let wanted = bytes as u64 / PIECE * PIECE;
        match wanted == self.taken {
            true => Ok(()),
            false => self.change(wanted),
        }
    }

    #[cold]
    fn change(&mut self, wanted: u64) -> Result<(), Full> {
        let used = &self.budget.used;
        if wanted < self.taken {
            used.fetch_sub(self.taken - wanted, Ordering::Relaxed);
        } else {
            let more = wanted - self.taken;
            if used.load(Ordering::Relaxed).saturating_add(more) > self.budget.limit {
                return Err(Full);
            }
            used.fetch_add(more, Ordering::Relaxed);
        }
        self.taken = wanted;
        Ok(())
    }

    /// Returns what the share has, in bytes.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn shares_are_bounded_together() {
        let budget = Budget::new(1 << 20);
        let (mut one, mut two) = (Share::new(&budget), Share::new(&budget));
        assert_eq!(one.set(63 * KIB), Ok(()));
        assert_eq!(budget.used(), 0, "little is not counted");
        assert_eq!(one.set(700 * KIB), Ok(()));
        assert_eq!(budget.used(), 640 * 1024);
        assert_eq!(two.set(500 * KIB), Err(Full));
        assert_eq!((two.taken(), budget.used()), (0, 640 * 1024));
        assert_eq!(two.set(384 * KIB), Ok(()));
        assert_eq!(one.set(704 * KIB), Err(Full));
        // What a share gives back others may have.
        assert_eq!(one.set(0), Ok(()));
        assert_eq!(two.set(1024 * KIB), Ok(()));
        drop(two);
        assert_eq!(budget.used(), 0);
    }
}
