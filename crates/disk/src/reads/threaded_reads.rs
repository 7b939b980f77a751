//! Reads by threads: the owner's part, for any kind of threads.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::outcome_queue::OutcomeQueue;
use super::pending_reads::PendingReads;
use super::read_job::{ReadJob, ReadOutcome};
use super::{CompletedRead, FileId, ReadBuffer, ReadFile, ReadQueue, ReadRequest};

/// The number of times that the owner yields to other threads before it sleeps, if reads are fast.
const SPINS: usize = 8;

/// Threads that read.
pub(super) trait ReadThreads: Send {
    /// Publishes all jobs, to be done soon; each job's outcome is handed over once, or appended at
    /// once.
    fn publish(&mut self, jobs: &mut Vec<ReadJob>, outcomes: &mut Vec<ReadOutcome>);

    /// Does some of the published jobs itself, if that does not take long. Returns `true` if it
    /// has.
    fn help(&mut self, outcomes: &mut Vec<ReadOutcome>) -> bool {
        let _ = outcomes;
        false
    }

    /// Returns `true` if reads take so little time that sleeping for them is not worth it.
    fn is_fast(&self) -> bool {
        false
    }

    /// Forgets jobs that were not begun, and returns when no job is being done.
    fn stop(&mut self);
}

/// See the [module](self).
pub(super) struct ThreadedReads<L: ReadBuffer, T: ReadThreads> {
    pending: PendingReads<L>,
    /// Jobs that are submitted and not published.
    gathered: Vec<ReadJob>,
    /// The outcomes of the owner's own reads, and memory for those of other threads.
    outcomes: Vec<ReadOutcome>,
    queue: Arc<OutcomeQueue>,
    threads: T,
}

impl<L: ReadBuffer, T: ReadThreads> ThreadedReads<L, T> {
    /// Returns at most `depth` reads by a threads that delivers to the [`OutcomeQueue`] with which
    /// it is made.
    pub(super) fn new(
        depth: usize,
        threads: impl FnOnce(Arc<OutcomeQueue>) -> io::Result<T>,
    ) -> io::Result<ThreadedReads<L, T>> {
        let queue = Arc::new(OutcomeQueue::new(depth)?);
        Ok(ThreadedReads {
            pending: PendingReads::new(depth),
            gathered: Vec::with_capacity(depth),
            outcomes: Vec::with_capacity(depth),
            threads: threads(Arc::clone(&queue))?,
            queue,
        })
    }

    /// Appends the outcomes of reads to `done`.
    fn report(&mut self, done: &mut Vec<CompletedRead<L>>) {
        for outcome in self.outcomes.drain(..) {
            done.push(self.pending.end(outcome).0);
        }
    }
}

impl<L: ReadBuffer, T: ReadThreads> ReadQueue<L> for ThreadedReads<L, T> {
    fn add(&mut self, file: Arc<ReadFile>) -> FileId {
        self.pending.add(file).0
    }

    fn remove(&mut self, file: FileId) {
        self.pending.remove(file);
    }

    fn room(&self) -> usize {
        self.pending.room()
    }

    fn submit(&mut self, read: ReadRequest<L>) {
        self.gathered
            .extend(self.pending.submit(read).map(|(job, _)| job));
    }

    fn start(&mut self) -> io::Result<()> {
        if !self.gathered.is_empty() {
            self.threads.publish(&mut self.gathered, &mut self.outcomes);
        }
        Ok(())
    }

    fn finish(&mut self, done: &mut Vec<CompletedRead<L>>) -> usize {
        let before = done.len();
        self.pending.take_ended(done);
        self.report(done);
        self.queue.take(&mut self.outcomes);
        self.report(done);
        done.len() - before
    }

    fn wait(&mut self, done: &mut Vec<CompletedRead<L>>, at_most: Option<Duration>) -> usize {
        let until = at_most.and_then(|time| Instant::now().checked_add(time));
        self.start().expect("threads take all jobs");
        let mut looks = 0;
        loop {
            let n = self.finish(done);
            if n > 0 || self.pending.begun() == 0 {
                return n;
            }
            if self.threads.help(&mut self.outcomes) {
                continue;
            }
            if looks == SPINS || !self.threads.is_fast() {
                self.queue.wait(until);
                return self.finish(done);
            }
            looks += 1;
            std::thread::yield_now();
        }
    }

    fn under_way(&self) -> usize {
        self.pending.under_way()
    }

    fn arm(&mut self) -> bool {
        !self.pending.has_ended() && self.outcomes.is_empty() && self.queue.arm()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.queue.bell()
    }
}

impl<L: ReadBuffer, T: ReadThreads> Drop for ThreadedReads<L, T> {
    fn drop(&mut self) {
        self.threads.stop();
        self.pending.clear();
    }
}
