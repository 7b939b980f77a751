//! The content of a cluster's file: the partition of each slot, and the nodes of each partition.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use base::versions::ReadAtomic;
use base::{NodeId, PartitionId};
use fabric::Secret;

use crate::slot::{self, SLOTS};

/// The least length of a secret, in bytes.
pub const SHORTEST_SECRET: usize = 16;

/// A node, as the file has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// Its number.
    pub id: NodeId,
    /// Where Redis clients connect.
    pub client: SocketAddr,
    /// Where Redis clients connect that speak TLS, if they can.
    pub tls: Option<SocketAddr>,
    /// Where nodes and Rust clients connect.
    pub fabric: SocketAddr,
    /// Where the nodes connect that hold the same partition; present if that is replicated.
    pub replica: Option<SocketAddr>,
}

impl NodeInfo {
    /// Returns where Redis clients connect: those that speak TLS at the address for that, if there is one.
    #[must_use]
    pub fn client_address(&self, over_tls: bool) -> SocketAddr {
        let tls = self.tls.filter(|_| over_tls);
        tls.unwrap_or(self.client)
    }
}

/// A partition, as the file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionInfo {
    /// Its number.
    pub id: PartitionId,
    /// Its slots in their order; ranges neither overlap nor touch.
    pub slots: Vec<RangeInclusive<u16>>,
    /// The nodes that hold it, by id: one, or three and more.
    pub nodes: Vec<NodeId>,
}

/// The secrets of a node's links. Clones share them.
#[derive(Clone, Debug)]
pub struct LinkSecrets {
    /// What nodes prove.
    pub nodes: Secret,
    /// What clients prove.
    pub clients: Secret,
}

impl LinkSecrets {
    /// Takes other secrets, for the connections that are made from now on.
    pub fn replace(&self, other: &LinkSecrets) {
        self.nodes.replace(&other.nodes);
        self.clients.replace(&other.clients);
    }
}

/// The content of a cluster's file.
#[derive(Clone)]
pub struct Topology {
    pub(super) text: String,
    pub(super) name: Option<String>,
    pub(super) secret: SecretPlace,
    pub(super) client_secret: SecretPlace,
    /// In the order of their ids.
    pub(super) nodes: Vec<NodeInfo>,
    /// In the order of their ids.
    pub(super) partitions: Vec<PartitionInfo>,
    pub(super) read_atomic: ReadAtomic,
    /// The partition of each slot.
    pub(super) owners: Box<[PartitionId]>,
    /// See [`Topology::fingerprint`]: it takes time to compute, and clients need it for each message.
    pub(super) fingerprint: u64,
}

/// A secret, or the file that holds it.
#[derive(Clone, Default)]
pub(super) struct SecretPlace {
    /// The text that is proved, and others that are accepted.
    pub(super) texts: Vec<String>,
    pub(super) file: Option<PathBuf>,
}

