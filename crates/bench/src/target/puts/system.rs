//! The systems that puts are measured on, behind one interface.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::etcd::EtcdCluster;
use super::grpc::EtcdConnection;
use crate::error::RunError;
use crate::run_context::RunContext;
use crate::systems::{ClusterShape, KumikiCluster, RespConnection};

/// How long a cluster may take to have a leader.
const READY: Duration = Duration::from_secs(60);
/// The interval at which the leader is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// The system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicatedSystem {
    /// etcd, by gRPC.
    Etcd,
    /// Kumiki with one replicated partition, by RESP.
    Kumiki,
}

impl ReplicatedSystem {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReplicatedSystem::Etcd => "etcd",
            ReplicatedSystem::Kumiki => "kumiki",
        }
    }
}

/// Server processes.
pub(super) enum ReplicatedNodes {
    Etcd(EtcdCluster),
    Kumiki(KumikiCluster),
}

/// A client's connection.
pub(super) enum PutConnection {
    Etcd(EtcdConnection),
    Kumiki(RespConnection),
}

impl ReplicatedNodes {
    /// Describes them in `dir`; starts none.
    pub(super) fn new(
        system: ReplicatedSystem,
        context: &RunContext<'_>,
        dir: &Path,
        count: usize,
    ) -> Result<ReplicatedNodes, RunError> {
        match system {
            ReplicatedSystem::Etcd => {
                let binary = context.peers.etcd()?;
                Ok(ReplicatedNodes::Etcd(EtcdCluster::new(binary, dir, count)?))
            }
            ReplicatedSystem::Kumiki => {
                let binary = context.server()?;
                let servers = KumikiCluster::new(binary, dir, ClusterShape::replicas(count))?;
                Ok(ReplicatedNodes::Kumiki(servers))
            }
        }
    }

    /// Starts them, and waits for a leader. Returns its address, and the name of the system.
    pub(super) async fn start(&mut self) -> Result<(SocketAddr, String), RunError> {
        match self {
            ReplicatedNodes::Etcd(etcd) => etcd.start()?,
            ReplicatedNodes::Kumiki(servers) => servers.start()?,
        }
        let deadline = Instant::now() + READY;
        while Instant::now() < deadline {
            if let Some(found) = self.leader().await {
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
        let output = match self {
            ReplicatedNodes::Etcd(etcd) => etcd.last_output(),
            ReplicatedNodes::Kumiki(servers) => servers.last_output(),
        };
        let what = format!("there is no leader after {READY:?}; the last that was said: {output}");
        Err(RunError::Failed(what))
    }

    async fn leader(&self) -> Option<(SocketAddr, String)> {
        match self {
            ReplicatedNodes::Etcd(etcd) => {
                let (at, version) = etcd.leader().await?;
                Some((at, format!("etcd {version}")))
            }
            ReplicatedNodes::Kumiki(servers) => {
                for at in servers.clients() {
                    let Ok(mut link) = RespConnection::connect(at).await else {
                        continue;
                    };
                    // Followers refuse their clients.
                    if link.put(b"probe", b"1").await.is_ok() {
                        let version = env!("CARGO_PKG_VERSION");
                        return Some((at, format!("Kumiki {version}")));
                    }
                }
                None
            }
        }
    }

    pub(super) async fn connect(&self, at: SocketAddr) -> Result<PutConnection, RunError> {
        Ok(match self {
            ReplicatedNodes::Etcd(_) => PutConnection::Etcd(EtcdConnection::connect(at).await?),
            ReplicatedNodes::Kumiki(_) => PutConnection::Kumiki(RespConnection::connect(at).await?),
        })
    }

    /// Returns the processor time that they have used, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        match self {
            ReplicatedNodes::Etcd(etcd) => etcd.cpu(),
            ReplicatedNodes::Kumiki(servers) => servers.cpu(),
        }
    }

    pub(super) fn kill(&mut self) {
        match self {
            ReplicatedNodes::Etcd(etcd) => etcd.kill(),
            ReplicatedNodes::Kumiki(servers) => servers.kill(),
        }
    }
}

impl PutConnection {
    /// Sets a key, durably.
    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        match self {
            PutConnection::Etcd(grpc) => grpc.put(key, value).await,
            PutConnection::Kumiki(resp) => resp.put(key, value).await,
        }
    }

    /// Returns the newest value of a key, whichever node acknowledged it.
    pub(super) async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, RunError> {
        match self {
            PutConnection::Etcd(grpc) => grpc.get(key).await,
            PutConnection::Kumiki(resp) => resp.get(key).await,
        }
    }
}
