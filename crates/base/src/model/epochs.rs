//! The part of a store's epochs that the journal needs.

use super::ids::Epoch;

/// The global epoch of one store, as seen by the component that makes epochs durable.
///
/// Invariants:
/// 1. The current epoch only grows, by one at a time, and passes from *e* to *e* + 1 only when no
///    worker is active in an epoch before *e*.
/// 2. A transaction's commit epoch is at least the epoch in which its worker was active.
/// 3. When [`finished`](EpochClock::finished) returns *f*, every transaction of an epoch ≤ *f*
///    has either committed, its log records handed to the log, or aborted; and no later
///    transaction gets such an epoch.
pub trait EpochClock: Send + Sync {
    /// Returns the current epoch.
    fn current(&self) -> Epoch;

    /// Tries to move from `from` to the next epoch and returns the current one. The epoch stays as
    /// it is if a worker is still active in an earlier one, or if another thread has moved it.
    fn advance(&self, from: Epoch) -> Epoch;

    /// Returns the newest epoch in which nothing happens any more (invariant 3). It is below the
    /// current epoch; idle workers do not hold it back.
    fn finished(&self) -> Epoch;

    /// Returns the time stamp of `epoch`, which must be the current epoch or the one before:
    /// milliseconds since the Unix epoch, never decreasing from epoch to epoch.
    fn stamp_ms(&self, epoch: Epoch) -> u64;
}
