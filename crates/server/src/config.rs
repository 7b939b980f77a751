//! How a server is set up.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use base::versions::ReadAtomic;
use cluster::Timeouts;
use cluster::Topology;
use cluster::ramp::Algorithm;
use cluster::topology::NodeInfo;
use fabric::tcp::Transport;
use fabric::verbs::Domain;

use crate::limits::Limits;

/// When a reply leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Once everything that it shows is durable.
    #[default]
    Group,
    /// At once; a crash may take back what clients were told.
    Async,
}

/// A server's place in a cluster.
#[derive(Clone)]
pub struct Membership {
    /// The cluster.
    pub topology: Arc<Topology>,
    /// Which node of it the server is.
    pub node: NodeId,
    /// How long what is waited for.
    pub timeouts: Timeouts,
    /// How messages between nodes, and with Rust clients, travel.
    pub transport: Transport,
    /// The RDMA device's domain, if one is used.
    pub verbs: Option<Domain>,
}

impl Membership {
    /// What the cluster's file says of this node.
    ///
    /// # Errors
    /// [`StartError::NoSuchNode`] if it says nothing.
    pub fn info(&self) -> Result<NodeInfo, StartError> {
        let found = self.topology.node(self.node).copied();
        found.ok_or_else(|| StartError::NoSuchNode {
            node: self.node,
            known: self.topology.nodes().iter().map(|node| node.id).collect(),
        })
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The topology has the secret.
        write!(f, "node {}", self.node)
    }
}

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Runtimes; each is a thread with a listener and a worker of its own.
    pub threads: usize,
    /// For each runtime the processor that its thread stays on; empty: wherever the system puts
    /// them. Runtime *i* takes the store's worker *i* then, whose logger was chosen with it
    /// ([`store::Options::affinity`]).
    pub cpus: Vec<usize>,
    /// Where figures and health are served over HTTP, for monitoring; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// Which sources the program was built from, to show in figures.
    pub build: admin::Build,
    /// When replies leave.
    pub durability: Durability,
    /// The default user's password.
    pub password: Option<String>,
    /// Whether to listen where strangers may reach, without a password.
    pub insecure: bool,
    /// Bytes of memory beyond which commands that need more are refused; 0: no bound.
    pub maxmemory: u64,
    /// Where the data lies, to tell who asks.
    pub data: Option<PathBuf>,
    /// Sizes that clients control.
    pub limits: Limits,
    /// How long a sync may hold a serving thread. Where the device syncs faster, a thread that has
    /// no more requests to serve syncs by itself, which saves two thread switches; where it does
    /// not (and always, with zero) log threads sync, and the thread serves meanwhile.
    pub inline_sync: Duration,
    /// How long a command waits for keys that a transaction over several nodes holds.
    pub hold_timeout: Duration,
    /// How long a client may leave its snapshot (`KUMIKI.SNAPSHOT`) before it is given up.
    pub snapshot_idle: Duration,
    /// How old what is read from a replica may be (`READONLY`).
    pub staleness: Duration,
    /// Which node of which cluster it is, if it is of one.
    pub cluster: Option<Membership>,
    /// Which keys are read atomic, as the store was told, too. In a cluster its file says it, and
    /// this is not looked at.
    pub read_atomic: ReadAtomic,
    /// What versions of read-atomic keys that are written here tell of those written with them.
    pub ramp: Algorithm,
    /// Bytes of memory for newest versions of read-atomic keys that clients read by themselves, on
    /// this machine or through an RDMA device; 0: none. Not where messages travel over TCP alone.
    pub published: usize,
    /// How often commands that have failed are summed up in the log.
    pub failure_summary: Duration,
    /// How long a stopping server waits for clients to take their replies.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 6380)),
            threads: 1,
            cpus: Vec::new(),
            admin: None,
            build: admin::Build::default(),
            durability: Durability::Group,
            password: None,
            insecure: false,
            maxmemory: 0,
            data: None,
            limits: Limits::default(),
            inline_sync: Duration::from_millis(1),
            hold_timeout: Duration::from_secs(10),
            snapshot_idle: Duration::from_secs(60),
            staleness: Duration::from_secs(1),
            cluster: None,
            read_atomic: ReadAtomic::default(),
            ramp: Algorithm::default(),
            published: 32 << 20,
            failure_summary: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Anyone who can reach the address could read and change everything.
    #[error(
        "{listen} can be reached from other machines and no password is set: give \
         --requirepass PASSWORD, or listen on 127.0.0.1, or give --insecure to serve anyone"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {error}; choose another address by --listen")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The admin endpoint cannot be had.
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    /// The address for other nodes cannot be listened on.
    #[error(
        "cannot listen for other nodes on {fabric}: {error}; the address is that of node {node} in \
         the cluster's file"
    )]
    ListenFabric {
        /// The address.
        fabric: SocketAddr,
        /// The node.
        node: NodeId,
        /// What the system says.
        error: std::io::Error,
    },
    /// The cluster has no such node.
    #[error("the cluster's file has no node {node}; it has: {}", list(known))]
    NoSuchNode {
        /// What was asked for.
        node: NodeId,
        /// What there is.
        known: Vec<NodeId>,
    },
    /// A thread cannot stay on its processor.
    #[error("cannot have a thread stay on processor {cpu}: {error}; choose others by --affinity")]
    Pin {
        /// The processor.
        cpu: usize,
        /// What the system says.
        error: std::io::Error,
    },
    /// The store has fewer workers than the server has threads.
    #[error("the store has no worker left for thread {thread}; open it with more workers")]
    NoWorker {
        /// The thread's number.
        thread: usize,
    },
    /// The system refuses threads or descriptors.
    #[error("cannot start a thread of the server: {0}")]
    Thread(#[from] std::io::Error),
}

