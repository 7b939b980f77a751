//! A logger: takes what its workers appended, writes it to its log, syncs, and closes epochs.
//!
//! One round is a *cycle*:
//!
//! 1. move the epoch on, if it is for the loggers to do so;
//! 2. read the newest finished epoch *m*;
//! 3. take all buffers of the logger's workers, the open ones too;
//! 4. write them with one call, the last block saying that *m* is closed; sync;
//! 5. publish *m*, give the buffers back.
//!
//! Thread-safety contract: a cycle runs under the lock of the logger's state, on whatever thread.
//!
//! Invariants:
//! 1. *m* is read before the buffers are taken, so that these hold all of *m* and before
//!    (`EpochClock`'s and `handover`'s invariants).
//! 2. Only the last block of a cycle carries the new *m*; a torn cycle closes nothing.
//! 3. Nothing is published before the sync that covers it has returned.
//! 4. The first failed write or sync is the last: the journal is failed from then on.

use std::io::IoSlice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use base::Epoch;
use base::epochs::EpochClock;
use parking_lot::Mutex;

use crate::error::Failed;
use crate::format::{ALIGN, BLOCK_HEADER, BlockHeader, BlockKind, aligned, payload_checksum};
use crate::handover::{Block, Handover};
use crate::horizon::Horizon;
use crate::options::EpochTime;
use crate::segment::LogFile;
use crate::stats::Counters;

/// How often a cycle tries to get the epoch moved on before it goes ahead without.
const PATIENCE: u32 = 64;

pub(crate) struct Logger {
    index: usize,
    pub(crate) handover: Handover,
    /// How many of the lanes were ever handed out; the others are empty.
    pub(crate) lanes_used: AtomicUsize,
    state: Mutex<State>,
    thread: OnceLock<Thread>,
    /// The thread sleeps without a time limit, so that an append must wake it.
    sleeping: AtomicBool,
    segment_size: u64,
}

/// The log as its writer knows it.
struct State {
    file: LogFile,
    /// Number of the next block.
    sequence: u64,
    /// All epochs up to this are complete in the log, or empty.
    closed: Epoch,
    /// The newest epoch of a block that was written.
    written: Epoch,
    /// What the last synced block says to be closed. Behind `closed` when epochs ended in which
    /// nothing happened.
    noted: Epoch,
    /// The durable epoch that the last synced block carries.
    recorded: Epoch,
    last_write: Instant,
    /// Kept for its memory.
    blocks: Vec<Block>,
}

/// What all loggers of a journal share.
pub(crate) struct Context<'a> {
    pub(crate) clock: &'a dyn EpochClock,
    pub(crate) horizon: &'a Horizon,
    pub(crate) counters: &'a Counters,
    pub(crate) epoch_time: EpochTime,
    pub(crate) loggers: usize,
}

/// What a cycle has brought about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Something was written, or closed.
    Progress,
    /// An epoch that someone waits for is still held by a worker, and there was nothing to write.
    Held,
    /// There was nothing to do.
    Idle,
}

