//! The loggers' threads: when they work and when they sleep.
//!
//! A thread sleeps in two depths. After its last work it *dozes* for the time of `idle_flush`; then
//! it flushes the writes for which no caller asked, and records what became durable. With nothing
//! left to do it *sleeps* without a time limit. A request or a full buffer wakes it from either; an
//! append only from the second, so that a client that asks at once for the durability of its append
//! wakes the thread once.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, Instant};

use base::Epoch;
use base::epochs::EpochClock;
use parking_lot::Mutex;

use crate::error::JournalFailure;
use crate::horizon::Horizon;
use crate::logger::{CycleOutcome, Logger, LoggerContext, advance};
use crate::options::EpochTime;
use crate::stats::JournalCounters;

/// The interval after which a logger looks again at an epoch that a worker still holds.
const RETRY: Duration = Duration::from_micros(100);
/// The interval after which a logger looks again for room for its log.
const ROOM_RETRY: Duration = Duration::from_millis(100);
/// The time that [`JournalShared::finish`] waits for transactions that are still running.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// The state that the journal's handles and its threads share.
pub(crate) struct JournalShared {
    pub(crate) loggers: Vec<Logger>,
    pub(crate) horizon: Horizon,
    pub(crate) counters: JournalCounters,
    pub(crate) clock: Arc<dyn EpochClock>,
    pub(crate) epoch_time: EpochTime,
    pub(crate) idle_flush: Duration,
    pub(crate) max_epoch_diff: Option<NonZeroU64>,
    /// For each worker, its logger and the number of its lane there.
    pub(crate) placement: Vec<(usize, usize)>,
    pub(crate) stopping: AtomicBool,
    /// With fixed epochs: the time at which the next one begins.
    pub(crate) next_tick: Mutex<Instant>,
    /// The reason why workers wait.
    pub(crate) paused: Mutex<Option<JournalFailure>>,
}

/// Starts the thread of logger `index`, on processor `cpu` if one is given.
pub(crate) fn spawn(
    shared: &Arc<JournalShared>,
    index: usize,
    cpu: Option<usize>,
) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let started = Arc::new(std::sync::Barrier::new(2));
    let ready = Arc::clone(&started);
    let thread = std::thread::Builder::new()
        .name(format!("log{index}"))
        .spawn(move || {
            shared.loggers[index].adopt();
            settle_down(index, cpu);
            ready.wait();
            if let Err(failed) = shared.run(&shared.loggers[index]) {
                tracing::error!(logger = index, "{failed}; writes are refused from now on");
                // Another logger may have failed: no logger serves the lanes of this one any more.
                shared.refuse(&failed);
            }
        })?;
    // From here on the logger can be woken.
    started.wait();
    Ok(thread)
}

/// Pins the calling thread to its processor, and lets it sleep for times as short as it asks for.
fn settle_down(logger: usize, cpu: Option<usize>) {
    let pinned = cpu.map_or(Ok(()), base::cpus::pin_current_thread);
    if let Err(error) = pinned {
        tracing::warn!(logger, cpu, "a log thread runs on any processor: {error}");
    }
    // This does not work everywhere; without it short sleeps take some 50 µs longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
}

