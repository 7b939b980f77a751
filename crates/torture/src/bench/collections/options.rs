//! The options of the comparison.

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs of each command with each server.
    pub rounds: usize,
    /// Requests of a run with pipelining; a quarter of them without.
    pub requests: u64,
    /// Only these; empty: all.
    pub parts: Vec<Measurement>,
    /// `--io` of Kumiki.
    pub io: String,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Measurement {
    /// Rates and processor times of commands, without a log.
    Speed,
    /// The same, durable.
    Durable,
    /// Bytes of the processes.
    Memory,
    /// Bytes of the processes for each of millions of keys with short strings.
    Strings,
    /// Figures of large collections: log, ranks, deletion.
    Size,
    /// The time of a start with a log of collections, by that of one with strings.
    Recovery,
    /// One list on three replicas.
    Replicas,
    /// The longest wait of many clients of one list on one node.
    Waits,
}
