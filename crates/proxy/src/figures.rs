//! Figures: counts of the work of each thread and of each node's connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::node_figures::NodeConnectionState;
use crate::nodes::Nodes;
use crate::runtime::link::LinkFigures;
use crate::runtime::query::NodeIndex;

/// Figures of a thread with nodes.
#[derive(Debug)]
pub(crate) struct BackendFigures {
    thread: usize,
    nodes: Arc<Nodes>,
}

impl BackendFigures {
    pub(crate) fn new(thread: usize, nodes: Arc<Nodes>) -> BackendFigures {
        BackendFigures { thread, nodes }
    }

    /// Adds the figures of one connection since the last call.
    pub(crate) fn add(&self, node: NodeIndex, figures: LinkFigures) {
        let total = self.nodes.figures(node);
        total.queries.fetch_add(figures.queries, Relaxed);
        total.packets.fetch_add(figures.packets, Relaxed);
        total.bytes_out.fetch_add(figures.bytes_out, Relaxed);
        total.bytes_in.fetch_add(figures.bytes_in, Relaxed);
        total.reads.fetch_add(figures.reads, Relaxed);
        total.connects.fetch_add(figures.connects, Relaxed);
        total.failures.fetch_add(figures.failures, Relaxed);
    }

    /// Sets the state of all of this thread's connections to a node.
    pub(crate) fn set(&self, node: NodeIndex, now: NodeConnectionState) {
        self.nodes.figures(node).set_state(self.thread, now);
    }
}

/// Figures of a thread with clients.
#[derive(Debug)]
pub(crate) struct FrontendFigures {
    all: Arc<Clients>,
    pub(crate) clients: AtomicUsize,
    pub(crate) queries: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Time from handing on a query to its reply, in microseconds.
    pub(crate) latency: Latency,
}

/// How many clients there are, over all threads.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) now: AtomicUsize,
    pub(crate) ever: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) turned_out: AtomicU64,
    /// Attempts to authenticate that were refused.
    pub(crate) auth_failures: AtomicU64,
}

impl Clients {
    pub(crate) fn refuse_password(&self) {
        self.auth_failures.fetch_add(1, Relaxed);
    }
}

impl FrontendFigures {
    pub(crate) fn new(all: Arc<Clients>) -> FrontendFigures {
        FrontendFigures {
            all,
            clients: AtomicUsize::new(0),
            queries: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            latency: Latency::default(),
        }
    }

    /// Counts a client, and returns `true` if there may be one more.
    pub(crate) fn admit(&self, most: usize) -> bool {
        let admitted = self.all.now.fetch_add(1, Relaxed) < most;
        if admitted {
            self.all.ever.fetch_add(1, Relaxed);
        } else {
            self.all.refused.fetch_add(1, Relaxed);
            self.all.now.fetch_sub(1, Relaxed);
        }
        admitted
    }

    /// Counts a client that has not gone on in time.
    pub(crate) fn turn_out(&self) {
        self.all.turned_out.fetch_add(1, Relaxed);
    }

    pub(crate) fn dismiss(&self) {
        self.all.now.fetch_sub(1, Relaxed);
    }

    pub(crate) fn set_clients(&self, count: usize) {
        self.clients.store(count, Relaxed);
    }

    pub(crate) fn asked(&self, count: usize) {
        add(&self.queries, count as u64);
    }

    pub(crate) fn answered(&self, after: Duration, well: bool) {
        add(if well { &self.replies } else { &self.failures }, 1);
        self.latency.record(after);
    }

    pub(crate) fn received(&self, bytes: usize) {
        add(&self.bytes_in, bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        add(&self.bytes_out, bytes as u64);
    }
}

/// Adds to a figure that only one thread writes.
fn add(figure: &AtomicU64, count: u64) {
    figure.store(figure.load(Relaxed) + count, Relaxed);
}

/// Buckets of [`Latency`]: each ends at twice the time of the one before it.
pub(crate) const BUCKETS: usize = 28;

/// Counts of durations, one for each power of two of microseconds, as monitoring wants them.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Latency {
    fn record(&self, time: Duration) {
        let us = time.as_micros() as u64;
        // The upper bound of a bucket belongs to it: 1 us, 2 us, 4 us…
        let bucket = (u64::BITS - us.saturating_sub(1).leading_zeros()) as usize;
        let bucket = if us <= 1 { 0 } else { bucket };
        add(&self.buckets[bucket.min(BUCKETS - 1)], 1);
        add(&self.sum_us, us);
    }

    /// Returns the counts, and the sum of all times in microseconds.
    pub(crate) fn read(&self) -> ([u64; BUCKETS], u64) {
        let counts = std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed));
        (counts, self.sum_us.load(Relaxed))
    }
}

/// Figures of read-atomic transactions over Cassandra.
#[derive(Debug, Default)]
pub(crate) struct ReadAtomicFigures {
    /// Transactions that write, and that read.
    pub(crate) writes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) second_rounds: AtomicU64,
    /// Transactions that recovery has completed: of this proxy, and of others.
    pub(crate) completed_own: AtomicU64,
    pub(crate) completed_others: AtomicU64,
    /// Transactions of this proxy that recovery has still to complete.
    pub(crate) unfinished: AtomicU64,
    /// Partitions with records of other proxies which these should have removed.
    pub(crate) left_partitions: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_whose_bound_it_does_not_pass() {
        let latency = Latency::default();
        for us in [0, 1, 2, 3, 4, 5, 8, 9, 1 << 40] {
            latency.record(Duration::from_micros(us));
        }
        let (counts, _) = latency.read();
        assert_eq!(counts[..5], [2, 1, 2, 2, 1]);
        assert_eq!(counts[BUCKETS - 1], 1);
    }
}
