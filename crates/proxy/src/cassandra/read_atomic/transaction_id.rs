//! Ids of transactions, and the partitions of their records.
//!
//! | bits of an id | content |
//! |---|---|
//! | 6…62 | microseconds since the Unix epoch, in steps of 64 |
//! | 0…5 | the number that the proxy has leased |
//!
//! An id is the timestamp with which Cassandra keeps the rows, in the same unit that other writers use.
//!
//! | bits of a bucket | content |
//! |---|---|
//! | 3…43 | bits 22…62 of the ids: about 4 s |
//! | 0…2 | a shard: bits 6…8 of the ids, so that records of one time are in several partitions |

/// How many proxies can have numbers at a time.
pub(crate) const NUMBERS: u8 = 64;
const NUMBER_BITS: u32 = 6;
const WINDOW_BITS: u32 = 22;
const SHARD_BITS: u32 = 3;

/// The id of a transaction; see the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AtomicTransactionId(pub(crate) i64);

/// The life of a proxy process, by a random number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Owner(pub(crate) i64);

/// The part of an owner's records that is one partition at the nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Bucket(pub(crate) i64);

impl AtomicTransactionId {
    /// Returns the first id of a number that is not before `now_us` and above `last`.
    ///
    /// # Panics
    /// Panics if there is no such number.
    pub(crate) fn after(last: AtomicTransactionId, now_us: i64, number: u8) -> AtomicTransactionId {
        assert!(number < NUMBERS, "{number} of {NUMBERS}");
        let step = (now_us >> NUMBER_BITS).max((last.0 >> NUMBER_BITS) + 1);
        AtomicTransactionId(step << NUMBER_BITS | i64::from(number))
    }

    /// Returns the bucket of its record.
    pub(crate) fn bucket(self) -> Bucket {
        let shard = self.0 >> NUMBER_BITS & ((1 << SHARD_BITS) - 1);
        Bucket(self.0 >> WINDOW_BITS << SHARD_BITS | shard)
    }
}

impl Bucket {
    /// The partition of a lease. No record is there.
    pub(crate) const LEASE: Bucket = Bucket(-1);

    /// Returns a timestamp in microseconds that is above all ids of this bucket.
    pub(crate) fn end_us(self) -> i64 {
        ((self.0 >> SHARD_BITS) + 1) << WINDOW_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_and_differ_between_numbers() {
        let now = 1_800_000_000_000_000;
        let mut last = AtomicTransactionId(0);
        for number in [0, 63, 5, 0] {
            let id = AtomicTransactionId::after(last, now, number);
            assert!(id > last && (id.0 - now).abs() < 1000, "{id:?}");
            assert_eq!(id.0 & 63, i64::from(number));
            last = id;
        }
        // A clock that goes back does not lead to a lower id.
        assert!(AtomicTransactionId::after(last, now - 1_000_000, 0) > last);
        let same: Vec<AtomicTransactionId> = (0..NUMBERS)
            .map(|number| AtomicTransactionId::after(AtomicTransactionId(0), now, number))
            .collect();
        assert!(same.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_bucket_ends_after_its_ids() {
        let mut last = AtomicTransactionId(1_800_000_000_000_000);
        let mut buckets = std::collections::BTreeSet::new();
        for _ in 0..200_000 {
            last = AtomicTransactionId::after(last, 0, 63);
            let bucket = last.bucket();
            assert!(last.0 < bucket.end_us());
            assert!(last.0 >= bucket.end_us() - (1 << WINDOW_BITS));
            buckets.insert(bucket);
        }
        // 200,000 steps of 64 µs are 12.8 s.
        assert!((24..=40).contains(&buckets.len()), "{}", buckets.len());
        assert!(Bucket::LEASE < *buckets.first().expect("some"));
    }
}
