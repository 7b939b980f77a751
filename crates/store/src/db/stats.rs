//! Figures of a database.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Epoch;
use engine::KeyStats;
use journal::Journal;

use crate::db::Db;

/// Figures of a database.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Keys; those that have expired and were not yet reclaimed count.
    pub keys: u64,
    /// Those of them that have a deadline.
    pub expiring: u64,
    /// The mean of their deadlines, in milliseconds since the Unix epoch, to within 64 ms; 0 without one.
    pub mean_deadline_ms: u64,
    /// Bytes of records, versions, keys, values and index.
    pub memory_bytes: u64,
    /// The current epoch.
    pub epoch: Epoch,
    /// Everything up to this epoch is durable.
    pub durable_epoch: Epoch,
    /// Transactions that wrote and committed.
    pub commits: u64,
    /// Attempts that met a conflict.
    pub conflicts: u64,
    /// Keys removed because they had expired.
    pub expired: u64,
    /// The number of times that the machine's clock was seen to have been set.
    pub clock_steps: u64,
    /// Bytes written to the logs.
    pub log_bytes: u64,
    /// Syncs of log files.
    pub log_syncs: u64,
    /// The mean time of a sync in microseconds.
    pub log_sync_mean_us: u64,
    /// The time that all syncs took together.
    pub log_sync_time: Duration,
    /// The number of syncs that took from 2^*i* to 2^(*i*+1) µs, for each *i*; the last class is
    /// open.
    pub log_sync_histogram: [u64; 24],
    /// Times that a logger wrote and synced.
    pub log_cycles: u64,
    /// Those of them that ran on the thread of a worker.
    pub log_inline_cycles: u64,
    /// Full buffers that wait for their logger at this moment.
    pub log_buffers_waiting: u64,
    /// The parts of the time for which transactions waited for durability; partly estimated unless
    /// [`crate::Options::measure_latency`] is set.
    pub log_latency: journal::DurabilityLatency,
    /// Transactions over several partitions that are prepared and not decided.
    pub prepared: u64,
    /// Versions of read-atomic keys that are kept behind newer ones.
    pub kept_versions: u64,
    /// Keys that were evicted because memory was full.
    pub evicted: u64,
    /// Milliseconds for which keys needed more memory than the limit, under a policy that evicts.
    pub eviction_exceeded_ms: u64,
    /// The number of times that a transaction of the embedded interface waited for a hold.
    pub hold_waits: u64,
    /// The reason why nothing can be logged, for ever or until there is room for the log.
    pub journal_failure: Option<String>,
}

impl Db {
    /// Returns figures of the keys of database 0, and of each other database that has keys, in order.
    #[must_use]
    pub fn key_stats(&self) -> Vec<(u16, KeyStats)> {
        self.state().engine.key_stats()
    }

    /// Returns figures. Each is exact by itself; they are read one after another.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let db = self.state();
        let engine = db.engine.stats();
        let log = db.journal.as_ref().map(Journal::stats).unwrap_or_default();
        Stats {
            keys: engine.keys,
            expiring: engine.expiring,
            mean_deadline_ms: engine.mean_deadline_ms,
            memory_bytes: engine.memory_bytes,
            epoch: self.epoch(),
            durable_epoch: self.durable_epoch(),
            commits: engine.commits,
            conflicts: engine.conflicts,
            expired: engine.expired,
            clock_steps: engine.clock_steps,
            log_bytes: log.bytes,
            log_syncs: log.syncs,
            log_sync_mean_us: log.sync_time_mean.as_micros() as u64,
            log_sync_time: log.sync_time,
            log_sync_histogram: log.sync_time_histogram,
            log_cycles: log.cycles,
            log_inline_cycles: log.inline_cycles,
            log_buffers_waiting: log.buffers_waiting,
            log_latency: log.latency,
            prepared: db.prepared.load(Ordering::Relaxed),
            kept_versions: engine.kept_versions,
            evicted: engine.evicted,
            eviction_exceeded_ms: engine.eviction_exceeded_ms,
            hold_waits: db.hold_waiters.count(),
            journal_failure: self.durable().failed,
        }
    }
}
