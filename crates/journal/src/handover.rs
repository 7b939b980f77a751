//! The hand-over of log buffers from workers to their logger and back (paper 2, section 3.2).
//!
//! Each worker has a *lane*: the buffer that it fills, and those that are free. The logger has a
//! queue of full buffers. A buffer is *in use* from the moment it is opened until the logger has
//! written and returned it.
//!
//! ```text
//!          append              full                 write, sync
//!  worker ───────▶ open ─────────────────▶ queue ──────────────▶ free
//!                   └──────── logger steals ────────────▶┘
//! ```
//!
//! Thread-safety contract: any thread may append to any lane (one at a time gets through); one
//! logger at a time steals and returns.
//!
//! Invariants:
//! 1. Everything that was appended before a [`Handover::steal`] began is in the buffers that it or
//!    an earlier one took: a buffer moves from open to queue under its lane's lock, and the logger
//!    looks at the lanes before the queue.
//! 2. No buffer is taken twice. The order in which buffers are taken has no meaning.
//! 3. A worker waits only in [`Handover::wait_ready`], and only while all its buffers are in use;
//!    all of them are with the logger then, so that it ends.
//!    It also waits while its lane holds more than the limit that the logger has set for it
//!    ([`Handover::set_limit`]); it puts its open buffer into the queue then, so that the logger
//!    has something to do.
//! 4. [`Handover::append`] never waits for the logger: with all buffers in use it takes one more.
//!    A worker that calls `wait_ready` before each transaction so overdraws by one transaction.

use base::Epoch;
use crossbeam_utils::CachePadded;

use crate::buffer::LogBuffer;
use crate::error::JournalFailure;
use crate::format::BLOCK_HEADER;
use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering};

/// Sizes of a hand-over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferSizes {
    /// Buffers for each lane.
    pub(crate) buffers: usize,
    /// Bytes of a buffer.
    pub(crate) buffer_size: usize,
    /// `true` if the time of each append is measured, rather than only that of a block's first one.
    pub(crate) exact_times: bool,
}

/// The next action of the caller of [`Handover::append`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Appended {
    /// A buffer went to the queue: wake the logger.
    pub(crate) queued: bool,
}

/// The lanes of one logger and its queue.
pub(crate) struct Handover {
    sizes: BufferSizes,
    lanes: Vec<CachePadded<WorkerLane>>,
    queue: Mutex<Vec<LogBuffer>>,
    /// The queue's length, to read without its lock.
    queued: AtomicUsize,
    /// Bytes that a lane may hold before its worker waits.
    limit: AtomicUsize,
}

struct WorkerLane {
    state: Mutex<LaneState>,
    returned: Condvar,
}

struct LaneState {
    open: Option<LogBuffer>,
    free: Vec<LogBuffer>,
    in_use: usize,
    /// Transactions appended since the start.
    appended: u64,
    /// Bytes appended since the logger last took the lane's buffers.
    held: usize,
    waiting: bool,
    refused: Option<JournalFailure>,
    /// The reason why its workers are not ready for now.
    paused: Option<JournalFailure>,
}

impl Handover {
    /// Returns lanes without buffers; these are made when first needed.
    pub(crate) fn new(lanes: usize, sizes: BufferSizes) -> Handover {
        assert!(
            sizes.buffers >= 1 && sizes.buffer_size > BLOCK_HEADER,
            "room for a block"
        );
        let lane = || WorkerLane {
            state: Mutex::new(LaneState {
                open: None,
                free: Vec::new(),
                in_use: 0,
                appended: 0,
                held: 0,
                waiting: false,
                refused: None,
                paused: None,
            }),
            returned: Condvar::new(),
        };
        Handover {
            sizes,
            lanes: (0..lanes).map(|_| CachePadded::new(lane())).collect(),
            queue: Mutex::new(Vec::new()),
            queued: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
        }
    }

    /// Appends to the open buffer of `lane` the bytes that `fill` adds to it, about `hint` of them.
    ///
    /// # Errors
    /// Returns an error once the lane refuses (see [`Handover::refuse`]); `fill` was not called
    /// then.
    pub(crate) fn append(
        &self,
        lane: usize,
        epoch: Epoch,
        stamp_ms: u64,
        hint: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Appended, JournalFailure> {
        let mut state = self.lanes[lane].state.lock();
        if let Some(failed) = &state.refused {
            return Err(failed.clone());
        }
        let size = self.sizes.buffer_size;
        let mut queued = false;
        if let Some(buffer) = state.open.take_if(|it| it.size_with(epoch, hint) > size) {
            self.enqueue(buffer);
            queued = true;
        }
        let mut buffer = match state.open.take() {
            Some(buffer) => buffer,
            None => {
                state.in_use += 1;
                let made = || LogBuffer::new(lane, size.max(BLOCK_HEADER + hint));
                state.free.pop().unwrap_or_else(made)
            }
        };
        let before = buffer.bytes.len();
        buffer.append(epoch, stamp_ms, self.sizes.exact_times, fill);
        state.held += buffer.bytes.len() - before;
        state.appended += 1;
        if buffer.bytes.len() >= size {
            self.enqueue(buffer);
            queued = true;
        } else {
            state.open = Some(buffer);
        }
        Ok(Appended { queued })
    }

    /// Puts a buffer into the queue. Called under the lock of the buffer's lane (invariant 1).
    fn enqueue(&self, mut buffer: LogBuffer) {
        buffer.hand_over();
        let mut queue = self.queue.lock();
        queue.push(buffer);
        self.queued.store(queue.len(), Ordering::Release);
    }

    /// Returns the number of full buffers in the queue.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    /// Waits until `lane` has room for an ordinary transaction. To be called outside any epoch,
    /// which the logger may be waiting to end. `wake` wakes the logger.
    ///
    /// # Errors
    /// Returns an error once the lane refuses, and while it is paused.
    pub(crate) fn wait_ready(&self, lane: usize, wake: impl Fn()) -> Result<(), JournalFailure> {
        let lane = &self.lanes[lane];
        let mut state = lane.state.lock();
        loop {
            if let Some(failed) = state.refused.as_ref().or(state.paused.as_ref()) {
                return Err(failed.clone());
            }
            let nearly_full = self.sizes.buffer_size - self.sizes.buffer_size / 8;
            let room = state
                .open
                .as_ref()
                .is_some_and(|open| open.bytes.len() < nearly_full);
            let room = room || state.in_use < self.sizes.buffers;
            if state.open.is_none() && self.queued() == 0 {
                // A steal took the queue after this lane had added to it again: the logger knows of
                // no remaining buffer.
                state.held = 0;
            }
            if room && state.held < self.limit.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Some(buffer) = state.open.take() {
                self.enqueue(buffer);
                wake();
            }
            state.waiting = true;
            lane.returned.wait(&mut state);
        }
    }

    /// Sets the limit: from now on a worker waits while its lane holds `limit` bytes or more that
    /// the logger has not taken. The worker of a lane that holds nothing never waits: there would
    /// be nothing to take.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit.max(1), Ordering::Relaxed);
    }

