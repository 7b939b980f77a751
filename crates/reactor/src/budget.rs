//! Memory in flight: what the connections of a process hold of requests and replies, and the bound that all of them
//! have together.
//!
//! Each connection has a [`Share`], which it keeps at the size of its data. A share that would
//! exceed the rest of the budget is refused: its owner closes the connection. Dropping a share
//! gives its bytes back.
//!
//! Invariant: the sum of all shares is at most the limit, except for shares that grew at the same
//! time as others, each by its last increase.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shares are counted in pieces of so many bytes, and smaller amounts are not counted: most
/// connections hold a few kilobytes for a moment, and must not contend for one counter.
const PIECE: u64 = 64 * 1024;

/// A limit on the total bytes of all shares.
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

    /// Returns the limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the total of all shares, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// One connection's part of a [`Budget`].
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    taken: u64,
}

/// The budget has no room for the data of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Share {
    /// Returns an empty share.
    #[must_use]
    pub fn new(budget: &Arc<Budget>) -> Share {
        Share {
            budget: Arc::clone(budget),
            taken: 0,
        }
    }

    /// Sets the bytes that the connection holds now. Parts of 64 KiB are not counted.
    ///
    /// # Errors
    /// Returns [`Full`] if that is more than before and exceeds the rest of the budget; the share
    /// stays as it was.
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

    /// Returns the size of the share, in bytes.
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
        // Other shares may use the bytes that a share gives back.
        assert_eq!(one.set(0), Ok(()));
        assert_eq!(two.set(1024 * KIB), Ok(()));
        drop(two);
        assert_eq!(budget.used(), 0);
    }
}
