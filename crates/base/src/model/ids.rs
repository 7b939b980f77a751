//! Ids of epochs, transactions, versions, nodes and partitions.
//!
//! A [`Tid`] is a 64-bit word:
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 63…22 | epoch | the epoch in which the transaction committed (42 bits) |
//! | 21…2 | sequence | orders transactions of one epoch that depend on each other (20 bits) |
//! | 1…0 | zero | room for the marks of a [`Version`] |
//!
//! Invariants:
//! 1. A transaction's TID is greater than every TID that it read or overwrote.
//! 2. The TIDs of one key only grow, also over deletion, restart and recovery.

use std::fmt;

/// A period of time, common to all workers of a store, in which transactions commit.
/// Epoch 0 comes before everything: the data of epoch 0 is durable by definition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch before everything.
    pub const ZERO: Epoch = Epoch(0);

    /// Returns the epoch after this one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }

    /// Returns the epoch before this one; that of zero is zero.
    #[must_use]
    pub fn prev(self) -> Epoch {
        Epoch(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A transaction id: commit epoch and sequence. See the module's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tid(u64);

impl Tid {
    /// The TID of data that was never written.
    pub const ZERO: Tid = Tid(0);
    /// Bits of the sequence number.
    pub const SEQUENCE_BITS: u32 = 20;
    const MARK_BITS: u32 = 2;
    const EPOCH_SHIFT: u32 = Self::SEQUENCE_BITS + Self::MARK_BITS;

    /// Returns the TID of `sequence` within `epoch`.
    ///
    /// # Panics
    /// Panics if either does not fit its field.
    #[must_use]
    pub fn new(epoch: Epoch, sequence: u32) -> Tid {
        assert!(sequence < 1 << Self::SEQUENCE_BITS, "sequence out of range");
        assert!(
            epoch.0 < 1 << (64 - Self::EPOCH_SHIFT),
            "epoch out of range"
        );
        Tid(epoch.0 << Self::EPOCH_SHIFT | u64::from(sequence) << Self::MARK_BITS)
    }

    /// Returns the epoch in which the transaction committed.
    #[must_use]
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::EPOCH_SHIFT)
    }

    /// Returns the sequence within the epoch.
    #[must_use]
    pub fn sequence(self) -> u32 {
        (self.0 >> Self::MARK_BITS) as u32 & ((1 << Self::SEQUENCE_BITS) - 1)
    }

    /// Returns the smallest TID above this one whose epoch is `epoch`, which must not be below this
    /// TID's epoch; `None` when the epoch's sequence numbers are used up.
    #[must_use]
    pub fn next_in(self, epoch: Epoch) -> Option<Tid> {
        debug_assert!(self.epoch() <= epoch, "a TID from the future");
        if self.epoch() < epoch {
            return Some(Tid::new(epoch, 0));
        }
        let next = self.sequence() + 1;
        (next < 1 << Self::SEQUENCE_BITS).then(|| Tid::new(epoch, next))
    }

    /// Returns the word, for logs and messages.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the TID of a word; the mark bits are dropped.
    #[must_use]
    pub fn from_bits(bits: u64) -> Tid {
        Tid(bits & !((1 << Self::MARK_BITS) - 1))
    }
}

/// The version of a key as `WATCH` sees it: a [`Tid`], and a mark that tells if the key was
/// present. A key never has the same version again after it changed, and absences have versions
/// too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version(u64);

impl Version {
    /// Returns the version of a key that is present, written by transaction `tid`.
    #[must_use]
    pub fn present(tid: Tid) -> Version {
        Version(tid.0)
    }

    /// Returns the version of a key that is absent: deleted, expired, flushed or never written.
    /// `floor` is at least the TID of any earlier write to it, and below that of any later one.
    #[must_use]
    pub fn absent(floor: Tid) -> Version {
        Version(floor.0 | 1)
    }

