//! How log buffers pass from workers to their logger and back (paper 2, section 3.2).
//!
//! Each worker has a *lane*: the buffer that it fills, and those that are free. The logger has a
//! queue of full buffers. A buffer is *in use* from the moment it is opened until the logger has
//! written and returned it.
//!
//! ```text
//!          append            full, or another epoch              write, sync
//!  worker ───────▶ open ──────────────────────────────▶ queue ──────────────▶ free
//!                   └──────────── logger steals ──────────────────▶┘
//! ```
//!
//! Thread-safety contract: any thread may append to any lane (one at a time gets through); one
//! logger at a time steals and returns.
//!
//! Invariants:
//! 1. What was appended before a [`Handover::steal`] began is in what it or an earlier one took:
//!    a buffer moves from open to queue under its lane's lock, and the logger looks at the lanes
//!    before the queue.
//! 2. Nothing is taken twice. The order in which buffers are taken means nothing.
//! 3. A worker waits only in [`Handover::wait_ready`], and only while all its buffers are in use;
//!    all of them are with the logger then, so that it ends.
//! 4. [`Handover::append`] never waits for the logger: with all buffers in use it takes one more.
//!    A worker that calls `wait_ready` before each transaction so overdraws by one transaction.

// Public for loom's model alone.
#![cfg_attr(not(loom), allow(unreachable_pub))]

use crossbeam_utils::CachePadded;

use base::Epoch;

use crate::error::Failed;
use crate::format::{ALIGN, BLOCK_HEADER};
use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering};

/// A filled buffer: transactions of one epoch, behind room for the block's header.
pub struct Block {
    /// Where it returns to.
    lane: usize,
    /// The epoch of all its transactions.
    pub epoch: Epoch,
    /// That epoch's time.
    pub stamp_ms: u64,
    /// Header and payload.
    pub bytes: Vec<u8>,
}

impl Block {
    fn is_empty(&self) -> bool {
        self.bytes.len() == BLOCK_HEADER
    }
}

/// Sizes of a hand-over.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Buffers for each lane.
    pub buffers: usize,
    /// Bytes of a buffer.
    pub buffer_size: usize,
}

/// What the caller of [`Handover::append`] does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// A buffer went to the queue: wake the logger.
    pub queued: bool,
}

/// The lanes of one logger and its queue.
pub struct Handover {
    sizes: Sizes,
    lanes: Vec<CachePadded<Lane>>,
    queue: Mutex<Vec<Block>>,
    /// The queue's length, to look at without its lock.
    queued: AtomicUsize,
}

struct Lane {
    state: Mutex<LaneState>,
    returned: Condvar,
}

struct LaneState {
    open: Option<Block>,
    free: Vec<Vec<u8>>,
    in_use: usize,
    waiting: bool,
    refused: Option<Failed>,
}

impl Handover {
    /// Lanes without buffers; these are made when first needed.
    pub fn new(lanes: usize, sizes: Sizes) -> Handover {
        assert!(
            sizes.buffers >= 1 && sizes.buffer_size > BLOCK_HEADER,
            "room for a block"
        );
        let lane = || Lane {
            state: Mutex::new(LaneState {
                open: None,
                free: Vec::new(),
                in_use: 0,
                waiting: false,
                refused: None,
            }),
            returned: Condvar::new(),
        };
        Handover {
            sizes,
            lanes: (0..lanes).map(|_| CachePadded::new(lane())).collect(),
            queue: Mutex::new(Vec::new()),
            queued: AtomicUsize::new(0),
        }
    }

