//! What work costs a thread, as measured over the last tasks.
//!
//! | what | is |
//! |---|---|
//! | an operation | the processor's time of a task but for its pages, divided by the operations that [`estimate`](crate::estimate) finds in it: so what is foretold of the next task is right even where an operation there stands for more than one |
//! | a page | the processor's time in which a page was asked for, taken and verified |
//! | a wait | the time until a page was there, the processor's included |
//!
//! Tasks that ended before their rows did are not counted. One page in seven is timed, as reading a thread's
//! clock is a system call.

use std::time::{Duration, Instant};

use pages::Mean;
use pages::task::WorkTimes;
use rustix::time::{ClockId, clock_gettime};

/// The least number of operations of a task that is counted, and of those after which the mean is used.
const OPERATIONS: f64 = 100_000.0;
/// The number of operations over which the mean is taken.
const OPERATIONS_WINDOW: f64 = 1e8;
/// The number of pages after which means are used.
const PAGES: f64 = 16.0;
/// The number of pages over which means are taken.
const PAGES_WINDOW: f64 = 4096.0;
/// One of so many pages is timed.
const SAMPLED: u64 = 7;

/// What work costs a thread; see the [module](self).
#[derive(Debug)]
pub struct WorkCosts {
    operation: Mean,
    page: Mean,
    wait: Mean,
}

impl Default for WorkCosts {
    fn default() -> WorkCosts {
        WorkCosts {
            operation: Mean::new(OPERATIONS, OPERATIONS_WINDOW),
            page: Mean::new(PAGES, PAGES_WINDOW),
            wait: Mean::new(PAGES, PAGES_WINDOW),
        }
    }
}

impl WorkCosts {
    /// Returns the processor's seconds for an operation on a row. As all of these, it is `None` if too few
    /// were measured.
    #[must_use]
    pub fn operation_s(&self) -> Option<f64> {
        self.operation.get()
    }

    /// Returns the processor's seconds for a page.
    #[must_use]
    pub fn page_s(&self) -> Option<f64> {
        self.page.get()
    }

    /// Returns the seconds until a page is there, for a thread that reads ahead.
    #[must_use]
    pub fn wait_s(&self) -> Option<f64> {
        self.wait.get()
    }

    /// Returns all of them in the form that a node sends.
    #[must_use]
    pub fn times(&self) -> WorkTimes {
        let picoseconds = |seconds: Option<f64>| (seconds.unwrap_or(0.0) * 1e12).round() as u64;
        WorkTimes {
            operation_ps: picoseconds(self.operation_s()),
            page_ps: picoseconds(self.page_s()),
            wait_ps: picoseconds(self.wait_s()),
        }
    }
}

/// The costs of one task.
#[derive(Debug, Default)]
pub(crate) struct TaskTimer {
    runs: bool,
    /// The processor's time for the whole task.
    busy: Duration,
    pages: u64,
    timed: u64,
    /// For the pages that were timed: the processor's time, and the elapsed time.
    page: Duration,
    wait: Duration,
}

impl TaskTimer {
    /// Makes a stopwatch. One that does not run costs nothing and reports nothing.
    pub(crate) fn running(runs: bool) -> TaskTimer {
        TaskTimer {
            runs,
            ..TaskTimer::default()
        }
    }

    /// Adds the processor's time that the thread has used since `begun`.
    pub(crate) fn busy_since(&mut self, begun: Duration) {
        self.busy += thread_time().saturating_sub(begun);
    }

    /// Takes a page, and times some of them.
    pub(crate) fn page<T>(&mut self, take: impl FnOnce() -> T) -> T {
        self.pages += 1;
        if !self.runs || !self.pages.is_multiple_of(SAMPLED) {
            return take();
        }
        let (begun, busy) = (Instant::now(), thread_time());
        let taken = take();
        self.timed += 1;
        self.page += thread_time().saturating_sub(busy);
        self.wait += begun.elapsed();
        taken
    }

    /// Adds a task of so many operations that has completed to `costs`.
    pub(crate) fn end(&self, operations: f64, costs: &WorkCosts) {
        let timed = self.timed as f64;
        let page = self.page.as_secs_f64() / timed.max(1.0);
        if self.timed > 0 {
            costs.page.add(page, timed);
            costs.wait.add(self.wait.as_secs_f64() / timed, timed);
        }
        let known = costs.page.get().unwrap_or(page);
        let work = self.busy.as_secs_f64() - self.pages as f64 * known;
        if operations >= OPERATIONS {
            costs
                .operation
                .add((work / operations).max(0.0), operations);
        }
    }
}

/// Returns the processor's time that the thread has used.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_takes_is_not_what_operations_take() {
        let costs = WorkCosts::default();
        let mut watch = TaskTimer::running(true);
        for _ in 0..16 * SAMPLED {
            watch.page(|| std::thread::sleep(Duration::from_millis(1)));
        }
        watch.busy = Duration::from_millis(500);
        watch.end(1e6, &costs);
        let wait = costs.wait_s().unwrap();
        assert!(wait >= 1e-3, "{wait} s");
        let page = costs.page_s().unwrap();
        assert!(
            page < wait,
            "who sleeps uses no processor: {page} s of {wait} s"
        );
        let operation = costs.operation_s().unwrap();
        let expected = (0.5 - 112.0 * page) / 1e6;
        assert!((operation - expected).abs() < 1e-12, "{operation} s");
        let times = costs.times();
        assert_eq!(times.operation_ps, (operation * 1e12).round() as u64);
        assert!(times.wait_ps >= 1_000_000_000);
    }

    #[test]
    fn what_was_not_measured_is_not_known() {
        let costs = WorkCosts::default();
        let mut watch = TaskTimer::running(false);
        watch.page(|| ());
        watch.end(10.0, &costs);
        assert_eq!((costs.operation_s(), costs.page_s()), (None, None));
        assert_eq!(costs.times(), WorkTimes::default());
    }
}
