//! Figures of a running journal.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Classes of the sync time histogram: class *i* holds times from 2^*i* to 2^(*i*+1) µs.
const CLASSES: usize = 24;

/// Counters that the loggers update.
#[derive(Default)]
pub(crate) struct JournalCounters {
    pub(crate) bytes: AtomicU64,
    pub(crate) blocks: AtomicU64,
    pub(crate) cycles: AtomicU64,
    pub(crate) inline_cycles: AtomicU64,
    pub(crate) marks: AtomicU64,
    pub(crate) syncs: AtomicU64,
    sync_nanos: AtomicU64,
    sync_histogram: [AtomicU64; CLASSES],
}

impl JournalCounters {
    pub(crate) fn synced(&self, took: Duration) {
        let class = (took.as_micros().max(1).ilog2() as usize).min(CLASSES - 1);
        self.syncs.fetch_add(1, Relaxed);
        self.sync_nanos.fetch_add(took.as_nanos() as u64, Relaxed);
        self.sync_histogram[class].fetch_add(1, Relaxed);
    }

    pub(crate) fn stats(&self, buffers_waiting: u64, latency: DurabilityLatency) -> JournalStats {
        let syncs = self.syncs.load(Relaxed);
        JournalStats {
            bytes: self.bytes.load(Relaxed),
            blocks: self.blocks.load(Relaxed),
            cycles: self.cycles.load(Relaxed),
            inline_cycles: self.inline_cycles.load(Relaxed),
            marks: self.marks.load(Relaxed),
            syncs,
            sync_time: Duration::from_nanos(self.sync_nanos.load(Relaxed)),
            sync_time_mean: Duration::from_nanos(
                self.sync_nanos
                    .load(Relaxed)
                    .checked_div(syncs)
                    .unwrap_or(0),
            ),
            sync_time_histogram: self
                .sync_histogram
                .each_ref()
                .map(|class| class.load(Relaxed)),
            latency,
            buffers_waiting,
        }
    }
}

/// Figures since the journal was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Bytes written to the logs.
    pub bytes: u64,
    /// Blocks written, marks included.
    pub blocks: u64,
    /// Times that a logger wrote and synced.
    pub cycles: u64,
    /// Those of them that ran on the thread of a worker.
    pub inline_cycles: u64,
    /// Blocks without data.
    pub marks: u64,
    /// Syncs of log files.
    pub syncs: u64,
    /// Time that they took together.
    pub sync_time: Duration,
    /// Mean time of a sync, the write before it included.
    pub sync_time_mean: Duration,
    /// The number of syncs that took from 2^*i* to 2^(*i*+1) µs, for each *i*; the last class is
    /// open.
    pub sync_time_histogram: [u64; CLASSES],
    /// The parts of the time for which transactions waited for durability. Unless
    /// [`Options::measure_latency`](crate::Options::measure_latency) is set, the time in the
    /// worker's buffer is estimated: transactions are assumed to come evenly.
    pub latency: DurabilityLatency,
    /// Full buffers that wait for their logger at this moment.
    pub buffers_waiting: u64,
}

/// Parts of the time from a transaction's commit to its durability (paper 2, figure 5): sums over
/// transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurabilityLatency {
    /// The number of transactions over which the sums are.
    pub transactions: u64,
    /// The time in the worker's buffer, until it went to the logger.
    pub buffer: Duration,
    /// The time in the logger's queue, until the logger began to write the buffer.
    pub queue: Duration,
    /// The time of writing and syncing.
    pub write: Duration,
    /// The time from there until the epoch was durable in all logs.
    pub notification: Duration,
}

impl DurabilityLatency {
    pub(crate) fn add(&mut self, other: &DurabilityLatency) {
        self.transactions += other.transactions;
        self.buffer += other.buffer;
        self.queue += other.queue;
        self.write += other.write;
        self.notification += other.notification;
    }

    /// Returns the whole time of the mean transaction, if there was any.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let sum = self.buffer + self.queue + self.write + self.notification;
        let nanos = sum.as_nanos().checked_div(self.transactions.into())?;
        Some(Duration::from_nanos(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_times_are_counted_in_their_class() {
        let counters = JournalCounters::default();
        for micros in [0, 1, 3, 1000, 1 << 40] {
            counters.synced(Duration::from_micros(micros));
        }
        let histogram = counters
            .stats(0, DurabilityLatency::default())
            .sync_time_histogram;
        let classes = [(0, 2), (1, 1), (9, 1), (CLASSES - 1, 1)];
        for (class, n) in classes {
            assert_eq!(histogram[class], n, "class {class}");
        }
        assert_eq!(histogram.iter().sum::<u64>(), 5);
    }
}
