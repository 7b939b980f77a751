//! Counters of a node.

/// Counters since the start of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions over other partitions that took effect.
    pub committed: u64,
    /// Transactions over other partitions that did not.
    pub aborted: u64,
    /// Transactions whose outcome their caller did not learn.
    pub unknown: u64,
    /// Attempts beyond the first.
    pub retried: u64,
    /// Parts prepared for any coordinator.
    pub prepared: u64,
    /// Prepares that gave way to an older transaction.
    pub died: u64,
    /// Requests that waited for holds.
    pub waited: u64,
    /// Requests among them that were to commit a read-atomic write.
    pub commits_waited: u64,
    /// Reads over several partitions whose versions had to be compared once more.
    pub compared: u64,
    /// Attempts that their coordinator gave up by way of the home.
    pub abandoned: u64,
    /// Attempts that this node as their home committed in their coordinator's stead.
    pub resolved_committed: u64,
    /// Attempts that this node as their home aborted in their coordinator's stead.
    pub resolved_aborted: u64,
    /// Requests for a partition that this node holds and does not lead.
    pub redirected: u64,
    /// Answers that could not be given because the leadership ended before they were durable.
    pub lost: u64,
    /// Attempts that were refused because a node asked for their outcome before they came.
    pub refused: u64,
    /// Read-atomic reads over several partitions that were begun.
    pub ramp_reads: u64,
    /// Reads among them that needed a second round, and more.
    pub ramp_second_rounds: u64,
    /// Number of times that they began again, because versions were replaced long ago or could not be
    /// had.
    pub ramp_restarts: u64,
    /// Versions that should have been there and were not: lost by a partition.
    pub ramp_lost: u64,
    /// Read-atomic writes over several partitions that were begun.
    pub ramp_writes: u64,
    /// Attempts of them that found newer versions of their keys.
    pub ramp_overtaken: u64,
}