    /// Returns the number of transactions appended to the first `lanes` lanes since the start.
    pub(crate) fn appended(&self, lanes: usize) -> u64 {
        let appended = |lane: &CachePadded<WorkerLane>| lane.state.lock().appended;
        self.lanes[..lanes].iter().map(appended).sum()
    }

    /// Takes everything that the first `lanes` lanes hold.
    pub(crate) fn steal(&self, lanes: usize, into: &mut Vec<LogBuffer>) {
        for lane in &self.lanes[..lanes] {
            let mut state = lane.state.lock();
            state.held = 0;
            if let Some(mut buffer) = state.open.take() {
                buffer.hand_over();
                into.push(buffer);
            }
            if std::mem::take(&mut state.waiting) {
                lane.returned.notify_all();
            }
        }
        let mut queue = self.queue.lock();
        into.append(&mut queue);
        self.queued.store(0, Ordering::Release);
    }

    /// Returns `true` if any of the first `lanes` lanes holds something in its open buffer.
    pub(crate) fn is_dirty(&self, lanes: usize) -> bool {
        let dirty = |lane: &CachePadded<WorkerLane>| lane.state.lock().open.is_some();
        self.lanes[..lanes].iter().any(dirty) || self.queued() > 0
    }

    /// Gives written buffers back to their lanes.
    pub(crate) fn put_back(&self, buffers: &mut Vec<LogBuffer>) {
        for mut buffer in buffers.drain(..) {
            let lane = &self.lanes[buffer.lane];
            let mut state = lane.state.lock();
            state.in_use -= 1;
            // A buffer that grew for a large transaction is not kept.
            let ordinary = buffer.bytes.capacity() <= 2 * self.sizes.buffer_size;
            if ordinary && state.free.len() < self.sizes.buffers {
                buffer.clear();
                state.free.push(buffer);
            }
            if std::mem::take(&mut state.waiting) {
                lane.returned.notify_all();
            }
        }
    }

    /// Makes waits return the error from now on, until `None` is given. Appends go on: their
    /// transactions have been executed.
    pub(crate) fn pause(&self, why: Option<&JournalFailure>) {
        for lane in &self.lanes {
            let mut state = lane.state.lock();
            state.paused = why.cloned();
            lane.returned.notify_all();
        }
    }

    /// Makes appends and waits return `failed` from now on. Buffers that were filled can still be
    /// stolen.
    pub(crate) fn refuse(&self, failed: &JournalFailure) {
        for lane in &self.lanes {
            let mut state = lane.state.lock();
            state.refused.get_or_insert_with(|| failed.clone());
            lane.returned.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    const ROOM: usize = 100;

    /// Returns a hand-over of one lane with this `limit`.
    fn limited(limit: usize) -> Arc<Handover> {
        let sizes = BufferSizes {
            buffers: 2,
            buffer_size: BLOCK_HEADER + ROOM,
            exact_times: false,
        };
        let handover = Arc::new(Handover::new(1, sizes));
        handover.set_limit(limit);
        handover
    }

    fn append(handover: &Handover, bytes: usize) {
        let fill = |to: &mut Vec<u8>| to.resize(to.len() + bytes, 7);
        handover.append(0, Epoch(1), 0, bytes, fill).unwrap();
    }

    fn must_not_wait(handover: &Arc<Handover>) {
        let (done, is_done) = channel();
        let waiting = Arc::clone(handover);
        std::thread::spawn(move || done.send(waiting.wait_ready(0, || {})));
        let outcome = is_done.recv_timeout(Duration::from_secs(10));
        outcome.expect("it waits for ever").unwrap();
    }

    /// The logger would take nothing from the lane, and so would not wake its worker.
    #[test]
    fn a_lane_that_holds_nothing_is_not_held_by_any_limit() {
        let handover = limited(0);
        must_not_wait(&handover);
        append(&handover, ROOM);
        let mut taken = Vec::new();
        handover.steal(1, &mut taken);
        assert_eq!(taken.len(), 1);
        must_not_wait(&handover);
    }

    /// A buffer became full after the logger had passed the lane, and before it took the queue.
    #[test]
    fn what_was_taken_with_the_queue_alone_is_not_held_any_more() {
        let handover = limited(10);
        append(&handover, ROOM);
        assert_eq!(handover.queued(), 1);
        let mut taken = Vec::new();
        handover.steal(0, &mut taken);
        assert_eq!(taken.len(), 1);
        must_not_wait(&handover);
    }
}
