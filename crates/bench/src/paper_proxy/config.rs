//! Which of the paper's proxies runs, and how.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A design of the paper's proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyDesign {
    /// Shared rings, and the network on each thread (section 5).
    Improved,
    /// Queues behind mutexes, a thread for each client, and the network in another process (section
    /// 4.3).
    Earlier,
}

/// When a batch of queries leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLimits {
    /// Queries in a batch, at most. A batch also ends when a packet of Ethernet is full.
    pub queries: usize,
    /// How long a batch waits for further queries, in microseconds. In the paper none waits.
    pub wait_us: u64,
}

impl Default for BatchLimits {
    fn default() -> BatchLimits {
        BatchLimits {
            queries: 64,
            wait_us: 0,
        }
    }
}

/// The configuration of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaperProxyConfig {
    /// The design.
    pub design: ProxyDesign,
    /// The address to which clients connect. That of an earlier proxy is that of its network process,
    /// which must run before.
    pub listen: SocketAddr,
    /// The nodes, which share the slots evenly, in this order.
    pub nodes: Vec<SocketAddr>,
    /// Client threads; an earlier proxy has one for each connection instead.
    pub client_threads: usize,
    /// Aggregation threads. With fewer threads than nodes a thread has several nodes.
    pub aggregation_threads: usize,
    /// When a batch leaves.
    pub batch: BatchLimits,
}
