//! Reads by a number of threads that are made beforehand (paper 4, section 4.4.2, "static").
//!
//! The owner gathers reads and publishes them together in one queue. A thread takes several at once
//! if reads are fast, for the queue would else cost as much as they do; and one at a time if
//! they are slow, so that they run side by side. How fast they are each thread measures. What is
//! over goes back the same way, several at once.
//!
//! A thread that finds the queue empty looks a few times more, giving way to others in between, and
//! then sleeps. No more are woken than what was published needs.
//!
//! Invariant: while `Jobs::queue` is not empty, a thread is awake that has not looked at it
//! since the last change.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};

use super::job::{Job, Outcome};
use super::over::Over;
use super::threads::Team;

/// Reads that a thread takes at once, at most.
const BATCH: usize = 32;
/// Reads that take less time than this are fast.
const FAST: Duration = Duration::from_micros(4);
/// How often a thread gives way to others before it sleeps.
const LOOKS: usize = 16;
/// A thread's stack; it calls nothing that is deep.
const STACK: usize = 64 * 1024;

/// See the [module](self).
pub(super) struct StaticTeam {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// What the owner does itself; empty between calls.
    mine: Vec<Job>,
}

struct Shared {
    jobs: CachePadded<Mutex<Jobs>>,
    /// Whether there may be jobs; a hint, right under the lock.
    some: CachePadded<AtomicBool>,
    /// How many reads a thread takes at once.
    batch: CachePadded<AtomicUsize>,
    published: Condvar,
    threads: usize,
    /// How many threads are awake, at most, if reads are fast: they use the processors then, of
    /// which one is the owner's.
    processors: usize,
    over: Arc<Over>,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    /// Threads that sleep and were not notified.
    asleep: usize,
    /// Whether anybody has taken jobs since the last were published.
    picked: bool,
    closing: bool,
}

impl StaticTeam {
    /// So many threads.
    pub(super) fn new(threads: usize, over: Arc<Over>) -> io::Result<StaticTeam> {
        assert!(threads > 0, "no thread to read");
        let shared = Arc::new(Shared {
            jobs: CachePadded::default(),
            some: CachePadded::default(),
            batch: CachePadded::new(AtomicUsize::new(1)),
            published: Condvar::new(),
            threads,
            processors: (std::thread::available_parallelism().map_or(1, usize::from) - 1).max(1),
            over,
        });
        let mut team = StaticTeam {
            shared,
            threads: Vec::with_capacity(threads),
            mine: Vec::with_capacity(BATCH),
        };
        for n in 0..threads {
            let shared = Arc::clone(&team.shared);
            let thread = Builder::new().name(format!("read-{n}")).stack_size(STACK);
            match thread.spawn(move || shared.work()) {
                Ok(thread) => team.threads.push(thread),
                Err(error) => {
                    team.stop();
                    return Err(error);
                }
            }
        }
        Ok(team)
    }
}

impl Team for StaticTeam {
    fn publish(&mut self, jobs: &mut Vec<Job>, _: &mut Vec<Outcome>) {
        self.shared.publish(jobs);
    }

    fn help(&mut self, outcomes: &mut Vec<Outcome>) -> bool {
        self.shared.help(&mut self.mine, outcomes)
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
    /// Gives jobs to the threads, and wakes as many of these as they need.
    fn publish(&self, jobs: &mut Vec<Job>) {
        let mut state = self.jobs.lock();
        let stuck = !state.queue.is_empty() && !state.picked;
        state.picked = false;
        state.queue.extend(jobs.drain(..));
        self.some.store(true, Ordering::Relaxed);
        let batch = self.batch.load(Ordering::Relaxed);
        let wanted = if batch < BATCH {
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

    /// What a thread does.
    fn work(&self) {
        let mut mine = Vec::with_capacity(BATCH);
        let mut outcomes = Vec::with_capacity(BATCH);
        while self.take(&mut mine) {
            let begin = Instant::now();
            outcomes.extend(mine.iter().map(Job::run));
            let each = begin.elapsed() / mine.len() as u32;
            self.over.hand(&mut outcomes);
            self.adapt(mine.len(), each);
            mine.clear();
        }
    }

    /// Does what a thread does, once, if reads are fast.
    fn help(&self, mine: &mut Vec<Job>, outcomes: &mut Vec<Outcome>) -> bool {
        if self.batch.load(Ordering::Relaxed) < BATCH || !self.some.load(Ordering::Relaxed) {
            return false;
        }
        self.pick(&mut self.jobs.lock(), mine);
        if mine.is_empty() {
            return false;
        }
        let begin = Instant::now();
        outcomes.extend(mine.iter().map(Job::run));
        self.adapt(mine.len(), begin.elapsed() / mine.len() as u32);
        mine.clear();
        true
    }

    /// Takes a part of the jobs there are.
    fn pick(&self, jobs: &mut Jobs, mine: &mut Vec<Job>) {
        let batch = self.batch.load(Ordering::Relaxed);
        // Where many may be taken at once, some are left for the next.
        let some = jobs.queue.len().div_ceil(2).min(batch);
        mine.extend(jobs.queue.drain(..some));
        jobs.picked = true;
        if jobs.queue.is_empty() {
            self.some.store(false, Ordering::Relaxed);
        }
    }

    /// Takes account of how long each of `n` reads took.
    fn adapt(&self, n: usize, each: Duration) {
        let batch = self.batch.load(Ordering::Relaxed);
        // A thread that others have kept from its processor saw one slow batch, and no more.
        let next = if each > FAST {
            (batch / 2).max(1)
        } else {
            (2 * n).clamp(batch, BATCH)
        };
        if next != batch {
            self.batch.store(next, Ordering::Relaxed);
        }
    }

    /// Takes jobs, waiting for them; false if there will be none.
    fn take(&self, mine: &mut Vec<Job>) -> bool {
        for _ in 0..LOOKS {
            if self.some.load(Ordering::Relaxed) {
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
        self.pick(&mut state, mine);
        let slow = self.batch.load(Ordering::Relaxed) < BATCH;
        if slow && !state.queue.is_empty() && state.asleep > 0 {
            // Those who published may have thought that fewer threads would do.
            state.asleep -= 1;
            drop(state);
            self.published.notify_one();
        }
        true
    }
}
