//! Which tiny queries are measured, and the way that they take.
//!
//! | way | who routes | connections of a client |
//! |---|---|---|
//! | `direct` | the client | one to each node |
//! | `proxy` | Kumiki's proxy | one |
//! | `sockets` | the same, over sockets where the default is io_uring | one |
//! | `paper` | the paper's proxy | one |
//! | `older` | the paper's earlier proxy, with its network in another process | one |
//! | `twemproxy` | twemproxy | one |

use serde::{Deserialize, Serialize};

use crate::paper_proxy::BatchLimits;

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryRoute {
    /// Clients ask the nodes.
    Direct,
    /// Through the proxy.
    Proxy,
    /// Through the proxy, which uses sockets and no io_uring.
    Sockets,
    /// Through the proxy of paper 3.
    Paper,
    /// Through the earlier proxy of paper 3.
    Older,
    /// Through twemproxy.
    Twemproxy,
}

impl QueryRoute {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueryRoute::Direct => "direct",
            QueryRoute::Proxy => "proxy",
            QueryRoute::Sockets => "sockets",
            QueryRoute::Paper => "paper",
            QueryRoute::Older => "older",
            QueryRoute::Twemproxy => "twemproxy",
        }
    }
}

/// The share of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryMix {
    /// One query in ten reads.
    #[default]
    Mixed,
    /// All queries write, as in the paper.
    Writes,
}

/// What nodes know of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryNodesKind {
    /// Nothing: they are servers by themselves.
    #[default]
    Servers,
    /// They are a Redis Cluster.
    Cluster,
}

impl QueryNodesKind {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueryNodesKind::Servers => "servers",
            QueryNodesKind::Cluster => "cluster",
        }
    }
}

/// When queries begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryLoad {
    /// Each client begins a query when it has the reply to the one before.
    #[default]
    Closed,
    /// One thread begins them on a schedule, one after the other, for all clients by turns.
    Paced {
        /// Queries a second of all clients together.
        rate: f64,
    },
    /// Queries begin on a schedule, whether or not earlier ones have been answered.
    Open {
        /// Queries a second of all clients together.
        rate: f64,
    },
}

/// Tiny queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueriesJob {
    /// Their way.
    #[serde(rename = "road")]
    pub route: QueryRoute,
    /// Processes that hold keys.
    pub nodes: usize,
    /// What these know of each other.
    #[serde(default)]
    pub kind: QueryNodesKind,
    /// `true` if all of them share one processor.
    pub pinned: bool,
    /// Clients. Except with [`QueryLoad::Open`] each has one query under way.
    pub clients: usize,
    /// Threads of the proxy that have clients.
    pub threads: usize,
    /// Threads of the proxy that have nodes; 0: those with clients have them, too.
    pub aggregation: usize,
    /// When a batch of queries leaves, for the paper's proxies.
    #[serde(default)]
    pub batch: BatchLimits,
    /// Which queries there are.
    #[serde(default)]
    pub mix: QueryMix,
    /// When they begin.
    #[serde(default)]
    pub load: QueryLoad,
}
