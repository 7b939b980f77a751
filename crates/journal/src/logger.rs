//! A logger: takes the transactions that its workers appended, writes them to its log, syncs, and
//! closes epochs.
//!
//! One round is a *cycle*:
//!
//! 1. move the epoch on, if that is the loggers' task;
//! 2. read the newest finished epoch *m*;
//! 3. take all buffers of the logger's workers, the open ones too;
//! 4. write them with one call, the last block saying that *m* is closed; sync;
//! 5. publish *m*, give the buffers back.
//!
//! Thread-safety contract: a cycle runs under the lock of the logger's state, on any thread.
//!
//! Invariants:
//! 1. *m* is read before the buffers are taken, so that these hold all of *m* and before
//!    (`EpochClock`'s and `handover`'s invariants).
//! 2. Only the last block of a cycle carries the new *m*; a torn cycle closes nothing.
//! 3. Nothing is published before the sync that covers it has returned.
//! 4. The first failed write or sync is the last: the journal is failed from then on.
//! 5. Space for a write is set aside before it. When there is none, nothing was written: the logger
//!    keeps the buffers that it took, no epoch is closed, and the next cycle tries again.

use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Thread, park_timeout};
use std::time::{Duration, Instant};

use base::Epoch;
use base::epochs::EpochClock;
use base::planted::{self, Bug};
use parking_lot::Mutex;

use crate::buffer::LogBuffer;
use crate::error::{CheckpointError, JournalFailure};
use crate::format::{BLOCK_HEADER, aligned};
use crate::handover::Handover;
use crate::horizon::Horizon;
use crate::options::EpochTime;
use crate::pace::{Cycle, Pacer};
use crate::seal::Sealer;
use crate::segment::LogFile;
use crate::stats::JournalCounters;

/// The number of times that a cycle tries to get the epoch moved on before it goes ahead without.
const PATIENCE: u32 = 64;

pub(crate) struct Logger {
    index: usize,
    pub(crate) handover: Handover,
    /// The number of lanes that were ever handed out; the others are empty.
    pub(crate) lanes_used: AtomicUsize,
    state: Mutex<LoggerState>,
    thread: OnceLock<Thread>,
    /// The thread sleeps without a time limit, so that an append must wake it.
    sleeping: AtomicBool,
    /// `true` if there was no room for the last write.
    stalled: AtomicBool,
    segment_size: u64,
}

/// The log as its writer knows it.
struct LoggerState {
    file: LogFile,
    /// The number of the next block.
    sequence: u64,
    /// All epochs up to this are complete in the log, or empty.
    closed: Epoch,
    /// The newest epoch of a block that was written.
    written: Epoch,
    /// The epoch up to which the last synced block says that all are closed. It is behind `closed`
    /// when epochs ended in which nothing happened.
    noted: Epoch,
    /// The durable epoch that the last synced block carries.
    recorded: Epoch,
    /// The greatest stamp of a block.
    stamp_ms: u64,
    /// A time that has passed, which the next mark says.
    passed_ms: u64,
    last_write: Instant,
    pacer: Pacer,
    /// `true` if the cycle that runs was put off until it was due.
    gathered: bool,
    /// Buffers that were taken and could not be written yet; otherwise empty, and kept for its
    /// memory.
    buffers: Vec<LogBuffer>,
}

/// The state that all loggers of a journal share.
pub(crate) struct LoggerContext<'a> {
    pub(crate) clock: &'a dyn EpochClock,
    pub(crate) horizon: &'a Horizon,
    pub(crate) counters: &'a JournalCounters,
    pub(crate) epoch_time: EpochTime,
    pub(crate) loggers: usize,
}

/// The outcome of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CycleOutcome {
    /// A block was written, or an epoch closed.
    Progress,
    /// An epoch that was requested is still held by a worker, and there was nothing to write.
    Held,
    /// There was nothing to do.
    Idle,
    /// There is no room for the log.
    Stalled,
}

