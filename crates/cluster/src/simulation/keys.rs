//! The keys that clients use: few, and spread over all partitions.

use base::PartitionId;

use crate::topology::Topology;

/// Prefix of read-atomic keys.
pub(super) const READ_ATOMIC: &str = "ra:";

/// The amount in each account at the beginning.
pub(super) const DEPOSIT: i64 = 100;

/// A key and its partition.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) partition: PartitionId,
}

/// All keys of a run.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Keys whose values are recorded, each of them unique: first the read-atomic ones.
    pub(super) recorded: Vec<Key>,
    /// How many of them are read atomic.
    pub(super) read_atomic: usize,
    /// Keys whose sum is conserved.
    pub(super) accounts: Vec<Key>,
}

impl Keys {
    pub(super) fn new(
        topology: &Topology,
        read_atomic: usize,
        ordinary: usize,
        accounts: usize,
    ) -> Keys {
        let mut recorded = spread(topology, READ_ATOMIC, read_atomic);
        recorded.extend(spread(topology, "k", ordinary));
        Keys {
            recorded,
            read_atomic,
            accounts: spread(topology, "account", accounts),
        }
    }

    pub(super) fn sum(&self) -> i64 {
        self.accounts.len() as i64 * DEPOSIT
    }
}

/// Returns names with this prefix that lie on the partitions in turn.
fn spread(topology: &Topology, prefix: &str, count: usize) -> Vec<Key> {
    let partitions = topology.partitions();
    let key = |index: usize| {
        let partition = partitions[index % partitions.len()].id;
        let names = (0..).map(|n: u32| format!("{prefix}{index}-{n}"));
        let mut fitting = names.filter(|name| topology.partition_of(name.as_bytes()) == partition);
        let name = fitting
            .next()
            .expect("slots are spread over all partitions");
        Key { name, partition }
    };
    (0..count).map(key).collect()
}
