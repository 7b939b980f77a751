//! Log buffers (paper 2, section 3.2): memory in which a worker's transactions become blocks.
//!
//! ```text
//!  ┌────────┬─────────────────────┬─┬────────┬───────────────┐
//!  │ header │ transactions of e   │0│ header │ of e + 1      │ …
//!  └────────┴─────────────────────┴─┴────────┴───────────────┘
//!   block                          ▲ up to a multiple of 8
//! ```
//!
//! A buffer goes on over any number of epochs, with a block for each: the rate at which epochs
//! change does not affect the rate at which buffers go to the logger. Headers are filled in when
//! the buffer is written. Its memory is first touched by the worker that fills it, and lies on that
//! worker's NUMA node also when the process spreads its memory over all nodes.

use std::time::{Duration, Instant};

use base::Epoch;

use crate::format::{ALIGN, BLOCK_HEADER, aligned};

/// A worker's buffer.
pub(crate) struct LogBuffer {
    /// The lane to which it returns.
    pub(crate) lane: usize,
    /// Headers, payloads, and zeros between blocks.
    pub(crate) bytes: Vec<u8>,
    /// The blocks in it, in order.
    pub(crate) blocks: Vec<BufferedBlock>,
    /// The moment at which the logger got it.
    handed: Instant,
}

/// Transactions of one epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferedBlock {
    /// The epoch of all of them.
    pub(crate) epoch: Epoch,
    /// That epoch's time.
    pub(crate) stamp_ms: u64,
    /// The offset of its header in the buffer.
    pub(crate) start: usize,
    /// The offset of the end of its payload.
    pub(crate) end: usize,
    times: Arrivals,
}

/// The arrival times of a block's transactions.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    transactions: u64,
    /// The moment at which the first of them was appended.
    opened: Instant,
    /// The sum over the transactions of the time from `opened` on, if it is measured.
    offsets: Option<Duration>,
}

impl LogBuffer {
    /// Returns an empty buffer with room for `size` bytes.
    pub(crate) fn new(lane: usize, size: usize) -> LogBuffer {
        let mut bytes = Vec::with_capacity(size + ALIGN);
        base::numa::keep_near(bytes.spare_capacity_mut());
        LogBuffer {
            lane,
            bytes,
            blocks: Vec::new(),
            handed: Instant::now(),
        }
    }

    /// Empties it, for the next transactions.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.blocks.clear();
    }

    /// Returns the bytes that would be in it with `hint` more of a transaction of `epoch`.
    pub(crate) fn size_with(&self, epoch: Epoch, hint: usize) -> usize {
        let header = match self.blocks.last() {
            Some(block) if block.epoch == epoch => 0,
            _ => BLOCK_HEADER,
        };
        aligned(self.bytes.len() as u64) as usize + header + hint
    }

    /// Adds a transaction that `fill` writes. `exact`: the moment of its arrival is measured.
    pub(crate) fn append(
        &mut self,
        epoch: Epoch,
        stamp_ms: u64,
        exact: bool,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.blocks.last().is_none_or(|block| block.epoch != epoch) {
            self.open(epoch, stamp_ms, exact);
        }
        fill(&mut self.bytes);
        let block = self.blocks.last_mut().expect("one is open");
        block.end = self.bytes.len();
        block.times.count();
    }

    fn open(&mut self, epoch: Epoch, stamp_ms: u64, exact: bool) {
        let start = aligned(self.bytes.len() as u64) as usize;
        let end = start + BLOCK_HEADER;
        self.bytes.resize(end, 0);
        let times = Arrivals {
            transactions: 0,
            opened: Instant::now(),
            offsets: exact.then_some(Duration::ZERO),
        };
        self.blocks.push(BufferedBlock {
            epoch,
            stamp_ms,
            start,
            end,
            times,
        });
    }

    /// Notes that the buffer goes to the logger now.
    pub(crate) fn hand_over(&mut self) {
        self.handed = Instant::now();
    }

    /// Returns, for each block, its epoch and the time that its transactions waited before `began`,
    /// when the logger began to write them.
    pub(crate) fn waits(&self, began: Instant) -> impl Iterator<Item = (Epoch, WaitTimes)> + '_ {
        self.blocks.iter().map(move |block| {
            let n = block.times.transactions;
            let queue = began.saturating_duration_since(self.handed);
            let waits = WaitTimes {
                transactions: n,
                buffer: block.times.until(self.handed),
                queue: queue * n as u32,
            };
            (block.epoch, waits)
        })
    }
}

/// The time that transactions waited before they were written: sums over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitTimes {
    /// The number of transactions.
    pub(crate) transactions: u64,
    /// The time in the worker's buffer.
    pub(crate) buffer: Duration,
    /// The time in the logger's queue.
    pub(crate) queue: Duration,
}

impl Arrivals {
    fn count(&mut self) {
        self.transactions += 1;
        if let Some(offsets) = &mut self.offsets
            && self.transactions > 1
        {
            *offsets += self.opened.elapsed();
        }
    }

    /// Returns the sum over the transactions of the time until `handed`. Where it was not measured,
    /// the transactions are assumed to have come evenly, the last one just before.
    fn until(&self, handed: Instant) -> Duration {
        let n = self.transactions as u32;
        let open = handed.saturating_duration_since(self.opened);
        match self.offsets {
            Some(offsets) => (open * n).saturating_sub(offsets),
            None => open * (n + 1) / 2,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn epochs_share_a_buffer_and_have_blocks_of_their_own() {
        let mut buffer = LogBuffer::new(3, 1000);
        assert_eq!(buffer.size_with(Epoch(1), 5), BLOCK_HEADER + 5);
        for (epoch, bytes) in [(1, &b"abc"[..]), (1, b"de"), (2, b"f"), (4, b"")] {
            buffer.append(Epoch(epoch), epoch * 10, false, |to| to.extend(bytes));
        }
        let found: Vec<_> = buffer
            .blocks
            .iter()
            .map(|b| {
                (
                    b.epoch.0,
                    b.stamp_ms,
                    &buffer.bytes[b.start + BLOCK_HEADER..b.end],
                )
            })
            .collect();
        assert_eq!(found, [(1, 10, &b"abcde"[..]), (2, 20, b"f"), (4, 40, b"")]);
        for block in &buffer.blocks {
            assert_eq!(block.start % ALIGN, 0);
        }
        assert_eq!(buffer.size_with(Epoch(4), 7), buffer.bytes.len() + 7);
        buffer.clear();
        assert!(buffer.bytes.is_empty() && buffer.blocks.is_empty());
    }

    #[test]
    fn waits_are_estimated_from_the_first_arrival_alone() {
        let handed = Instant::now();
        let arrivals = |transactions| Arrivals {
            transactions,
            opened: handed - Duration::from_millis(2),
            offsets: None,
        };
        // A lone transaction waits all the time; of four the waits are 2, 1.5, 1 and 0.5 ms.
        assert_eq!(arrivals(1).until(handed), Duration::from_millis(2));
        assert_eq!(arrivals(4).until(handed), Duration::from_millis(5));
    }
}