impl JournalShared {
    pub(crate) fn context(&self) -> LoggerContext<'_> {
        LoggerContext {
            clock: self.clock.as_ref(),
            horizon: &self.horizon,
            counters: &self.counters,
            epoch_time: self.epoch_time,
            loggers: self.loggers.len(),
        }
    }

    pub(crate) fn request(&self, epoch: Epoch) {
        // An epoch that has not begun cannot be closed; the caller that waits for it asks again.
        if self.horizon.request(epoch.min(self.clock.current())) {
            self.loggers.iter().for_each(Logger::wake);
        }
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn refuse(&self, failed: &JournalFailure) {
        self.loggers
            .iter()
            .for_each(|logger| logger.handover.refuse(failed));
    }

    /// Pauses or resumes the workers after a cycle: while a logger has no room, no transaction
    /// begins.
    pub(crate) fn pause_or_resume(&self) {
        let mut paused = self.paused.lock();
        let trouble = self.horizon.trouble().filter(|failed| !failed.is_lasting);
        if trouble != *paused {
            for logger in &self.loggers {
                logger.handover.pause(trouble.as_ref());
            }
            *paused = trouble;
        }
    }

    pub(crate) fn cycle(&self, logger: &Logger) -> Result<CycleOutcome, JournalFailure> {
        let outcome = logger.cycle(&self.context());
        self.pause_or_resume();
        outcome.inspect_err(|failed| self.refuse(failed))
    }

    /// Runs a logger's thread: works while there is work; then rests.
    fn run(&self, logger: &Logger) -> Result<(), JournalFailure> {
        while !self.stopping() {
            if !logger.has_work(&self.context()) {
                self.rest(logger)?;
            } else if !self.await_turn(logger) {
                continue;
            } else {
                match self.cycle(logger)? {
                    CycleOutcome::Held => park_timeout(RETRY),
                    CycleOutcome::Stalled => self.await_room(),
                    CycleOutcome::Progress | CycleOutcome::Idle => {}
                }
            }
        }
        Ok(())
    }

    /// Waits for a fixed time, however often the thread is woken.
    fn await_room(&self) {
        let until = Instant::now() + ROOM_RETRY;
        while !self.stopping() && Instant::now() < until {
            park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Waits for work: first with a time limit, after which the writes for which no caller asked
    /// are flushed and the durable epoch is recorded; then without.
    fn rest(&self, logger: &Logger) -> Result<(), JournalFailure> {
        let mut until = Instant::now() + self.idle_flush;
        loop {
            if self.stopping() || logger.has_work(&self.context()) {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                park_timeout(left);
            } else if logger.is_dirty(&self.context()) {
                self.request(self.clock.current());
                return Ok(());
            } else if let Some(left) = logger.record(&self.context(), self.idle_flush)? {
                until = Instant::now() + left;
            } else {
                logger.sleep(&self.context(), &self.stopping);
                return Ok(());
            }
        }
    }

    /// Waits for the moment of the next cycle. Returns `false` if it has waited, and the caller
    /// should look for work again.
    fn await_turn(&self, logger: &Logger) -> bool {
        match self.epoch_time {
            EpochTime::Adaptive => logger.gather(&self.context()),
            EpochTime::Fixed(interval) => self.await_tick(logger, interval),
        }
    }

    /// With fixed epochs, begins the next epoch when it is time. Full buffers are written at once,
    /// and so is an epoch that is over; otherwise this waits and returns `false`.
    fn await_tick(&self, logger: &Logger, interval: Duration) -> bool {
        let mut next = self.next_tick.lock();
        let now = Instant::now();
        if now >= *next {
            let on_time = *next + interval;
            *next = if on_time > now {
                on_time
            } else {
                now + interval
            };
            // The epoch that ends now should be complete in this very cycle. The lock is held
            // because the other loggers wake at the same moment, and must find that the epoch is
            // over.
            advance(self.clock.as_ref(), self.clock.current(), Epoch::ZERO);
            return true;
        }
        let left = *next - now;
        drop(next);
        // Under load a transaction of the new epoch may have been requested before this logger looks, so
        // that the request does not show that the old epoch is over.
        let is_over = self.horizon.requested() < self.clock.current();
        if is_over || logger.handover.queued() > 0 || logger.is_behind(&self.context()) {
            return true;
        }
        park_timeout(left);
        false
    }

    /// Runs the last cycles, after the threads have ended.
    pub(crate) fn finish(&self) -> Result<(), JournalFailure> {
        let last = self.clock.current();
        let deadline = Instant::now() + CLOSE_PATIENCE;
        self.horizon.request(last);
        let context = LoggerContext {
            epoch_time: EpochTime::Adaptive,
            ..self.context()
        };
        while self.horizon.durable() < last {
            for logger in &self.loggers {
                if logger.cycle(&context)? == CycleOutcome::Stalled {
                    return Err(self.horizon.trouble().expect("it is stalled"));
                }
            }
            if self.horizon.durable() < last {
                if Instant::now() > deadline {
                    return Err(JournalFailure::new("a transaction is still running"));
                }
                std::thread::sleep(RETRY);
            }
        }
        for logger in &self.loggers {
            logger.record(&context, Duration::ZERO)?;
        }
        Ok(())
    }
}
