//! Which transactions on a replicated partition are measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use testkit::relay::LinkQuality;

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

/// Where the clients are, and what lies between the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaNetwork {
    /// Clients are tasks of the leader's process. The members' links are sockets on loopback.
    #[default]
    Inside,
    /// Clients are a process of their own, and reach the leader over TCP. All links are sockets on
    /// loopback.
    Loopback,
    /// As before, but each member and the clients' process stand for machines, whose links have a
    /// delay and a rate.
    Links {
        /// The time from one machine to another, in microseconds.
        delay_us: u64,
        /// What a machine sends at most, in megabits a second.
        megabits: u64,
    },
}

impl ReplicaNetwork {
    /// Returns the quality of the links, if they have a delay and a rate.
    pub(super) fn quality(self) -> Option<LinkQuality> {
        match self {
            ReplicaNetwork::Inside | ReplicaNetwork::Loopback => None,
            ReplicaNetwork::Links { delay_us, megabits } => Some(LinkQuality {
                delay: Duration::from_micros(delay_us),
                bytes_per_second: Some(megabits * 1_000_000 / 8),
            }),
        }
    }
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
    /// Where the clients are, and what lies between the machines.
    #[serde(default)]
    pub network: ReplicaNetwork,
    /// Workers of the leader, each a thread with its share of the clients. Clients of another process
    /// have one.
    #[serde(default = "one")]
    pub workers: usize,
}

fn one() -> usize {
    1
}
