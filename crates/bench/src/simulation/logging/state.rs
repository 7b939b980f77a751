//! What simulated workers and loggers know.

/// A worker's place in the log.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedWorker {
    /// Bytes in the buffer that it fills, if it has one.
    pub(super) open: Option<f64>,
    /// Buffers that are open, in the queue, or being written.
    pub(super) in_use: usize,
    /// The epoch of its last transactions.
    pub(super) last_epoch: u64,
    /// What it waits for, if it waits.
    pub(super) waits_for: Option<Awaited>,
    /// When it began to wait.
    pub(super) waits_since: u64,
    /// It waits, and will look again soon.
    pub(super) is_woken: bool,
    /// The time for which its next transaction has waited.
    pub(super) waited: u64,
}

/// What a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A buffer.
    Buffer,
    /// That its logger has closed an epoch.
    Closed(u64),
}

/// A logger's state.
#[derive(Clone, Debug)]
pub(super) struct SimulatedLogger {
    /// Full buffers: worker and bytes.
    pub(super) queue: Vec<(usize, f64)>,
    /// The newest epoch that is complete and synced in its log.
    pub(super) closed: u64,
    /// The epoch that its cycle closes.
    pub(super) closing: u64,
    /// Buffers that its cycle took, as in the queue.
    pub(super) taken: Vec<(usize, f64)>,
    /// The number of its sleep, while it sleeps.
    pub(super) sleep: Option<u64>,
    pub(super) sleeps: u64,
}

impl SimulatedLogger {
    pub(super) fn new(closed: u64) -> SimulatedLogger {
        SimulatedLogger {
            queue: Vec::new(),
            closed,
            closing: closed,
            taken: Vec::new(),
            sleep: None,
            sleeps: 0,
        }
    }
}