impl Logger {
    pub(crate) fn new(
        index: usize,
        handover: Handover,
        file: LogFile,
        start: Epoch,
        segment_size: u64,
        durability_target: Duration,
    ) -> Logger {
        let state = LoggerState {
            file,
            sequence: 0,
            closed: start,
            written: start,
            noted: start,
            recorded: start,
            stamp_ms: 0,
            passed_ms: 0,
            last_write: Instant::now(),
            pacer: Pacer::new(durability_target),
            gathered: false,
            buffers: Vec::new(),
        };
        Logger {
            index,
            handover,
            lanes_used: AtomicUsize::new(0),
            state: Mutex::new(state),
            thread: OnceLock::new(),
            sleeping: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            segment_size,
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes_used.load(Ordering::Acquire)
    }

    /// Makes the calling thread the one that [`Logger::wake`] wakes.
    pub(crate) fn adopt(&self) {
        assert!(
            self.thread.set(std::thread::current()).is_ok(),
            "one thread for each logger"
        );
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Wakes the thread if it sleeps without a time limit. Called after an append: the thread
    /// looks at the lanes after it has set `sleeping`, under the lock that the append held, so
    /// that either it sees what was appended or the appender sees it sleeping.
    pub(crate) fn wake_if_sleeping(&self) {
        if self.sleeping.load(Ordering::Acquire) {
            self.wake();
        }
    }

    /// Returns `true` if a cycle would have something to do at once.
    pub(crate) fn has_work(&self, context: &LoggerContext<'_>) -> bool {
        self.handover.queued() > 0
            || self.stalled.load(Ordering::Acquire)
            || context.horizon.requested() > context.horizon.closed(self.index)
    }

    /// Returns `true` if an epoch is over that this log has not closed.
    pub(crate) fn is_behind(&self, context: &LoggerContext<'_>) -> bool {
        context.clock.finished() > context.horizon.closed(self.index)
    }

    /// Returns `true` if an appended transaction is not durable yet: an epoch that is closed here
    /// may be waiting for a log that has nothing to do.
    pub(crate) fn is_dirty(&self, context: &LoggerContext<'_>) -> bool {
        // In this order: a cycle on another thread that has just emptied the lanes is over when its
        // state can be locked.
        self.handover.is_dirty(self.lanes()) || {
            let state = self.state.lock();
            state.written > context.horizon.durable() || !state.buffers.is_empty()
        }
    }

    /// Sleeps until woken, unless there is something to do.
    pub(crate) fn sleep(&self, context: &LoggerContext<'_>, stopping: &AtomicBool) {
        self.sleeping.store(true, Ordering::Release);
        if !self.is_dirty(context) && !self.has_work(context) && !stopping.load(Ordering::Acquire) {
            std::thread::park();
        }
        self.sleeping.store(false, Ordering::Release);
    }

    /// Runs a cycle on this thread, after the one that may be running elsewhere.
    pub(crate) fn cycle(
        &self,
        context: &LoggerContext<'_>,
    ) -> Result<CycleOutcome, JournalFailure> {
        self.guarded(context, &mut self.state.lock(), |state| {
            self.cycle_in(context, state, context.horizon.requested())
        })
    }

    /// Runs a cycle on this thread for a caller that waits for `epoch`, unless a cycle is running.
    pub(crate) fn try_cycle(
        &self,
        context: &LoggerContext<'_>,
        epoch: Epoch,
    ) -> Option<Result<CycleOutcome, JournalFailure>> {
        let mut state = self.state.try_lock()?;
        Some(self.guarded(context, &mut state, |state| {
            self.cycle_in(context, state, context.horizon.requested().max(epoch))
        }))
    }

    /// Runs `action` on the log, if it has not failed yet (invariant 4). A panic is a failure: the
    /// buffers that were taken from the workers are lost with it, and no epoch may be closed
    /// without them.
    fn guarded<T>(
        &self,
        context: &LoggerContext<'_>,
        state: &mut LoggerState,
        action: impl FnOnce(&mut LoggerState) -> Result<T, JournalFailure>,
    ) -> Result<T, JournalFailure> {
        if let Some(failed) = context.horizon.failed() {
            return Err(failed.clone());
        }
        catch_unwind(AssertUnwindSafe(|| action(state)))
            .unwrap_or_else(|_| {
                Err(JournalFailure::new(format!(
                    "logger {} panicked",
                    self.index
                )))
            })
            .inspect_err(|failed| context.horizon.fail(failed.clone()))
    }

    fn cycle_in(
        &self,
        context: &LoggerContext<'_>,
        state: &mut LoggerState,
        requested: Epoch,
    ) -> Result<CycleOutcome, JournalFailure> {
        if context.epoch_time == EpochTime::Adaptive {
            advance(context.clock, requested, state.closed);
        }
        let finished = context.clock.finished().max(state.closed);
        let mut buffers = std::mem::take(&mut state.buffers);
        self.handover.steal(self.lanes(), &mut buffers);
        if buffers.is_empty() && (finished == state.closed || requested <= state.closed) {
            state.buffers = buffers;
            return Ok(if requested > state.closed {
                CycleOutcome::Held
            } else {
                CycleOutcome::Idle
            });
        }
        let appended = self.handover.appended(self.lanes());
        let began = Instant::now();
        let closed = std::mem::replace(&mut state.closed, finished);
        // A single log that has nothing new, and that has recorded everything it holds as complete,
        // need not record that again. A block may have been written before its epoch had finished.
        if !buffers.is_empty() || context.loggers > 1 || state.written > state.noted {
            let bytes = match self.write(context, state, &mut buffers)? {
                Ok(bytes) => bytes,
                Err(no_room) => {
                    (state.closed, state.buffers) = (closed, buffers);
                    self.stalled.store(true, Ordering::Release);
                    context.horizon.stall(self.index, Some(no_room));
                    return Ok(CycleOutcome::Stalled);
                }
            };
            self.account(context, state, &buffers, (began, bytes, appended));
        }
        if self.stalled.swap(false, Ordering::AcqRel) {
            context.horizon.stall(self.index, None);
        }
        context.horizon.publish(self.index, finished);
        self.handover.put_back(&mut buffers);
        state.buffers = buffers;
        Ok(CycleOutcome::Progress)
    }

    /// Accounts for the time of `buffers`, which were synced just now, and adjusts the pace.
    /// `appended`: the number of transactions when the cycle `began`.
    fn account(
        &self,
        context: &LoggerContext<'_>,
        state: &mut LoggerState,
        buffers: &[LogBuffer],
        (began, bytes, appended): (Instant, u64, u64),
    ) {
        let synced = state.last_write;
        let notifications = context.horizon.notifications();
        let waits = || buffers.iter().flat_map(|buffer| buffer.waits(began));
        notifications.put(waits(), began, synced);
        let gathered = std::mem::take(&mut state.gathered);
        let transactions: u64 = waits().map(|(_, waits)| waits.transactions).sum();
        if transactions == 0 || context.epoch_time != EpochTime::Adaptive {
            return;
        }
        let took = synced.duration_since(began);
        let before: Duration = waits().map(|(_, waits)| waits.buffer + waits.queue).sum();
        let cycle = Cycle {
            began,
            took,
            bytes,
            latency: before.div_f64(transactions as f64) + took,
            notification: notifications.mean(),
            joined: self.handover.appended(self.lanes()) > appended,
        };
        state.pacer.observe(&cycle, gathered);
        self.handover
            .set_limit(state.pacer.limit() / self.lanes().max(1));
    }

    /// Lets more transactions join the next cycle, if that is useful. Returns `true` once the cycle
    /// should begin; returns `false` if another event may have happened meanwhile.
    pub(crate) fn gather(&self, context: &LoggerContext<'_>) -> bool {
        let now = Instant::now();
        let (due, lull) = {
            let mut state = self.state.lock();
            let due = state.pacer.next();
            state.gathered = due.is_some_and(|due| due <= now);
            (due.unwrap_or(now), state.pacer.lull())
        };
        // A full buffer must not wait; and where another log has closed an epoch, its transactions
        // wait for this one.
        let behind = context.horizon.most_closed() > context.horizon.closed(self.index);
        if due <= now || behind || self.handover.queued() > 0 {
            return true;
        }
        let before = self.handover.appended(self.lanes());
        park_timeout((due - now).min(lull));
        now.elapsed() >= lull && self.handover.appended(self.lanes()) == before
    }

    /// Writes and syncs `buffers`, or a mark if there are none. Returns the number of bytes, or the
    /// inner error when there is no room for them for now; nothing was done then.
    fn write(
        &self,
        context: &LoggerContext<'_>,
        state: &mut LoggerState,
        buffers: &mut [LogBuffer],
    ) -> Result<Result<u64, JournalFailure>, JournalFailure> {
        let sizes = buffers
            .iter()
            .map(|buffer| aligned(buffer.bytes.len() as u64));
        let size = sizes.sum::<u64>().max(BLOCK_HEADER as u64) + state.file.next_write().1 as u64;
        if let Err(no_room) = state
            .file
            .make_room(size, state.sequence, self.segment_size)?
        {
            return Ok(Err(no_room));
        }
        // Nothing may be claimed of epochs that no block closes yet: if this write is torn, the
        // claim would outlive its proof.
        let durable = context.horizon.durable().min(state.noted);
        let (at, alignment) = state.file.next_write();
        let mut sealer = Sealer {
            seed: state.file.seed(),
            sequence: state.sequence,
            at,
            closed: context.horizon.closed(self.index),
            durable,
            passed_ms: state.passed_ms,
        };
        if let Some((last, others)) = buffers.split_last_mut() {
            for buffer in others {
                sealer.seal(buffer, None);
            }
            sealer.seal(last, Some((state.closed, alignment)));
            let epochs = buffers.iter().flat_map(|buffer| &buffer.blocks);
            let newest = epochs.map(|block| block.epoch).max();
            state.written = state.written.max(newest.unwrap_or_default());
            let stamps = buffers.iter().flat_map(|buffer| &buffer.blocks);
            let stamp = stamps.map(|block| block.stamp_ms).max();
            state.stamp_ms = state.stamp_ms.max(stamp.unwrap_or_default());
        }
        let mark;
        let mut parts: Vec<IoSlice<'_>> = buffers
            .iter()
            .map(|buffer| IoSlice::new(&buffer.bytes))
            .collect();
        if parts.is_empty() {
            mark = sealer.mark(state.closed, alignment);
            parts.push(IoSlice::new(&mark));
            context.counters.marks.fetch_add(1, Ordering::Relaxed);
            state.stamp_ms = state.stamp_ms.max(state.passed_ms);
        }
        let (bytes, blocks) = (sealer.at - at, sealer.sequence - state.sequence);
        state.sequence = sealer.sequence;
        if planted::is(Bug::EarlyReply) {
            context.horizon.publish(self.index, state.closed);
        }
        let start = Instant::now();
        state.file.write_and_sync(&parts, bytes)?;
        state.last_write = Instant::now();
        (state.noted, state.recorded) = (state.closed, durable);
        context.counters.synced(state.last_write - start);
        context.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        context.counters.blocks.fetch_add(blocks, Ordering::Relaxed);
        context.counters.cycles.fetch_add(1, Ordering::Relaxed);
        Ok(Ok(bytes))
    }

    /// Continues in a new segment, if the present one holds any block: all earlier writes lie in
    /// earlier segments then. Returns the segment's number and that of its first block. When no
    /// segment can be made, the log continues in its present one.
    pub(crate) fn branch(
        &self,
        context: &LoggerContext<'_>,
    ) -> Result<(u32, u64), CheckpointError> {
        let branched = self.guarded(context, &mut self.state.lock(), |state| {
            state.file.branch(state.sequence)
        });
        Ok(branched??)
    }

    /// Returns for each log the number of its newest segment, and the offset up to which it is written and synced, all
    /// of them at one moment: blocks say which epochs are durable, and the other logs have these epochs then.
    pub(crate) fn positions(loggers: &[Logger]) -> Vec<(u32, u64)> {
        let states: Vec<_> = loggers.iter().map(|logger| logger.state.lock()).collect();
        states.iter().map(|state| state.file.position()).collect()
    }

    /// Gives back the room that the log has set aside. The log is not written to any more.
    pub(crate) fn trim(&self) {
        self.state.lock().file.trim();
    }

    /// Records that all epochs up to `epoch`, which is durable, are closed, unless a block of this
    /// log says so. The inner error says that there is no room for that.
    pub(crate) fn note(
        &self,
        context: &LoggerContext<'_>,
        epoch: Epoch,
    ) -> Result<Result<(), JournalFailure>, JournalFailure> {
        self.guarded(context, &mut self.state.lock(), |state| {
            if state.noted >= epoch {
                return Ok(Ok(()));
            }
            Ok(self.write(context, state, &mut [])?.map(|_| ()))
        })
    }

    /// Records that the time `passed_ms` has passed, unless a block of this log says so. The inner error
    /// says that there is no room for that.
    pub(crate) fn note_time(
        &self,
        context: &LoggerContext<'_>,
        passed_ms: u64,
    ) -> Result<Result<(), JournalFailure>, JournalFailure> {
        self.guarded(context, &mut self.state.lock(), |state| {
            if state.stamp_ms >= passed_ms {
                return Ok(Ok(()));
            }
            state.passed_ms = passed_ms;
            Ok(self.write(context, state, &mut [])?.map(|_| ()))
        })
    }

    /// Records that the contents of this log became durable, so that damage can be distinguished
    /// from an unfinished write. Does so only after the log has been quiet for `quiet`: otherwise
    /// the next block says it too. Returns the time until then, if the log has not been quiet for
    /// so long.
    pub(crate) fn record(
        &self,
        context: &LoggerContext<'_>,
        quiet: Duration,
    ) -> Result<Option<Duration>, JournalFailure> {
        self.guarded(context, &mut self.state.lock(), |state| {
            if state.recorded >= context.horizon.durable().min(state.noted) {
                return Ok(None);
            }
            let left = quiet.saturating_sub(state.last_write.elapsed());
            if !left.is_zero() {
                return Ok(Some(left));
            }
            // Without room it stays unrecorded: the next block says it.
            let _ = self.write(context, state, &mut [])?;
            Ok(None)
        })
    }
}

/// Moves the epoch past all transactions so far, if `requested` or the log's progress beyond
/// `closed` need it. It waits for a worker that is in the middle of a transaction if the worker's
/// epoch was requested, but not for long: there may be other blocks to write.
pub(crate) fn advance(clock: &dyn EpochClock, requested: Epoch, closed: Epoch) {
    let finished = clock.finished();
    // With several loggers another one may have moved it already.
    let patience = match finished {
        f if f < requested => PATIENCE,
        f if f <= closed => 1,
        _ => return,
    };
    let from = clock.current();
    for round in 0..patience {
        if clock.advance(from) > from && clock.finished() >= from {
            return;
        }
        if round < 8 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
