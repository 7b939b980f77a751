//! The systems that puts are measured on, behind one interface.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::etcd::Etcd;
use super::grpc::Grpc;
use crate::sample::RunError;
use crate::target::Context;
use crate::target::cluster::{Servers, Shape};
use crate::target::resp::Resp;

/// How long a cluster may take to have a leader.
const READY: Duration = Duration::from_secs(60);
/// The interval at which the leader is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// The system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// etcd, by gRPC.
    Etcd,
    /// Kumiki with one replicated partition, by RESP.
    Kumiki,
}

impl System {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Etcd => "etcd",
            System::Kumiki => "kumiki",
        }
    }
}

/// Server processes.
pub(super) enum Nodes {
    Etcd(Etcd),
    Kumiki(Servers),
}

/// A client's connection.
pub(super) enum Link {
    Etcd(Grpc),
    Kumiki(Resp),
}

impl Nodes {
    /// Describes them in `dir`; starts none.
    pub(super) fn new(
        system: System,
        context: &Context<'_>,
        dir: &Path,
        count: usize,
    ) -> Result<Nodes, RunError> {
        match system {
            System::Etcd => {
                let binary = context.peers.etcd()?;
                Ok(Nodes::Etcd(Etcd::new(binary, dir, count)?))
            }
            System::Kumiki => {
                let binary = context.server()?;
                let servers = Servers::new(binary, dir, Shape::replicas(count))?;
                Ok(Nodes::Kumiki(servers))
            }
        }
    }

    /// Starts them, and waits for a leader. Returns its address, and the name of the system.
    pub(super) async fn start(&mut self) -> Result<(SocketAddr, String), RunError> {
        match self {
            Nodes::Etcd(etcd) => etcd.start()?,
            Nodes::Kumiki(servers) => servers.start()?,
        }
        let deadline = Instant::now() + READY;
        while Instant::now() < deadline {
            if let Some(found) = self.leader().await {
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
        let said = match self {
            Nodes::Etcd(etcd) => etcd.said(),
            Nodes::Kumiki(servers) => servers.said(),
        };
        let what = format!("there is no leader after {READY:?}; the last that was said: {said}");
        Err(RunError::Failed(what))
    }

    async fn leader(&self) -> Option<(SocketAddr, String)> {
        match self {
            Nodes::Etcd(etcd) => {
                let (at, version) = etcd.leader().await?;
                Some((at, format!("etcd {version}")))
            }
            Nodes::Kumiki(servers) => {
                for at in servers.clients() {
                    let Ok(mut link) = Resp::connect(at).await else {
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

    pub(super) async fn connect(&self, at: SocketAddr) -> Result<Link, String> {
        Ok(match self {
            Nodes::Etcd(_) => Link::Etcd(Grpc::connect(at).await?),
            Nodes::Kumiki(_) => Link::Kumiki(Resp::connect(at).await?),
        })
    }

    /// Returns the processor time that they have used, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        match self {
            Nodes::Etcd(etcd) => etcd.cpu(),
            Nodes::Kumiki(servers) => servers.cpu(),
        }
    }

    pub(super) fn kill(&mut self) {
        match self {
            Nodes::Etcd(etcd) => etcd.kill(),
            Nodes::Kumiki(servers) => servers.kill(),
        }
    }
}

impl Link {
    /// Sets a key, durably.
    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match self {
            Link::Etcd(grpc) => grpc.put(key, value).await,
            Link::Kumiki(resp) => resp.put(key, value).await,
        }
    }

    /// Returns the newest value of a key, whichever node acknowledged it.
    pub(super) async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match self {
            Link::Etcd(grpc) => grpc.get(key).await,
            Link::Kumiki(resp) => resp.get(key).await,
        }
    }
}