    /// Appends to the open buffer of `lane` what `fill` adds to it; about `hint` bytes.
    ///
    /// # Errors
    /// Once the lane refuses (see [`Handover::refuse`]); `fill` was not called then.
    pub fn append(
        &self,
        lane: usize,
        epoch: Epoch,
        stamp_ms: u64,
        hint: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Appended, Failed> {
        let mut state = self.lanes[lane].state.lock();
        if let Some(failed) = &state.refused {
            return Err(failed.clone());
        }
        let fits = |block: &Block| {
            block.is_empty()
                || block.epoch == epoch && block.bytes.len() + hint <= self.sizes.buffer_size
        };
        let mut queued = false;
        if let Some(block) = state.open.take_if(|block| !fits(block)) {
            self.enqueue(block);
            queued = true;
        }
        let mut block = match state.open.take() {
            Some(block) => block,
            None => {
                state.in_use += 1;
                let bytes = state.free.pop().unwrap_or_else(|| self.buffer(hint));
                Block {
                    lane,
                    epoch,
                    stamp_ms,
                    bytes,
                }
            }
        };
        if block.is_empty() {
            (block.epoch, block.stamp_ms) = (epoch, stamp_ms);
        }
        fill(&mut block.bytes);
        if block.bytes.len() >= self.sizes.buffer_size {
            self.enqueue(block);
            queued = true;
        } else {
            state.open = Some(block);
        }
        Ok(Appended { queued })
    }

    fn buffer(&self, hint: usize) -> Vec<u8> {
        let size = self.sizes.buffer_size.max(BLOCK_HEADER + hint);
        let mut bytes = Vec::with_capacity(size + ALIGN);
        bytes.resize(BLOCK_HEADER, 0);
        bytes
    }

    /// Called under the lock of the block's lane (invariant 1).
    fn enqueue(&self, block: Block) {
        let mut queue = self.queue.lock();
        queue.push(block);
        self.queued.store(queue.len(), Ordering::Release);
    }

    /// How many full buffers wait in the queue.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    /// Waits until `lane` has room for an ordinary transaction. To be called outside any epoch,
    /// which the logger may be waiting to end. `wake` wakes the logger.
    ///
    /// # Errors
    /// Once the lane refuses.
    pub fn wait_ready(&self, lane: usize, wake: impl Fn()) -> Result<(), Failed> {
        let lane = &self.lanes[lane];
        let mut state = lane.state.lock();
        loop {
            if let Some(failed) = &state.refused {
                return Err(failed.clone());
            }
            let nearly_full = self.sizes.buffer_size - self.sizes.buffer_size / 8;
            let room = state
                .open
                .as_ref()
                .is_some_and(|open| open.bytes.len() < nearly_full);
            if room || state.in_use < self.sizes.buffers {
                return Ok(());
            }
            if let Some(block) = state.open.take() {
                self.enqueue(block);
                wake();
            }
            state.waiting = true;
            lane.returned.wait(&mut state);
        }
    }

    /// Takes everything that the first `lanes` lanes hold.
    pub fn steal(&self, lanes: usize, into: &mut Vec<Block>) {
        for lane in &self.lanes[..lanes] {
            into.extend(lane.state.lock().open.take_if(|block| !block.is_empty()));
        }
        let mut queue = self.queue.lock();
        into.append(&mut queue);
        self.queued.store(0, Ordering::Release);
    }

    /// Whether any of the first `lanes` lanes holds something in its open buffer.
    pub fn is_dirty(&self, lanes: usize) -> bool {
        let dirty = |lane: &CachePadded<Lane>| {
            lane.state
                .lock()
                .open
                .as_ref()
                .is_some_and(|block| !block.is_empty())
        };
        self.lanes[..lanes].iter().any(dirty) || self.queued() > 0
    }

    /// Gives written buffers back to their lanes.
    pub fn put_back(&self, blocks: &mut Vec<Block>) {
        for block in blocks.drain(..) {
            let lane = &self.lanes[block.lane];
            let mut bytes = block.bytes;
            let mut state = lane.state.lock();
            state.in_use -= 1;
            // A buffer that grew for a large transaction is not kept.
            let ordinary = bytes.capacity() <= 2 * self.sizes.buffer_size;
            if ordinary && state.free.len() < self.sizes.buffers {
                bytes.truncate(BLOCK_HEADER);
                state.free.push(bytes);
            }
            if std::mem::take(&mut state.waiting) {
                lane.returned.notify_all();
            }
        }
    }

    /// From now on appends and waits get `failed`. What was appended can still be stolen.
    pub fn refuse(&self, failed: &Failed) {
        for lane in &self.lanes {
            let mut state = lane.state.lock();
            state.refused.get_or_insert_with(|| failed.clone());
            lane.returned.notify_all();
        }
    }
}
