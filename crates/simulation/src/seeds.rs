//! Runs of many seeds on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::coverage::{Coverage, Point};
use crate::run::{Counts, Run};

/// The seeds that are run.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub count: u64,
    /// The number of runs at a time.
    pub threads: usize,
}

/// The result of many seeds. It does not depend on the number of threads, except for the time.
#[derive(Debug)]
pub struct Report<P, C = ()> {
    /// The number of runs: up to the one that failed, if one did.
    pub runs: u64,
    /// The run of the first seed that failed.
    pub failed: Option<Run<P, C>>,
    /// The number of runs in which each point was reached, if none failed.
    pub reached: Coverage<P>,
    /// The numbers that were counted, if none failed.
    pub counts: C,
    /// The time that the runs took.
    pub took: Duration,
}

impl Seeds {
    /// Runs each seed, until one fails.
    pub fn run<P, C>(&self, run: impl Fn(u64) -> Run<P, C> + Sync) -> Report<P, C>
    where
        P: Point + Send,
        C: Counts,
    {
        let begun = Instant::now();
        let sum = Mutex::new(Report {
            runs: 0,
            failed: None,
            reached: Coverage::default(),
            counts: C::default(),
            took: Duration::ZERO,
        });
        // The next seed, counted from the first, and the one at which to end. A seed is taken
        // only after all lower ones, so that the first one that fails is among those that have
        // been taken when any fails.
        let (next, end) = (AtomicU64::new(0), AtomicU64::new(self.count));
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::SeqCst);
                if at >= end.load(Ordering::SeqCst) {
                    return;
                }
                let run = run(self.first.wrapping_add(at));
                let mut sum = sum.lock().expect("adding does not panic");
                if run.failure.is_none() {
                    sum.add(&run);
                } else if end.fetch_min(at, Ordering::SeqCst) > at {
                    sum.failed = Some(run);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
        let mut report = sum.into_inner().expect("adding does not panic");
        if report.failed.is_some() {
            report.runs = end.into_inner() + 1;
        }
        report.took = begun.elapsed();
        report
    }
}

impl<P: Point, C: Counts> Report<P, C> {
    fn add(&mut self, run: &Run<P, C>) {
        self.runs += 1;
        self.reached.count(&run.reached);
        self.counts.add(&run.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::points!(
        /// The divisors of a seed in this test.
        enum Divisor {
            Two => "it is even",
            Three => "it is divided by three",
        }
    );

    fn run(seed: u64, fails: impl Fn(u64) -> bool) -> Run<Divisor> {
        let mut run = Run::failed(seed, "planted".to_owned());
        run.failure.take_if(|_| !fails(seed));
        run.reached
            .add(Divisor::Two, u64::from(seed.is_multiple_of(2)));
        run.reached
            .add(Divisor::Three, u64::from(seed.is_multiple_of(3)));
        run
    }

    fn seeds(first: u64, count: u64, threads: usize) -> Seeds {
        Seeds {
            first,
            count,
            threads,
        }
    }

    #[test]
    fn every_seed_runs_once_on_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let report = seeds(6, 60, threads).run(|seed| run(seed, |_| false));
            assert!(report.failed.is_none());
            assert_eq!(report.runs, 60);
            assert_eq!(report.reached.times(Divisor::Two), 30);
            assert_eq!(report.reached.times(Divisor::Three), 20);
        }
    }

    #[test]
    fn the_first_seed_that_fails_is_named_however_many_threads_there_are() {
        let slow_if_early = |seed: u64| {
            // Other seeds fail before the first one does.
            if seed < 40 {
                thread::sleep(Duration::from_millis(2));
            }
            run(seed, |seed| seed >= 37)
        };
        for threads in [1, 2, 7] {
            let report = seeds(30, 1000, threads).run(slow_if_early);
            assert_eq!(report.failed.map(|run| run.seed), Some(37));
            assert_eq!(report.runs, 8);
        }
    }
}
