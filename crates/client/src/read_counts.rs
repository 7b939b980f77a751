//! Counts of reads of read-atomic keys.

use std::sync::atomic::{AtomicU64, Ordering};

use cluster::ramp::read::ReadCosts;

/// Costs of a client's [`Client::get_all`](crate::Client::get_all) so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadCounts {
    /// Calls that have ended with values.
    pub reads: u64,
    /// Calls among them that took more than one round.
    pub several_rounds: u64,
    /// Rounds of all calls.
    pub rounds: u64,
    /// Number of times that a call began again, because it took longer than old versions are kept.
    pub restarts: u64,
    /// Versions that were not there although others tell of them: a partition has lost what it had
    /// acknowledged.
    pub lost: u64,
    /// Keys whose newest version was read in the memory of the node that has published it.
    pub in_memory: u64,
    /// Keys for which a node had to be asked although some could be read in memory.
    pub asked: u64,
}

/// The counters behind [`ReadCounts`].
#[derive(Default)]
pub(crate) struct ReadCounters {
    reads: AtomicU64,
    several_rounds: AtomicU64,
    rounds: AtomicU64,
    restarts: AtomicU64,
    lost: AtomicU64,
}

impl ReadCounters {
    /// Returns the counts so far. `one_sided` is the number of keys whose newest version was read in
    /// memory, and of those for which a node had to be asked.
    pub(crate) fn counts(&self, one_sided: (u64, u64)) -> ReadCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (in_memory, asked) = one_sided;
        ReadCounts {
            reads: of(&self.reads),
            several_rounds: of(&self.several_rounds),
            rounds: of(&self.rounds),
            restarts: of(&self.restarts),
            lost: of(&self.lost),
            in_memory,
            asked,
        }
    }

    /// Adds a call that has ended with values.
    pub(crate) fn note(&self, tally: ReadCosts) {
        let add = |to: &AtomicU64, count: u64| to.fetch_add(count, Ordering::Relaxed);
        add(&self.reads, 1);
        add(&self.several_rounds, u64::from(tally.rounds > 1));
        add(&self.rounds, tally.rounds.into());
        add(&self.restarts, tally.restarts.into());
        if tally.lost > 0 && add(&self.lost, tally.lost.into()) == 0 {
            tracing::warn!(
                "a version of a read-atomic key is not there although another key tells of it: a \
                 partition has lost what it had acknowledged, as after a crash without a sync"
            );
        }
    }
}
