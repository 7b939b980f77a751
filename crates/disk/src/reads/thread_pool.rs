//! Reads by a number of threads that are made beforehand (paper 4, section 4.4.2, "static").
//!
//! The owner gathers reads and publishes them together in one queue. A thread takes several at once
//! if reads are fast, for otherwise the queue would cost as much as they do; and one at a time if
//! they are slow, so that they run in parallel. Each thread measures how fast they are. Outcomes go
//! back in the same way, several at once.
//!
//! A thread that finds the queue empty sleeps; if reads are fast it looks a few more times before,
//! yielding to other threads in between. No more threads are woken than the published reads need:
//! one for each slow read, but for fast ones, which use only the processors, no more than there are
//! processors. An owner that waits has nothing else to do, and does fast reads itself.
//!
//! Invariant: while `JobQueue::queue` is not empty a thread is awake; and threads that are awake
//! look at the queue, under its lock, before they sleep.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};

use super::outcome_queue::OutcomeQueue;
use super::read_job::{ReadJob, ReadOutcome, sleeps};
use super::threaded_reads::ReadThreads;

/// Reads that a thread takes at once, at most.
const BATCH: usize = 32;
/// Reads count as fast while threads take as many at once.
const FAST_BATCH: usize = 4;
/// Reads that take less time than this are fast: no device is behind them. Others are measured more
/// closely, and are slow if threads sleep for them.
const FAST: Duration = Duration::from_micros(4);
/// The reads that a thread takes at once take about this long at most.
const BATCH_TIME: Duration = Duration::from_micros(100);
/// The number of times that a thread yields to others before it sleeps, if reads are fast.
const SPINS: usize = 8;
/// A thread's stack; it makes no deep calls.
const STACK: usize = 64 * 1024;

/// See the [module](self).
pub(super) struct ReadThreadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The jobs that the owner does itself; empty between calls.
    mine: Vec<ReadJob>,
    pace: ReadSpeed,
}

/// A thread's measurement of the time of reads.
#[derive(Default)]
struct ReadSpeed {
    /// `true` if the last ones took long, so that the thread counts how often it sleeps for the
    /// next.
    counts_sleeps: bool,
}

struct Shared {
    jobs: CachePadded<Mutex<JobQueue>>,
    /// `true` if there may be jobs; a hint, exact under the lock.
    some: CachePadded<AtomicBool>,
    /// The number of reads that a thread takes at once.
    batch: CachePadded<AtomicUsize>,
    published: Condvar,
    threads: usize,
    /// The most threads that are awake if reads are fast: they use the processors then, of which
    /// one is the owner's.
    processors: usize,
    queue: Arc<OutcomeQueue>,
}

#[derive(Default)]
struct JobQueue {
    queue: VecDeque<ReadJob>,
    /// The number of threads that sleep and were not notified.
    asleep: usize,
    /// `true` if a thread has taken jobs since the last were published.
    picked: bool,
    closing: bool,
}

impl ReadThreadPool {
    /// Returns a pool of `threads` threads.
    pub(super) fn new(threads: usize, queue: Arc<OutcomeQueue>) -> io::Result<ReadThreadPool> {
        assert!(threads > 0, "no thread to read");
        let shared = Arc::new(Shared {
            jobs: CachePadded::default(),
            some: CachePadded::default(),
            batch: CachePadded::new(AtomicUsize::new(1)),
            published: Condvar::new(),
            threads,
            processors: (std::thread::available_parallelism().map_or(1, usize::from) - 1).max(1),
            queue,
        });
        let mut pool = ReadThreadPool {
            shared,
            threads: Vec::with_capacity(threads),
            mine: Vec::with_capacity(BATCH),
            pace: ReadSpeed::default(),
        };
        for n in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = Builder::new().name(format!("read-{n}")).stack_size(STACK);
            match thread.spawn(move || shared.work()) {
                Ok(thread) => pool.threads.push(thread),
                Err(error) => {
                    pool.stop();
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }
}

impl ReadThreads for ReadThreadPool {
    fn publish(&mut self, jobs: &mut Vec<ReadJob>, _: &mut Vec<ReadOutcome>) {
        self.shared.publish(jobs);
    }

    fn help(&mut self, outcomes: &mut Vec<ReadOutcome>) -> bool {
        self.shared.help(&mut self.mine, outcomes, &mut self.pace)
    }

    fn is_fast(&self) -> bool {
        self.shared.is_fast()
    }

    fn stop(&mut self) {
        {
            let mut jobs = self.shared.jobs.lock();
            jobs.queue.clear();
            jobs.closing = true;
        }
        self.shared.some.store(true, Ordering::Relaxed);
        self.shared.published.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread that reads does not panic");
        }
    }
}

impl Shared {
    /// Gives jobs to the threads, and wakes as many of them as the jobs need.
    fn publish(&self, jobs: &mut Vec<ReadJob>) {
        let mut state = self.jobs.lock();
        let stuck = !state.queue.is_empty() && !state.picked;
        state.picked = false;
        state.queue.extend(jobs.drain(..));
        self.some.store(true, Ordering::Relaxed);
        let batch = self.batch.load(Ordering::Relaxed);
        let wanted = if batch < FAST_BATCH {
            state.queue.len().div_ceil(batch)
        } else {
            let awake = self.threads - state.asleep;
            self.processors.saturating_sub(awake) + usize::from(stuck)
        };
        let wake = wanted.min(state.asleep);
        state.asleep -= wake;
        drop(state);
        for _ in 0..wake {
            self.published.notify_one();
        }
    }

