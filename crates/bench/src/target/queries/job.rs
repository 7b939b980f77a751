//! Which tiny queries are measured, and the way that they take.
//!
//! | way | who routes | connections of a client |
//! |---|---|---|
//! | `direct` | the client | one to each node |
//! | `proxy` | Kumiki's proxy | one |
//! | `sockets` | the same, over sockets where the default is io_uring | one |
//! | `older` | the same, in the paper's older design | one |
//! | `twemproxy` | twemproxy | one |

use serde::{Deserialize, Serialize};

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
    /// Through the proxy in its older design.
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
            QueryRoute::Older => "older",
            QueryRoute::Twemproxy => "twemproxy",
        }
    }
}

/// Tiny queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueriesJob {
    /// Their way.
    #[serde(rename = "road")]
    pub route: QueryRoute,
    /// Processes that hold keys.
    pub nodes: usize,
    /// `true` if all of them share one processor.
    pub pinned: bool,
    /// Clients, each with one query under way.
    pub clients: usize,
    /// Threads of the proxy that have clients.
    pub threads: usize,
    /// Threads of the proxy that have nodes; 0: those with clients have them, too.
    pub aggregation: usize,
    /// Queries a second of all clients together; `None`: as many as possible.
    pub rate: Option<f64>,
}
