//! The parts of the file that a thread reads, and its use of a cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pages::{Address, Cache, PageNo, SegmentId};

use super::{Order, Work};
use crate::content::Checker;

/// Accesses of a trace that a thread takes at once.
const TAKEN: usize = 32;

/// Offsets for one thread.
pub(super) struct Feed<'f> {
    work: &'f Work<'f>,
    rng: fastrand::Rng,
    /// Units of the file.
    units: u64,
    /// Accesses of the trace that this thread has taken, and not read yet.
    mine: std::ops::Range<usize>,
    /// Reads that were spared.
    spared: u64,
}

/// The most bytes that a cache needs for a unit besides its own.
const AROUND: u64 = 256;

/// Returns a cache that takes so many units of this size.
pub(super) fn cache(unit: usize, units: u64) -> Cache<Box<[u8]>> {
    Cache::with_pages_of(unit as u64, units * (unit as u64 + AROUND))
}

fn address(offset: u64, unit: usize) -> Address {
    Address {
        segment: SegmentId(0),
        page: PageNo((offset / unit as u64) as u32),
    }
}

impl<'f> Feed<'f> {
    /// Creates offsets within the first bytes of a file.
    pub(super) fn new(work: &'f Work<'f>, seed: u64, bytes: u64) -> Feed<'f> {
        Feed {
            work,
            rng: fastrand::Rng::with_seed(seed),
            units: (bytes / work.job.unit as u64).max(1),
            mine: 0..0,
            spared: 0,
        }
    }

    /// Returns the offset of the next read; `None` when there is nothing more to read.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        let unit = self.work.job.unit as u64;
        let Some(trace) = &self.work.trace else {
            return Some(self.rng.u64(0..self.units) * unit);
        };
        if self.mine.is_empty() {
            let all = trace.accesses.len();
            let from = self.work.taken.fetch_add(TAKEN, Ordering::Relaxed).min(all);
            self.mine = from..(from + TAKEN).min(all);
        }
        let access = self.mine.next()?;
        Some(match self.work.job.order {
            Order::Replay { .. } => trace.offset(access) / unit * unit,
            Order::Random | Order::Counted => self.rng.u64(0..self.units) * unit,
        })
    }

    /// Looks up a unit in the cache, and checks it if it is there. Returns `true` if it was.
    #[inline]
    pub(super) fn cached(&mut self, offset: u64, checker: &mut Checker) -> Result<bool, String> {
        let Some(cache) = &self.work.cache else {
            return Ok(false);
        };
        match cache.get(address(offset, self.work.job.unit)) {
            Some(unit) => {
                self.spared += 1;
                checker.check(offset, &unit).map(|()| true)
            }
            None => Ok(false),
        }
    }

    /// Notes that a read waits for another one of the same unit.
    pub(super) fn joined(&mut self) {
        self.spared += 1;
    }

    /// Checks a unit that was read, and keeps it if there is a cache.
    #[inline]
    pub(super) fn came(
        &self,
        offset: u64,
        unit: &[u8],
        checker: &mut Checker,
    ) -> Result<(), String> {
        checker.check(offset, unit)?;
        if let Some(cache) = &self.work.cache {
            cache.insert(address(offset, unit.len()), Arc::new(unit.into()));
        }
        Ok(())
    }
}

impl Drop for Feed<'_> {
    fn drop(&mut self) {
        self.work.spared.fetch_add(self.spared, Ordering::Relaxed);
    }
}
