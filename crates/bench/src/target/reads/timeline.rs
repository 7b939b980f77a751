//! The progress of the threads of a run, and the processor time of the processes, from moment to
//! moment.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::RunError;
use crate::machine;
use crate::run_context::RunContext;
use crate::sample::TimelinePoint;

/// Moments of a run that counts for a time.
const MOMENTS: u32 = 20;
/// From moment to moment of one that counts reads.
const EVERY: Duration = Duration::from_millis(20);

/// How long a first read is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A counter that shares no cache line with another one.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Where the threads of a run wait until all are ready, or have failed.
#[derive(Default)]
struct StartGate {
    state: Mutex<GateState>,
    arrived: Condvar,
    opened: Condvar,
}

#[derive(Default)]
struct GateState {
    threads: usize,
    is_open: bool,
}

impl StartGate {
    /// Notes that so many threads are ready, or will never be.
    fn arrive(&self, threads: usize) {
        self.state.lock().threads += threads;
        self.arrived.notify_one();
    }

    fn wait_for(&self, threads: usize) {
        let mut state = self.state.lock();
        while state.threads < threads {
            self.arrived.wait(&mut state);
        }
    }

    fn open(&self) {
        self.state.lock().is_open = true;
        self.opened.notify_all();
    }

    fn wait_until_open(&self) {
        let mut state = self.state.lock();
        while !state.is_open {
            self.opened.wait(&mut state);
        }
    }
}

/// The counters of the threads of a run.
pub(super) struct ReaderThreads {
    counters: Vec<Counter>,
    gate: StartGate,
    running: AtomicUsize,
    stop: AtomicBool,
    failure: Mutex<Option<RunError>>,
}

impl ReaderThreads {
    /// Creates it for so many threads.
    pub(super) fn new(threads: usize) -> ReaderThreads {
        ReaderThreads {
            counters: (0..threads).map(|_| Counter::default()).collect(),
            gate: StartGate::default(),
            running: AtomicUsize::new(threads),
            stop: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// Runs a thread: it prepares, waits for the others, and reads.
    pub(super) fn thread<P>(
        &self,
        prepare: impl FnOnce() -> Result<P, RunError>,
        read: impl FnOnce(P) -> Result<(), RunError>,
    ) {
        let prepared = prepare();
        self.gate.arrive(1);
        // The beginning is recorded in between: threads may be finished before any other thread
        // runs.
        self.gate.wait_until_open();
        if let Err(what) = prepared.and_then(read) {
            self.fail(what);
        }
        self.running.fetch_sub(1, Ordering::Release);
    }

    /// Ends the run with an error: so many of its threads cannot be started.
    pub(super) fn leave_out(&self, threads: usize, what: RunError) {
        self.fail(what);
        self.running.fetch_sub(threads, Ordering::Release);
        self.gate.arrive(threads);
    }

    fn fail(&self, what: RunError) {
        self.failure.lock().get_or_insert(what);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if a thread must continue.
    #[inline]
    pub(super) fn must_continue(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Adds reads that a thread has checked.
    #[inline]
    pub(super) fn add(&self, thread: usize, reads: u64) {
        let counter = &self.counters[thread].0;
        // No other thread writes it.
        let before = counter.load(Ordering::Relaxed);
        counter.store(before + reads, Ordering::Relaxed);
    }

    /// Returns the outcome of the checks.
    pub(super) fn outcome(&self, reads: u64) -> Result<(), RunError> {
        match self.failure.lock().take() {
            Some(what) => Err(what),
            None if reads == 0 => Err(RunError::Failed("nothing was read".to_owned())),
            None => Ok(()),
        }
    }

    fn moment(&self, cpu_of_node: &dyn Fn() -> f64) -> ProgressSample {
        let counters = self.counters.iter();
        ProgressSample {
            at: Instant::now(),
            reads: counters.map(|c| c.0.load(Ordering::Relaxed)).sum(),
            cpu: [machine::own_cpu(), cpu_of_node()],
        }
    }

    fn is_over(&self, context: &RunContext<'_>) -> bool {
        self.running.load(Ordering::Acquire) == 0
            || !self.must_continue()
            || context.stop.load(Ordering::Relaxed)
    }

    /// Follows the threads, from when all are ready on: for the scale's time if that is requested,
    /// otherwise until they are finished. Then stops them.
    pub(super) fn follow(
        &self,
        context: &RunContext<'_>,
        timed: bool,
        cpu_of_node: &dyn Fn() -> f64,
    ) -> ReadTimeline {
        self.gate.wait_for(self.counters.len());
        let mut points = vec![self.moment(cpu_of_node)];
        self.gate.open();
        if timed {
            points.clear();
            std::thread::sleep(context.scale.warm_up);
            points.push(self.moment(cpu_of_node));
            for _ in 0..MOMENTS {
                std::thread::sleep(context.scale.time / MOMENTS);
                points.push(self.moment(cpu_of_node));
                if self.is_over(context) {
                    break;
                }
            }
            // Other processes may have had the processors all the time.
            let begun = Instant::now();
            while points[0].reads == points[points.len() - 1].reads
                && !self.is_over(context)
                && begun.elapsed() < PATIENCE
            {
                std::thread::sleep(EVERY);
                points.push(self.moment(cpu_of_node));
            }
        } else {
            let begun = Instant::now();
            while !self.is_over(context) {
                // Not much longer than the threads need, if they need little.
                let pause = begun.elapsed() / 50;
                std::thread::sleep(pause.clamp(Duration::from_millis(1), EVERY));
                points.push(self.moment(cpu_of_node));
            }
            points.push(self.moment(cpu_of_node));
        }
        self.stop.store(true, Ordering::Relaxed);
        ReadTimeline(points)
    }
}

/// The progress at a moment.
struct ProgressSample {
    at: Instant,
    reads: u64,
    cpu: [f64; 2],
}

/// The moments of a run.
pub(super) struct ReadTimeline(Vec<ProgressSample>);

impl ReadTimeline {
    fn ends(&self) -> (&ProgressSample, &ProgressSample) {
        let ends = self.0.first().zip(self.0.last());
        ends.expect("a run has a begin and an end")
    }

    /// Returns the reads that counted.
    pub(super) fn reads(&self) -> u64 {
        let (first, last) = self.ends();
        last.reads - first.reads
    }

    /// Returns their time in seconds.
    pub(super) fn seconds(&self) -> f64 {
        let (first, last) = self.ends();
        (last.at - first.at).as_secs_f64().max(1e-6)
    }

    /// Returns the processor time of this process and the node's, in seconds.
    pub(super) fn cpu(&self) -> [f64; 2] {
        let (first, last) = self.ends();
        [0, 1].map(|process| last.cpu[process] - first.cpu[process])
    }

    /// Returns the cores that the processes used, over time.
    pub(super) fn cores(&self) -> Vec<TimelinePoint> {
        let (first, _) = self.ends();
        let each = self.0.len().div_ceil(MOMENTS as usize).max(1);
        let some: Vec<&ProgressSample> = self.0.iter().step_by(each).collect();
        let between = some.windows(2).map(|pair| {
            let seconds = (pair[1].at - pair[0].at).as_secs_f64().max(1e-6);
            let cores = |process: usize| (pair[1].cpu[process] - pair[0].cpu[process]) / seconds;
            TimelinePoint {
                at: (pair[1].at - first.at).as_secs_f64(),
                reader: cores(0),
                node: cores(1),
                rate: (pair[1].reads - pair[0].reads) as f64 / seconds,
                ..TimelinePoint::default()
            }
        });
        between.collect()
    }
}