impl Topology {
    /// Returns the cluster's name, if the file gives one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the partition that holds a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.partition_of_slot(slot::of(key))
    }

    /// Returns the partition that holds a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn partition_of_slot(&self, slot: u16) -> PartitionId {
        self.owners[usize::from(slot)]
    }

    /// Returns a node that holds a partition. For a replicated partition it is the first one, and only a
    /// hint: the file does not say which node leads; see [`Leaders`](crate::Leaders).
    ///
    /// # Panics
    /// If the file has no such partition.
    #[must_use]
    pub fn node_of(&self, partition: PartitionId) -> NodeId {
        self.nodes_of(partition)[0]
    }

    /// Returns the nodes that hold a partition, by id.
    ///
    /// # Panics
    /// If the file has no such partition.
    #[must_use]
    pub fn nodes_of(&self, partition: PartitionId) -> &[NodeId] {
        let partition = self.partition(partition);
        &partition.expect("a partition of this cluster").nodes
    }

    /// Returns `true` if several nodes hold a partition.
    ///
    /// # Panics
    /// If the file has no such partition.
    #[must_use]
    pub fn is_replicated(&self, partition: PartitionId) -> bool {
        self.nodes_of(partition).len() > 1
    }

    /// Returns the partition that a node holds, if it holds one.
    #[must_use]
    pub fn partition_at(&self, node: NodeId) -> Option<PartitionId> {
        let holds = |partition: &&PartitionInfo| partition.nodes.contains(&node);
        Some(self.partitions.iter().find(holds)?.id)
    }

    /// Returns the nodes, by id.
    #[must_use]
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// Returns the partitions, by id.
    #[must_use]
    pub fn partitions(&self) -> &[PartitionInfo] {
        &self.partitions
    }

    /// Returns a node, if the file has it.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&NodeInfo> {
        let at = self.nodes.binary_search_by_key(&id, |node| node.id);
        at.ok().map(|at| &self.nodes[at])
    }

    /// Returns a partition, if the file has it.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionInfo> {
        let at = self.partitions.binary_search_by_key(&id, |one| one.id);
        at.ok().map(|at| &self.partitions[at])
    }

    /// Returns the prefixes of read-atomic keys.
    #[must_use]
    pub fn read_atomic(&self) -> &ReadAtomic {
        &self.read_atomic
    }

    /// Returns the text of the file, comments and secret included.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the secret that nodes share.
    #[must_use]
    pub fn secret(&self) -> Option<&str> {
        self.secret.texts.first().map(String::as_str)
    }

    /// Returns the secret that Rust clients prove to nodes: that of the file, or one that follows from
    /// [`Topology::secret`].
    #[must_use]
    pub fn client_secret(&self) -> Option<String> {
        self.client_secrets().into_iter().next()
    }

    fn client_secrets(&self) -> Vec<String> {
        match self.client_secret.texts.is_empty() {
            true => {
                let texts = self.secret.texts.iter();
                texts.map(|text| fabric::client_secret(text)).collect()
            }
            false => self.client_secret.texts.clone(),
        }
    }

    /// Returns what a node proves and accepts on its links.
    #[must_use]
    pub fn link_secrets(&self) -> LinkSecrets {
        LinkSecrets {
            nodes: Secret::of(&self.secret.texts),
            clients: Secret::of(self.client_secrets()),
        }
    }

    /// Returns the fingerprints of the secrets that nodes share: that of [`Topology::secret`] first.
    #[must_use]
    pub fn secret_fingerprints(&self) -> Vec<String> {
        let texts = self.secret.texts.iter();
        texts.map(|text| fabric::secret_fingerprint(text)).collect()
    }

    /// Returns the path of the file that holds the secret, as it is written; relative to the cluster's
    /// file.
    #[must_use]
    pub fn secret_file(&self) -> Option<&Path> {
        self.secret.file.as_deref()
    }

    /// Returns a number that differs, with near certainty, if another file gives a slot to another
    /// partition or a partition to another node, or has other keys read atomic. It does not depend on
    /// addresses, the secret, comments, or the order in which things are written.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(super) fn computed_fingerprint(&self) -> u64 {
        let mut hash = Fnv::default();
        self.nodes.iter().for_each(|node| hash.number(node.id.0));
        for partition in &self.partitions {
            hash.number(partition.id.0);
            hash.number(partition.nodes.len() as u16);
            partition.nodes.iter().for_each(|node| hash.number(node.0));
        }
        self.owners.iter().for_each(|owner| hash.number(owner.0));
        let mut prefixes: Vec<&[u8]> = self.read_atomic.prefixes().collect();
        prefixes.sort_unstable();
        for prefix in prefixes {
            hash.number(prefix.len() as u16);
            prefix.iter().for_each(|byte| hash.number((*byte).into()));
        }
        hash.0
    }
}

impl SecretPlace {
    /// Returns `true` if the cluster's file has this secret, or names a file for it.
    pub(super) fn is_given(&self) -> bool {
        !self.texts.is_empty() || self.file.is_some()
    }
}

impl std::fmt::Debug for Topology {
    /// Formats the topology without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topology")
            .field("nodes", &self.nodes)
            .field("partitions", &self.partitions)
            .field("read_atomic", &self.read_atomic)
            .finish_non_exhaustive()
    }
}

/// The hash of Fowler, Noll and Vo: the same on every machine and in every version.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xCBF2_9CE4_8422_2325)
    }
}

impl Fnv {
    fn number(&mut self, number: u16) {
        for byte in number.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

// A list of owners has an entry for every slot that a CRC can give.
const _: () = assert!(SLOTS.is_power_of_two());
