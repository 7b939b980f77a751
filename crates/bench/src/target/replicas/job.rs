//! Which transactions on a replicated partition are measured.

use serde::{Deserialize, Serialize};

use crate::run_context::StorageMedium;

/// How transactions go through consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consensus {
    /// Plain Raft: one after the other, each executed after consensus.
    Naive,
    /// Executed before consensus; at most so many share an append, a sync and a transfer.
    Group(usize),
}

/// Transactions on a replicated partition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicasJob {
    /// Its members.
    pub nodes: usize,
    /// Clients, each with one request under way.
    pub clients: usize,
    /// How requests go through consensus.
    pub consensus: Consensus,
    /// Transactions of a request.
    pub bulk: usize,
    /// Counters, which the clients share out among them; each transaction adds to two.
    pub counters: u64,
    /// The place of the members' logs; `None`: only in the process's memory.
    pub log: Option<StorageMedium>,
}
