//! The client: its options, the cluster's file, its connections and sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use base::NodeId;
use cluster::Topology;

use crate::attempt_ids::AttemptIds;
use crate::cluster_map::ClusterMapCache;
use crate::connection_pool::ConnectionPool;
use crate::error::Error;
use crate::one_sided::OneSided;
use crate::options::{Options, Transport};
use crate::read_counts::ReadCounters;
use crate::sessions::FreeSessions;

/// A client of a cluster; see the crate's description.
pub struct Client {
    pub(crate) options: Options,
    pub(crate) map: ClusterMapCache,
    pub(crate) pool: ConnectionPool,
    pub(crate) sessions: FreeSessions,
    pub(crate) reads: ReadCounters,
    pub(crate) attempt_ids: AttemptIds,
    /// Published memory of nodes. `None` if [`Options::one_sided`] is off or messages travel over TCP.
    pub(crate) one_sided: Option<OneSided>,
}

impl Client {
    /// Connects to a cluster: asks these nodes for the cluster's file until one answers. One address is
    /// enough; with more of them, fewer nodes must be alive. They are addresses for nodes and Rust
    /// clients, not for Redis clients.
    ///
    /// # Errors
    /// Returns an error if no node answers, if the nodes do not accept this client, or if the transport
    /// needs an RDMA device and there is none; see [`Error`].
    pub fn connect(
        addresses: impl IntoIterator<Item = SocketAddr>,
        options: Options,
    ) -> Result<Client, Error> {
        let verbs = options.device()?;
        let attempt_ids = AttemptIds::new();
        let pool = ConnectionPool::new(&options, verbs.as_ref(), attempt_ids.key());
        let deadline = Instant::now() + options.timeout;
        let map = ClusterMapCache::fetch(&pool, addresses.into_iter().collect(), deadline)?;
        let one_sided = options.one_sided && options.transport != Transport::Tcp;
        Ok(Client {
            one_sided: one_sided.then(|| OneSided::new(options.transport, verbs)),
            options,
            map,
            pool,
            sessions: FreeSessions::default(),
            reads: ReadCounters::default(),
            attempt_ids,
        })
    }

    /// Returns the cluster's file that this client received last.
    #[must_use]
    pub fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.map.current().topology)
    }

    /// Returns how many connections to a node are idle, and how many are in use.
    #[must_use]
    pub fn connections(&self, node: NodeId) -> (usize, usize) {
        self.pool.count(node)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client of {:?}", self.topology())
    }
}
