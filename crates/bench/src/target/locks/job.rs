//! Which locks are measured.
//!
//! | locks | who grants them | protocol |
//! |---|---|---|
//! | `memory` | a proxy, in its memory | RESP |
//! | `durable` | a proxy, in a store of its own on the disk | RESP |
//! | `replicated` | a proxy, in three Kumiki nodes with logs on the disk | RESP |
//! | `paper` | the proxy of paper 3, in its memory | RESP |
//! | `older` | the earlier proxy of paper 3, with the same table | RESP |
//! | `cql` | a proxy before one Cassandra node, in its memory | CQL |
//! | `lwt` | Cassandra nodes, each of which has everything | CQL |

use cassandra::Paxos;
use serde::{Deserialize, Serialize};

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockBackend {
    /// The proxy's memory.
    Memory,
    /// The proxy's own store.
    Durable,
    /// Three Kumiki nodes.
    Replicated,
    /// The memory of paper 3's proxy.
    Paper,
    /// The memory of paper 3's earlier proxy, which had no locks in the paper.
    Older,
    /// The proxy's memory, used like Cassandra.
    Cql,
    /// Cassandra.
    Lwt {
        /// How many nodes.
        nodes: u8,
        /// How they agree.
        paxos: Paxos,
    },
}

impl LockBackend {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LockBackend::Memory => "memory",
            LockBackend::Durable => "durable",
            LockBackend::Replicated => "replicated",
            LockBackend::Paper => "paper",
            LockBackend::Older => "older",
            LockBackend::Cql => "cql",
            LockBackend::Lwt { .. } => "lwt",
        }
    }
}

/// Locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksJob {
    /// Where the locks are kept.
    #[serde(rename = "keeper")]
    pub service: LockBackend,
    /// How often one is taken and given back.
    pub turns: u64,
    /// The number of turns before that, which do not count. Java compiles code that it has often
    /// run.
    pub warm_up: u64,
}