impl Config {
    /// The keys that are read atomic.
    #[must_use]
    pub fn read_atomic(&self) -> &ReadAtomic {
        let membership = self.cluster.as_ref();
        membership.map_or(&self.read_atomic, |membership| {
            membership.topology.read_atomic()
        })
    }

    /// Checks that no address lies open to strangers.
    ///
    /// # Errors
    /// [`StartError::Open`] or [`StartError::Admin`] if one does.
    pub fn check(&self) -> Result<(), StartError> {
        let has_password = self
            .password
            .as_ref()
            .is_some_and(|password| !password.is_empty());
        let closed = is_loopback(self.listen.ip()) || has_password || self.insecure;
        if !closed {
            return Err(StartError::Open {
                listen: self.listen,
            });
        }
        if let Some(address) = self.admin {
            // The password is for clients; here nobody asks for it.
            admin::check(address, self.insecure)?;
        }
        Ok(())
    }
}

fn list(nodes: &[NodeId]) -> String {
    let texts: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    texts.join(", ")
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_admin_address_needs_more_than_a_password() {
        let config = |admin: &str, insecure| Config {
            admin: Some(admin.parse().unwrap()),
            password: Some("pw".to_owned()),
            insecure,
            ..Config::default()
        };
        assert!(config("127.0.0.1:1", false).check().is_ok());
        assert!(config("[::1]:1", false).check().is_ok());
        let refused = config("0.0.0.0:1", false).check().unwrap_err().to_string();
        assert!(
            refused.contains("0.0.0.0:1") && refused.contains("--admin"),
            "{refused}"
        );
        assert!(config("0.0.0.0:1", true).check().is_ok());
    }

    #[test]
    fn a_public_address_needs_a_password() {
        let config = |listen: &str| Config {
            listen: listen.parse().unwrap(),
            ..Config::default()
        };
        for address in [
            "127.0.0.1:1",
            "127.8.0.1:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(config(address).check().is_ok(), "{address}");
        }
        for address in [
            "0.0.0.0:1",
            "[::]:1",
            "192.168.0.1:1",
            "[::ffff:10.0.0.1]:1",
        ] {
            assert!(config(address).check().is_err(), "{address}");
            let password = Some("pw".to_owned());
            assert!(
                Config {
                    password,
                    ..config(address)
                }
                .check()
                .is_ok()
            );
            assert!(
                Config {
                    insecure: true,
                    ..config(address)
                }
                .check()
                .is_ok()
            );
        }
    }
}