impl Logger {
    pub(crate) fn new(
        index: usize,
        handover: Handover,
        file: LogFile,
        start: Epoch,
        segment_size: u64,
    ) -> Logger {
        let state = State {
            file,
            sequence: 0,
            closed: start,
            written: start,
            noted: start,
            recorded: start,
            last_write: Instant::now(),
            blocks: Vec::new(),
        };
        Logger {
            index,
            handover,
            lanes_used: AtomicUsize::new(0),
            state: Mutex::new(state),
            thread: OnceLock::new(),
            sleeping: AtomicBool::new(false),
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

    /// Whether a cycle would have something to do at once.
    pub(crate) fn has_work(&self, context: &Context<'_>) -> bool {
        self.handover.queued() > 0
            || context.horizon.requested() > context.horizon.closed(self.index)
    }

    /// Whether anything that was appended is not closed yet.
    pub(crate) fn is_dirty(&self) -> bool {
        // In this order: a cycle on another thread that has just emptied the lanes is over when
        // its state can be locked.
        self.handover.is_dirty(self.lanes()) || {
            let state = self.state.lock();
            state.written > state.closed
        }
    }

    /// Sleeps until woken, unless there is something to do.
    pub(crate) fn sleep(&self, context: &Context<'_>, stopping: &AtomicBool) {
        self.sleeping.store(true, Ordering::Release);
        if !self.is_dirty() && !self.has_work(context) && !stopping.load(Ordering::Acquire) {
            std::thread::park();
        }
        self.sleeping.store(false, Ordering::Release);
    }

    /// Runs a cycle on this thread, after the one that may be running elsewhere.
    pub(crate) fn cycle(&self, context: &Context<'_>) -> Result<Outcome, Failed> {
        self.guarded(context, &mut self.state.lock(), |state| {
            self.cycle_in(context, state, context.horizon.requested())
        })
    }

    /// Runs a cycle on this thread for one that waits for `epoch`, unless a cycle is running.
    pub(crate) fn try_cycle(
        &self,
        context: &Context<'_>,
        epoch: Epoch,
    ) -> Option<Result<Outcome, Failed>> {
        let mut state = self.state.try_lock()?;
        Some(self.guarded(context, &mut state, |state| {
            self.cycle_in(context, state, context.horizon.requested().max(epoch))
        }))
    }

    /// Does something with the log, if it has not failed yet (invariant 4).
    fn guarded<T>(
        &self,
        context: &Context<'_>,
        state: &mut State,
        action: impl FnOnce(&mut State) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        if let Some(failed) = context.horizon.failed() {
            return Err(failed.clone());
        }
        action(state).inspect_err(|failed| context.horizon.fail(failed.clone()))
    }

    fn cycle_in(
        &self,
        context: &Context<'_>,
        state: &mut State,
        requested: Epoch,
    ) -> Result<Outcome, Failed> {
        if context.epoch_time == EpochTime::Adaptive {
            advance(context.clock, requested, state.closed);
        }
        let finished = context.clock.finished().max(state.closed);
        let mut blocks = std::mem::take(&mut state.blocks);
        self.handover.steal(self.lanes(), &mut blocks);
        if blocks.is_empty() && (finished == state.closed || requested <= state.closed) {
            state.blocks = blocks;
            return Ok(if requested > state.closed {
                Outcome::Held
            } else {
                Outcome::Idle
            });
        }
        state.closed = finished;
        // A single log that has nothing new and has said of all it holds that it is complete need
        // not say so again. A block may have been written before its epoch had finished.
        if !blocks.is_empty() || context.loggers > 1 || state.written > state.noted {
            self.write(context, state, &mut blocks)?;
        }
        context.horizon.publish(self.index, finished);
        self.handover.put_back(&mut blocks);
        state.blocks = blocks;
        Ok(Outcome::Progress)
    }

    /// Writes and syncs `blocks`, or a mark if there are none.
    fn write(
        &self,
        context: &Context<'_>,
        state: &mut State,
        blocks: &mut [Block],
    ) -> Result<(), Failed> {
        if state.file.used() >= self.segment_size {
            state.file.rotate(state.sequence)?;
        }
        let seed = state.file.seed();
        // Of epochs that no block closes yet nothing may be claimed: if this write is torn, the
        // claim would outlive its proof.
        let durable = context.horizon.durable().min(state.noted);
        let before = context.horizon.closed(self.index);
        let last = blocks.len().saturating_sub(1);
        let (at, alignment) = state.file.next_write();
        let mut bytes = 0;
        for (i, block) in blocks.iter_mut().enumerate() {
            // Invariant 2.
            let closed = if i == last { state.closed } else { before };
            // The next write begins in a sector of its own.
            let pad_to = if i == last { alignment } else { ALIGN };
            seal(
                block,
                seed,
                state.sequence,
                (closed, durable),
                at + bytes,
                pad_to,
            );
            state.sequence += 1;
            state.written = state.written.max(block.epoch);
            bytes += block.bytes.len() as u64;
        }
        let mark;
        let mut parts: Vec<IoSlice<'_>> = blocks
            .iter()
            .map(|block| IoSlice::new(&block.bytes))
            .collect();
        if parts.is_empty() {
            mark = mark_block(seed, state.sequence, (state.closed, durable), alignment);
            state.sequence += 1;
            bytes = mark.len() as u64;
            parts.push(IoSlice::new(&mark));
            context.counters.marks.fetch_add(1, Ordering::Relaxed);
        }
        state.file.write(&parts, bytes)?;
        #[cfg(feature = "planted-early-reply")]
        context.horizon.publish(self.index, state.closed);
        let start = Instant::now();
        state.file.sync()?;
        state.last_write = Instant::now();
        (state.noted, state.recorded) = (state.closed, durable);
        context.counters.synced(state.last_write - start);
        context.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        context
            .counters
            .blocks
            .fetch_add(parts.len() as u64, Ordering::Relaxed);
        context.counters.cycles.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes down that what this log holds became durable, so that damage to it can be told from
    /// an unfinished write. Not before the log has been quiet for `quiet`: the next block says it
    /// too. Returns how long it is until then, if it is not yet.
    pub(crate) fn record(
        &self,
        context: &Context<'_>,
        quiet: Duration,
    ) -> Result<Option<Duration>, Failed> {
        self.guarded(context, &mut self.state.lock(), |state| {
            if state.recorded >= context.horizon.durable().min(state.noted) {
                return Ok(None);
            }
            let left = quiet.saturating_sub(state.last_write.elapsed());
            if !left.is_zero() {
                return Ok(Some(left));
            }
            self.write(context, state, &mut [])?;
            Ok(None)
        })
    }
}

/// Fills in the header of a block that will lie at `at`, and pads it to a multiple of `pad_to`.
fn seal(
    block: &mut Block,
    seed: u32,
    sequence: u64,
    (closed, durable): (Epoch, Epoch),
    at: u64,
    pad_to: usize,
) {
    let length = block.bytes.len() - BLOCK_HEADER;
    let end = aligned(at + block.bytes.len() as u64);
    let padded = end.next_multiple_of(pad_to as u64);
    let header = BlockHeader {
        kind: BlockKind::Data,
        sequence,
        epoch: block.epoch,
        stamp_ms: block.stamp_ms,
        closed,
        durable,
        length: u32::try_from(length).expect("limits keep transactions below 4 GiB"),
        pad: (padded - end) as u32,
        payload_checksum: payload_checksum(seed, &block.bytes[BLOCK_HEADER..]),
    };
    block.bytes[..BLOCK_HEADER].copy_from_slice(&header.encode(seed));
    block.bytes.resize((padded - at) as usize, 0);
}

fn mark_block(
    seed: u32,
    sequence: u64,
    (closed, durable): (Epoch, Epoch),
    pad_to: usize,
) -> Vec<u8> {
    let size = BLOCK_HEADER.next_multiple_of(pad_to);
    let header = BlockHeader {
        kind: BlockKind::Mark,
        sequence,
        epoch: Epoch::ZERO,
        stamp_ms: 0,
        closed,
        durable,
        length: 0,
        pad: (size - BLOCK_HEADER) as u32,
        payload_checksum: payload_checksum(seed, &[]),
    };
    let mut bytes = header.encode(seed).to_vec();
    bytes.resize(size, 0);
    bytes
}

const _: () = assert!(
    BLOCK_HEADER.is_multiple_of(ALIGN),
    "a mark needs no padding"
);

/// Moves the epoch past all that happened so far, if `requested` or the log's progress beyond
/// `closed` need it. A worker that is in the middle of a transaction is waited for if someone
/// wants its epoch, but not for long: there may be other blocks to write.
fn advance(clock: &dyn EpochClock, requested: Epoch, closed: Epoch) {
    let finished = clock.finished();
    // With several loggers another may have moved it already.
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