    fn is_fast(&self) -> bool {
        self.batch.load(Ordering::Relaxed) >= FAST_BATCH
    }

    /// Runs a thread's loop.
    fn work(&self) {
        let mut mine = Vec::with_capacity(BATCH);
        let mut outcomes = Vec::with_capacity(BATCH);
        let mut pace = ReadSpeed::default();
        while self.take(&mut mine) {
            self.run(&mut mine, &mut outcomes, &mut pace);
            self.queue.deliver(&mut outcomes);
        }
    }

    /// Does a thread's work once, if reads are fast.
    fn help(
        &self,
        mine: &mut Vec<ReadJob>,
        outcomes: &mut Vec<ReadOutcome>,
        pace: &mut ReadSpeed,
    ) -> bool {
        if !self.is_fast() || !self.some.load(Ordering::Relaxed) {
            return false;
        }
        {
            let mut jobs = self.jobs.lock();
            let some = self.batch_len(&jobs);
            let rest = jobs.queue.len() - some;
            // From the end: the reads that other threads have done last, and that their caches
            // have, lie in front if the owner lends memory again that came back last.
            mine.extend(jobs.queue.drain(rest..));
            self.taken(&mut jobs);
        }
        if mine.is_empty() {
            return false;
        }
        self.run(mine, outcomes, pace);
        true
    }

    /// Returns the number of jobs to take at once.
    fn batch_len(&self, jobs: &JobQueue) -> usize {
        let batch = self.batch.load(Ordering::Relaxed);
        // Where many may be taken at once, some are left for the next thread.
        jobs.queue.len().div_ceil(2).min(batch)
    }

    /// Notes that jobs were taken.
    fn taken(&self, jobs: &mut JobQueue) {
        jobs.picked = true;
        if jobs.queue.is_empty() {
            self.some.store(false, Ordering::Relaxed);
        }
    }

    /// Does jobs, and measures the time that they take.
    fn run(&self, mine: &mut Vec<ReadJob>, outcomes: &mut Vec<ReadOutcome>, pace: &mut ReadSpeed) {
        let n = mine.len();
        let before = pace.counts_sleeps.then(sleeps);
        let begin = Instant::now();
        outcomes.extend(mine.drain(..).map(|job| job.run()));
        let each = begin.elapsed() / n as u32;
        let slept = before.map(|before| sleeps() - before);
        pace.counts_sleeps = each > FAST;
        let batch = self.batch.load(Ordering::Relaxed);
        let next = match slept {
            Some(slept) if each > FAST && 2 * slept as usize >= n => (batch / 2).max(1),
            // They may be slow, or other threads have kept this thread from its processor.
            None if each > FAST => batch,
            _ => {
                let most = BATCH_TIME.as_nanos() / each.as_nanos().max(1);
                (2 * n).max(batch).min(most as usize).clamp(1, BATCH)
            }
        };
        if next != batch {
            self.batch.store(next, Ordering::Relaxed);
        }
    }

    /// Takes jobs, waiting for them; returns `false` if there will be none.
    fn take(&self, mine: &mut Vec<ReadJob>) -> bool {
        for _ in 0..SPINS {
            if self.some.load(Ordering::Relaxed) || !self.is_fast() {
                break;
            }
            std::thread::yield_now();
        }
        let mut state = self.jobs.lock();
        while state.queue.is_empty() {
            if state.closing {
                return false;
            }
            state.asleep += 1;
            self.published.wait(&mut state);
        }
        let some = self.batch_len(&state);
        mine.extend(state.queue.drain(..some));
        self.taken(&mut state);
        if !self.is_fast() && !state.queue.is_empty() && state.asleep > 0 {
            // The publisher may have assumed that fewer threads would do.
            state.asleep -= 1;
            drop(state);
            self.published.notify_one();
        }
        true
    }
}
