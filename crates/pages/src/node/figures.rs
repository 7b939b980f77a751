//! Counts of a node's work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::protocol::NodeStatus;
use crate::task::WorkTimes;

/// Counts of a node's work since it began.
#[derive(Debug, Default)]
pub struct StorageFigures {
    /// Pages that were read.
    pub pages: AtomicU64,
    /// Bytes of them.
    pub bytes: AtomicU64,
    /// Pages that could not be read.
    pub unread: AtomicU64,
    /// Readers that are connected.
    pub readers: AtomicU64,
    /// Pages that are asked for and not read yet.
    pub waiting: AtomicU64,
    /// Nanoseconds of a recent read, from its beginning to its completion.
    pub read_ns: AtomicU64,
    /// Tasks that have completed.
    pub tasks: AtomicU64,
    /// Tasks that run or wait.
    pub tasks_under_way: AtomicU64,
}

impl StorageFigures {
    /// Returns how busy the node is.
    pub(super) fn status(&self, task_threads: usize, work: WorkTimes) -> NodeStatus {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        NodeStatus {
            waiting: load(&self.waiting),
            read: Duration::from_nanos(load(&self.read_ns)),
            tasks: load(&self.tasks_under_way),
            task_threads: task_threads as u64,
            readers: load(&self.readers),
            work,
        }
    }

    /// Adds the time of a read to an average in which the last ones count most.
    pub(super) fn add_read_time(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let before = self.read_ns.load(Ordering::Relaxed);
        let now = match before {
            0 => took,
            _ => before - before / 8 + took / 8,
        };
        self.read_ns.store(now, Ordering::Relaxed);
    }
}

/// Counts that a thread has not added to the node's figures yet.
#[derive(Default)]
pub(super) struct PendingFigures {
    pub(super) pages: u64,
    pub(super) bytes: u64,
    pub(super) failed: u64,
    pub(super) waiting: u64,
    pub(super) begun: u64,
    /// The read that is timed: its reader and the reader's generation, its tag, and its beginning.
    pub(super) timed: Option<(usize, u64, u32, Instant)>,
}

impl PendingFigures {
    /// Adds the counts to the node's figures; `waiting` pages are requested and not read at present.
    pub(super) fn publish(&mut self, waiting: u64, figures: &StorageFigures) {
        let before = std::mem::replace(&mut self.waiting, waiting);
        if before != waiting {
            let change = waiting.wrapping_sub(before);
            figures.waiting.fetch_add(change, Ordering::Relaxed);
        }
        for (counted, figure) in [
            (&mut self.pages, &figures.pages),
            (&mut self.bytes, &figures.bytes),
            (&mut self.failed, &figures.unread),
        ] {
            if *counted > 0 {
                figure.fetch_add(std::mem::take(counted), Ordering::Relaxed);
            }
        }
    }
}
