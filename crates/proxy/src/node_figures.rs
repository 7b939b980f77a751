//! Figures of a node, over all connections to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

/// Figures of one node, over all connections to it.
#[derive(Debug, Default)]
pub(crate) struct NodeFigures {
    pub(crate) queries: AtomicU64,
    pub(crate) packets: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// Grows when a report says that the node came or went: then its connections are checked.
    pub(crate) hints: AtomicU64,
    /// The time at which other nodes last replaced this one: nanoseconds since the proxy's start; 0:
    /// never.
    replaced: AtomicU64,
    /// The state of each thread's connections when they were last checked.
    states: Mutex<Vec<NodeConnectionState>>,
}

/// The state of one thread's connections to a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeConnectionState {
    /// Queries that wait to be sent.
    pub(crate) waiting: usize,
    /// Queries that wait for a reply.
    pub(crate) under_way: usize,
    /// Connections that are up: the node has accepted the proxy.
    pub(crate) connections: usize,
    /// Connections that have failed and are tried again by themselves.
    pub(crate) awaited: usize,
    /// Connections on which nothing comes although the node owes an answer.
    pub(crate) silent: usize,
}

impl NodeConnectionState {
    /// Returns `true` if no connection is up, and one will be as soon as the node can be reached.
    pub(crate) fn is_cut_off(self) -> bool {
        self.connections == 0 && self.awaited > 0
    }
}

impl NodeFigures {
    /// Records that other nodes have taken over the slots of this one.
    pub(crate) fn set_replaced(&self, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.replaced.store(now, Relaxed);
    }

    /// Returns when other nodes last replaced this one, in time since the proxy's start; `None`: never.
    pub(crate) fn replaced(&self) -> Option<Duration> {
        match self.replaced.load(Relaxed) {
            0 => None,
            at => Some(Duration::from_nanos(at)),
        }
    }

    /// Returns the sum of the state over all threads.
    pub(crate) fn now(&self) -> NodeConnectionState {
        let states = self.states.lock();
        states
            .iter()
            .fold(NodeConnectionState::default(), |sum, one| {
                NodeConnectionState {
                    waiting: sum.waiting + one.waiting,
                    under_way: sum.under_way + one.under_way,
                    connections: sum.connections + one.connections,
                    awaited: sum.awaited + one.awaited,
                    silent: sum.silent + one.silent,
                }
            })
    }

    /// Sets the state of all of a thread's connections to the node.
    pub(crate) fn set_state(&self, thread: usize, state: NodeConnectionState) {
        let mut states = self.states.lock();
        if states.len() <= thread {
            states.resize(thread + 1, NodeConnectionState::default());
        }
        states[thread] = state;
    }
}
