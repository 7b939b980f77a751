//! What the threads of a run share, and the parts of the file that each of them reads, perhaps
//! through a cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pages::{Cache, PageAddress, PageNo, SegmentId};

use super::job::{AccessPattern, ReadsJob};
use super::timeline::ReaderThreads;
use crate::content::Checker;
use crate::content_file::ContentFile;
use crate::error::RunError;
use crate::replay::PageTrace;
use crate::run_context::RunContext;

/// Accesses of a trace that a thread takes at once.
const TAKEN: usize = 32;

/// The state that the reading threads of a run share.
pub(super) struct ReadRun<'w> {
    pub(super) job: &'w ReadsJob,
    pub(super) context: &'w RunContext<'w>,
    pub(super) file: Arc<ContentFile>,
    pub(super) trace: Option<Arc<PageTrace>>,
    /// The number of accesses of the trace that were taken.
    pub(super) taken: AtomicUsize,
    pub(super) cache: Option<Cache<Box<[u8]>>>,
    /// Reads that the cache had, or that waited for another read of the same unit.
    pub(super) spared: AtomicU64,
    pub(super) tally: ReaderThreads,
}

impl ReadRun<'_> {
    /// Returns the offsets of one of the threads.
    pub(super) fn offsets(&self, thread: usize, readable: u64) -> OffsetSource<'_> {
        let seed =
            self.context.seed.wrapping_add(thread as u64) ^ (self.context.number as u64) << 32;
        OffsetSource::new(self, seed, readable.min(self.file.len()))
    }
}

/// Offsets for one thread.
pub(super) struct OffsetSource<'f> {
    work: &'f ReadRun<'f>,
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

fn address(offset: u64, unit: usize) -> PageAddress {
    PageAddress {
        segment: SegmentId(0),
        page: PageNo((offset / unit as u64) as u32),
    }
}

impl<'f> OffsetSource<'f> {
    /// Creates offsets within the first bytes of a file.
    pub(super) fn new(work: &'f ReadRun<'f>, seed: u64, bytes: u64) -> OffsetSource<'f> {
        OffsetSource {
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
            AccessPattern::Replay { .. } => trace.offset(access) / unit * unit,
            AccessPattern::Random | AccessPattern::Counted => self.rng.u64(0..self.units) * unit,
        })
    }

    /// Looks up a unit in the cache, and checks it if it is there. Returns `true` if it was.
    #[inline]
    pub(super) fn cached(&mut self, offset: u64, checker: &mut Checker) -> Result<bool, RunError> {
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
    pub(super) fn checked(
        &self,
        offset: u64,
        unit: &[u8],
        checker: &mut Checker,
    ) -> Result<(), RunError> {
        checker.check(offset, unit)?;
        if let Some(cache) = &self.work.cache {
            cache.insert(address(offset, unit.len()), Arc::new(unit.into()));
        }
        Ok(())
    }
}

impl Drop for OffsetSource<'_> {
    fn drop(&mut self) {
        self.work.spared.fetch_add(self.spared, Ordering::Relaxed);
    }
}