    /// Returns the version of a key that is present in a database which has another database's namespace,
    /// after an exchange of databases. One transaction may have written a key in both namespaces, with one
    /// TID: the two are different versions.
    #[must_use]
    pub fn exchanged(self, namespace: u16) -> Version {
        Version(self.0 ^ (u64::from(namespace) + 1) << 47)
    }

    /// Returns the word, for messages.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the version of a word.
    #[must_use]
    pub fn from_bits(bits: u64) -> Version {
        Version(bits)
    }
}

/// A node of a cluster: its number in the cluster's file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition of a cluster: its number in the cluster's file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId(pub u16);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point of a hybrid clock: milliseconds since the Unix epoch in bits 63…16, a counter in bits
/// 15…0 that orders what happens within one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Before everything.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Bits of the counter.
    pub const COUNTER_BITS: u32 = 16;

    /// Returns the first point of a millisecond.
    #[must_use]
    pub fn at_ms(ms: u64) -> Timestamp {
        Timestamp(ms << Self::COUNTER_BITS)
    }

    /// Returns the milliseconds since the Unix epoch.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }

    /// Returns the point after this one.
    #[must_use]
    pub fn next(self) -> Timestamp {
        Timestamp(self.0 + 1)
    }
}

/// Names one attempt of a transaction over several partitions, or one write of a read-atomic key.
/// An id is never used twice: `unique` belongs to the coordinator's node, to its current run, and
/// to the attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransactionId {
    /// The commit timestamp, which the coordinator draws beforehand.
    pub timestamp: Timestamp,
    /// Distinguishes attempts of one timestamp from each other.
    pub unique: u64,
}

impl TransactionId {
    /// Bytes of an id in logs and messages.
    pub const BYTES: usize = 16;

    /// The id before all others: that of data that was written without an id.
    pub const ZERO: TransactionId = TransactionId {
        timestamp: Timestamp::ZERO,
        unique: 0,
    };

    /// Returns the id as bytes, whose order is that of ids.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let both = u128::from(self.timestamp.0) << 64 | u128::from(self.unique);
        both.to_be_bytes()
    }

    /// Returns the id of the bytes of [`TransactionId::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> TransactionId {
        let both = u128::from_be_bytes(bytes);
        TransactionId {
            timestamp: Timestamp((both >> 64) as u64),
            unique: both as u64,
        }
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.timestamp.0, self.unique)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tid_keeps_its_parts() {
        let tid = Tid::new(Epoch(77), 13);
        assert_eq!((tid.epoch(), tid.sequence()), (Epoch(77), 13));
        assert_eq!(Tid::from_bits(tid.to_bits()), tid);
    }

    #[test]
    fn next_stays_in_the_epoch_and_ends_with_it() {
        let tid = Tid::new(Epoch(4), 9);
        assert_eq!(tid.next_in(Epoch(4)), Some(Tid::new(Epoch(4), 10)));
        assert_eq!(tid.next_in(Epoch(5)), Some(Tid::new(Epoch(5), 0)));
        let last = Tid::new(Epoch(4), (1 << Tid::SEQUENCE_BITS) - 1);
        assert_eq!(last.next_in(Epoch(4)), None);
        assert!(last < Tid::new(Epoch(5), 0));
    }

    #[test]
    fn ids_of_attempts_are_ordered_as_their_bytes() {
        let id = |ms, unique| TransactionId {
            timestamp: Timestamp::at_ms(ms).next(),
            unique,
        };
        let ids = [id(1, 9), id(2, 3), id(2, u64::MAX), id(1 << 47, 0)];
        assert!(ids.is_sorted_by_key(|id| id.to_bytes()) && ids.is_sorted());
        for id in ids {
            assert_eq!(TransactionId::from_bytes(id.to_bytes()), id);
        }
        assert_eq!(ids[3].timestamp.ms(), 1 << 47);
    }

    #[test]
    fn presence_is_part_of_a_version() {
        let tid = Tid::new(Epoch(1), 1);
        assert_ne!(Version::present(tid), Version::absent(tid));
    }
}
