//! The least versions of absent keys.
//!
//! When a deleted record leaves the index, no data is left that could show when its key changed
//! last. A floor shows an upper bound: not after this TID. Keys share floors by their hash, so that
//! a floor may be higher than a key's own history; a `WATCH` on an absent key may therefore see a
//! change that did not happen, and never misses one that did.
//!
//! Invariant: a record's TID goes into its floor before the record leaves the index, and only
//! when that TID's epoch has finished, so that any later write to the key has a greater TID.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Tid;

const FLOORS: usize = 1 << 14;

pub(crate) struct Floors(Box<[AtomicU64]>);

impl Floors {
    pub(crate) fn new() -> Floors {
        Floors((0..FLOORS).map(|_| AtomicU64::new(0)).collect())
    }

    fn floor(&self, key: &[u8]) -> &AtomicU64 {
        // Not the index's hash: floors of one engine need no secret, and FNV-1a is short.
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        &self.0[(hash ^ (hash >> 32)) as usize % FLOORS]
    }

    pub(crate) fn get(&self, key: &[u8]) -> Tid {
        Tid::from_bits(self.floor(key).load(Ordering::Acquire))
    }

    pub(crate) fn raise(&self, key: &[u8], tid: Tid) {
        self.floor(key).fetch_max(tid.to_bits(), Ordering::AcqRel);
    }

    /// Raises all floors to `tid`: after a recovery, nothing is known of earlier absences.
    pub(crate) fn raise_all(&self, tid: Tid) {
        for floor in &self.0 {
            floor.fetch_max(tid.to_bits(), Ordering::AcqRel);
        }
    }
}
