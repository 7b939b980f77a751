//! The times at which tickets became complete.
//!
//! Tickets complete in their order: a *progress* says that all up to one are complete. The thread
//! that completes them records it at that moment; clients learn of it whenever they look, and lose
//! no precision by looking late.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::latency::Latencies;

/// The ticket of a transaction that is complete at once.
pub const DONE: u64 = 0;

/// All progress of a run.
#[derive(Debug)]
pub struct Completions {
    origin: Instant,
    newest: AtomicU64,
    progress: Mutex<Vec<CompletionRecord>>,
}

#[derive(Clone, Copy, Debug)]
struct CompletionRecord {
    ticket: u64,
    at: u64,
}

impl Default for Completions {
    fn default() -> Completions {
        Completions {
            origin: Instant::now(),
            newest: AtomicU64::new(DONE),
            progress: Mutex::default(),
        }
    }
}

impl Completions {
    /// Returns the origin from which times are counted.
    #[must_use]
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Records that everything up to `ticket` is complete now.
    pub fn advance(&self, ticket: u64) {
        let mut progress = self.progress.lock();
        if progress.last().is_none_or(|last| last.ticket < ticket) {
            let at = self.origin.elapsed().as_nanos() as u64;
            progress.push(CompletionRecord { ticket, at });
            self.newest.store(ticket, Ordering::Release);
        }
    }

    pub(super) fn reader(&self) -> CompletionReader<'_> {
        CompletionReader {
            completions: self,
            seen: Vec::new(),
            waiting: VecDeque::new(),
            memo: CompletionRecord {
                ticket: DONE,
                at: 0,
            },
        }
    }
}

/// A transaction that is committed and not known to be complete.
struct PendingTransaction {
    ticket: u64,
    start: u64,
    done: u64,
}

/// One client's look at the progress.
pub(super) struct CompletionReader<'c> {
    completions: &'c Completions,
    /// The progress that was read so far.
    seen: Vec<CompletionRecord>,
    waiting: VecDeque<PendingTransaction>,
    /// The answer to the last question: neighbours mostly have the same ticket.
    memo: CompletionRecord,
}

impl CompletionReader<'_> {
    /// Adds a transaction that began at `start` and was committed at `done`. It, and others before
    /// it, are recorded once they are complete.
    pub(super) fn pending(&mut self, ticket: u64, start: u64, done: u64, to: &mut Latencies) {
        if ticket == DONE {
            to.record(Duration::from_nanos(done - start));
            return;
        }
        self.waiting.push_back(PendingTransaction {
            ticket,
            start,
            done,
        });
        let front = self.waiting.front().map_or(u64::MAX, |first| first.ticket);
        if self.completions.newest.load(Ordering::Acquire) >= front {
            self.drain(to);
        }
    }

    /// Records the transactions that are complete by now; the others never will be.
    pub(super) fn finish(&mut self, to: &mut Latencies) {
        self.drain(to);
    }

    fn drain(&mut self, to: &mut Latencies) {
        let known = self.seen.len();
        let progress = self.completions.progress.lock();
        self.seen.extend_from_slice(&progress[known..]);
        drop(progress);
        while let Some(first) = self.waiting.front()
            && let Some(at) = self.when(first.ticket)
        {
            let PendingTransaction { start, done, .. } =
                self.waiting.pop_front().expect("it is the front");
            to.record(Duration::from_nanos(at.max(done) - start));
        }
    }

    /// Returns the time at which `ticket` became complete.
    fn when(&mut self, ticket: u64) -> Option<u64> {
        if self.memo.ticket != ticket {
            let place = self.seen.partition_point(|seen| seen.ticket < ticket);
            let at = self.seen.get(place)?.at;
            self.memo = CompletionRecord { ticket, at };
        }
        Some(self.memo.at)
    }
}
