//! The cluster's file: the nodes, and the slots that each of them holds.
//!
//! | key | where | type | meaning |
//! |---|---|---|---|
//! | `name` | top | text | the cluster's name; data directories record it, and serve no other cluster |
//! | `secret` | top | text, at least 16 bytes | what nodes prove to each other and to Rust clients that they know |
//! | `secret-file` | top | path, relative to the file | a file that holds the secret instead |
//! | `client-secret` | top | text, at least 16 bytes | what Rust clients prove to nodes; without it, a text that follows from `secret` |
//! | `client-secret-file` | top | path, relative to the file | a file that holds the secret of clients instead |
//! | `read_atomic` | top | list of texts | the keys that begin with one of them are read atomic; without it, none is |
//! | `[[node]]` | top | tables | the nodes |
//! | `id` | node | 1–65535 | its number |
//! | `client` | node | address and port | where Redis clients connect |
//! | `fabric` | node | address and port | where nodes and Rust clients connect |
//! | `replica` | node | address and port | where the others connect that hold the same partition; needed where it is replicated |
//! | `[[partition]]` | top | tables | the partitions |
//! | `id` | partition | 1–65535 | its number |
//! | `slots` | partition | text or list of texts | slots and ranges of them: `"0-4095, 8000"` |
//! | `nodes` | partition | list of numbers | the nodes that hold it: one, or three and more, of which each has all of it |
//!
//! Invariants of a [`Topology`]:
//! 1. Each slot belongs to exactly one partition.
//! 2. Each partition is on one node of the file, or on three or more; a node holds at most one
//!    partition.
//! 3. No two addresses of the file are the same, of any kind.
//! 4. Without a secret, in the file or beside it, all addresses are loopback ones.
//! 5. A node of a replicated partition has an address for that.
//! 6. None of the texts of `read_atomic` is empty, or comes twice.

mod check;
mod mistakes;
mod read;
mod write;

use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use base::versions::ReadAtomic;
use base::{NodeId, PartitionId};

use crate::slot::{self, SLOTS};

pub use mistakes::{Mistake, Mistakes};
pub use write::even;

/// The least length of a secret, in bytes.
pub const SHORTEST_SECRET: usize = 16;

/// A node, as the file has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// Its number.
    pub id: NodeId,
    /// Where Redis clients connect.
    pub client: SocketAddr,
    /// Where nodes and Rust clients connect.
    pub fabric: SocketAddr,
    /// Where the nodes connect that hold the same partition; present if that is replicated.
    pub replica: Option<SocketAddr>,
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

/// The content of a cluster's file.
#[derive(Clone)]
pub struct Topology {
    text: String,
    name: Option<String>,
    secret: SecretPlace,
    client_secret: SecretPlace,
    /// In the order of their ids.
    nodes: Vec<NodeInfo>,
    /// In the order of their ids.
    partitions: Vec<PartitionInfo>,
    read_atomic: ReadAtomic,
    /// The partition of each slot.
    owners: Box<[PartitionId]>,
    /// See [`Topology::fingerprint`]: it takes time to compute, and clients need it for each message.
    fingerprint: u64,
}

/// A secret, or the file that holds it.
#[derive(Clone, Default)]
struct SecretPlace {
    text: Option<String>,
    file: Option<PathBuf>,
}

/// Why a cluster's file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read, or every user of the machine can read the secret in it.
    #[error("cannot use {}: {error}; {advice}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        error: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The file has mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

impl Topology {
    /// Parses the text of a cluster's file; messages name it `file_name`. Files that hold secrets are
    /// not opened; see [`Topology::load`].
    ///
    /// # Errors
    /// Returns all [`Mistakes`] of the text; only those of TOML's grammar if there are any.
    pub fn parse(text: &str, file_name: &str) -> Result<Topology, Mistakes> {
        let mut found = Vec::new();
        let draft = read::read(text, &mut found);
        let topology = draft.and_then(|draft| check::check(draft, text, &mut found));
        match topology {
            Some(topology) if found.is_empty() => Ok(topology),
            _ => Err(Mistakes::new(file_name, found)),
        }
    }

    /// Loads a cluster's file, and the files of the secrets if it names some.
    ///
    /// # Errors
    /// The [`LoadError`] says which file to change and how.
    pub fn load(path: &Path) -> Result<Topology, LoadError> {
        let text = read_file(
            path,
            "give the path of the cluster's file, which must be readable",
        )?;
        let mut topology = Topology::parse(&text, &path.display().to_string())?;
        let dir = path.parent().unwrap_or(Path::new(""));
        topology.secret.load(dir)?;
        topology.client_secret.load(dir)?;
        Ok(topology)
    }

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
        self.secret.text.as_deref()
    }

    /// Returns the secret that Rust clients prove to nodes: that of the file, or one that follows from
    /// [`Topology::secret`].
    #[must_use]
    pub fn client_secret(&self) -> Option<String> {
        let derived = || self.secret().map(fabric::client_secret);
        self.client_secret.text.clone().or_else(derived)
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

    fn computed_fingerprint(&self) -> u64 {
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
    /// Reads the secret's file, which lies in `dir`, if there is one.
    fn load(&mut self, dir: &Path) -> Result<(), LoadError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let file = dir.join(file);
        let advice = "put the secret there, readable for this process, or name another file";
        let secret = base::private::read(&file).map_err(|error| LoadError::Unreadable {
            path: file.clone(),
            error,
            advice,
        })?;
        let secret = secret.trim().to_owned();
        if secret.len() < SHORTEST_SECRET {
            let what = check::short_secret(secret.len());
            let name = file.display().to_string();
            return Err(Mistakes::new(&name, vec![Mistake { line: 1, what }]).into());
        }
        self.text = Some(secret);
        Ok(())
    }

    /// Returns `true` if the cluster's file has this secret, or names a file for it.
    fn is_given(&self) -> bool {
        self.text.is_some() || self.file.is_some()
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

fn read_file(path: &Path, advice: &'static str) -> Result<String, LoadError> {
    fs::read_to_string(path).map_err(|error| LoadError::Unreadable {
        path: path.to_owned(),
        error,
        advice,
    })
}

// A list of owners has an entry for every slot that a CRC can give.
const _: () = assert!(SLOTS.is_power_of_two());
