//! The options of nodes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::installation::Installed;
use crate::network;

/// The algorithm of lightweight transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paxos {
    /// Four rounds between nodes; Cassandra's default.
    #[default]
    V1,
    /// Two rounds, since version 4.1.
    V2,
}

impl Paxos {
    /// Returns its name in `cassandra.yaml` and in our options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Paxos::V1 => "v1",
            Paxos::V2 => "v2",
        }
    }
}

/// How far Java compiles the nodes' code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compiler {
    /// As in production: the fastest node, once it is warm.
    #[default]
    Full,
    /// The first compiler alone: nodes start faster and leave the processor to others. For tests.
    Quick,
}

/// The options of nodes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The installed programs.
    pub installed: Installed,
    /// The number of nodes, at most 254.
    pub nodes: u8,
    /// The first three bytes of their addresses.
    pub network: [u8; 3],
    /// Java's heap of each node, in MiB. A node with less than 300 ends soon.
    pub heap_mib: u64,
    /// The algorithm of lightweight transactions.
    pub paxos: Paxos,
    /// How far Java compiles the nodes' code.
    pub compiler: Compiler,
    /// `true` if clients must give a name and a password, and have permissions; at first there is
    /// the user `cassandra` with the password `cassandra`, who may do everything.
    pub passwords: bool,
    /// The directory of data and logs, which are kept. Without it they lie in a temporary
    /// directory, which is removed with the nodes.
    pub dir: Option<PathBuf>,
}

impl Options {
    /// Returns options for so many nodes at 127.0.0.1 and so on, with 512 MiB of heap each and
    /// Paxos v1, which is Cassandra's default.
    #[must_use]
    pub fn new(installed: Installed, nodes: u8) -> Options {
        Options {
            installed,
            nodes,
            network: [127, 0, 0],
            heap_mib: 512,
            paxos: Paxos::V1,
            compiler: Compiler::Full,
            passwords: false,
            dir: None,
        }
    }

    /// Returns options for the same nodes in a network of this machine that no process uses now,
    /// with a quick start: for tests that run beside others.
    #[must_use]
    pub fn anywhere(self) -> Options {
        // A network whose ports are taken is detected when nodes start there.
        let free = |network: &[u8; 3]| {
            (1..=self.nodes).all(|id| network::check_free(*network, id).is_ok())
        };
        let mut networks = std::iter::repeat_with(|| [127, fastrand::u8(1..255), fastrand::u8(..)]);
        Options {
            network: networks
                .by_ref()
                .take(100)
                .find(free)
                .unwrap_or(self.network),
            compiler: Compiler::Quick,
            ..self
        }
    }
}
