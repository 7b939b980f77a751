//! The configuration of a server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use base::eviction::EvictionSettings;
use base::versions::ReadAtomic;
use cluster::ramp::{Algorithm, Renewal};
use cluster::topology::NodeInfo;
use cluster::{LinkSecrets, Timeouts, Topology};
use fabric::tcp::{Encryption, Transport};
use fabric::verbs::Domain;
use reactor::Io;
use reactor::tls::ServerTls;

use crate::config_file::ConfigFile;
use crate::key_events::EventClasses;
use crate::limits::Limits;

/// When replies are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Once all data that they show is durable.
    #[default]
    Group,
    /// At once; a crash may undo what clients were answered.
    Async,
}

/// The clients that may give the command `DEBUG`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DebugAccess {
    /// None.
    #[default]
    No,
    /// Those that are connected over the loopback address.
    Local,
    /// All.
    Yes,
}

/// A server's place in a cluster.
#[derive(Clone)]
pub struct Membership {
    /// The cluster.
    pub topology: Arc<Topology>,
    /// Which node of it the server is.
    pub node: NodeId,
    /// The address on which other nodes and Rust clients are accepted; `None`: that of the cluster's file.
    pub listen: Option<SocketAddr>,
    /// What nodes and Rust clients prove: [`Topology::link_secrets`], of which the caller may keep a clone to
    /// replace the secrets.
    pub secrets: LinkSecrets,
    /// The timeouts of messages between nodes.
    pub timeouts: Timeouts,
    /// How messages between nodes, and with Rust clients, travel.
    pub transport: Transport,
    /// Which connections between nodes, and with Rust clients, are encrypted.
    pub encryption: Encryption,
    /// The RDMA device's domain, if one is used.
    pub verbs: Option<Domain>,
}

impl Membership {
    /// Returns what the cluster's file says about this node.
    ///
    /// # Errors
    /// Returns [`StartError::NoSuchNode`] if the file does not have it.
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

/// A listener for clients that speak TLS.
#[derive(Clone, Debug)]
pub struct TlsListener {
    /// The address. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The server's certificate, and which certificates clients show. The caller may keep it to have
    /// its files read again ([`ServerTls::reload`]).
    pub certificate: Arc<ServerTls>,
}

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address that it listens on. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address and the certificate for clients that speak TLS; `None`: there is no such address.
    pub tls: Option<TlsListener>,
    /// How runtimes wait for their connections.
    pub io: Io,
    /// Runtimes; each is a thread with a listener and a worker of its own.
    pub threads: usize,
    /// For each runtime the processor that its thread is pinned to; empty: threads are not pinned.
    /// If set, runtime *i* takes the store's worker *i*, whose logger was chosen with it
    /// ([`store::Options::affinity`]).
    pub cpus: Vec<usize>,
    /// The address at which figures and health are served over HTTP, for monitoring; `None`: they
    /// are not.
    pub admin: Option<SocketAddr>,
    /// The certificate with which they are served over HTTPS; `None`: over HTTP.
    pub admin_certificate: Option<Arc<ServerTls>>,
    /// The sources that the program was built from, shown among the figures.
    pub build: admin::Build,
    /// When replies are sent.
    pub durability: Durability,
    /// The default user's password.
    pub password: Option<String>,
    /// `true` if it may listen without a password where other machines can connect.
    pub insecure: bool,
    /// The clients that may give the command `DEBUG`.
    pub debug_access: DebugAccess,
    /// The number of databases that clients can select.
    pub databases: u16,
    /// Bytes of memory above which keys are evicted, or commands that need more are refused; 0: no limit.
    pub maxmemory: u64,
    /// How keys are evicted.
    pub eviction: EvictionSettings,
    /// The directory of the data, for clients that ask for it.
    pub data: Option<PathBuf>,
    /// Limits on sizes that clients control.
    pub limits: Limits,
    /// The file that the options come from, for `CONFIG REWRITE`.
    pub file: Option<ConfigFile>,
    /// The least time that a command in the slow log took; `None`: nothing is recorded.
    pub slow_log_limit: Option<Duration>,
    /// The most commands that the slow log has.
    pub slow_log_length: usize,
    /// The least time of an event that the latency monitor records; `None`: nothing is recorded.
    pub latency_threshold: Option<Duration>,
    /// The classes of events of keys that are announced to subscribers.
    pub key_events: EventClasses,
    /// How long a sync may hold a serving thread. Where the device syncs faster, a thread that has
    /// no more requests to serve syncs by itself, which saves two thread switches; where it does
    /// not (and always, with zero) log threads sync, and the thread serves meanwhile.
    pub inline_sync: Duration,
    /// How long a command waits for keys that a transaction over several nodes holds.
    pub hold_timeout: Duration,
    /// How long a client may leave its snapshot (`KUMIKI.SNAPSHOT`) unused before it is given up.
    pub snapshot_idle: Duration,
    /// The greatest age of data that is read from a replica (`READONLY`).
    pub staleness: Duration,
    /// The server's place in a cluster, if it is a node of one.
    pub cluster: Option<Membership>,
    /// The keys that are read atomic, as in the store's options. In a cluster its file names them,
    /// and this field is not used.
    pub read_atomic: ReadAtomic,
    /// The algorithm of read-atomic keys: it determines what versions that are written here record
    /// about those written with them.
    pub ramp: Algorithm,
    /// Bytes of memory for the newest versions of read-atomic keys that clients read by themselves,
    /// on this machine or through an RDMA device; 0: none. Not used where messages travel over TCP
    /// alone.
    pub published: usize,
    /// When a version in that memory is replaced, after a write of its key.
    pub renewal: Renewal,
    /// The interval at which the log sums up commands that have failed.
    pub failure_summary: Duration,
    /// How long a stopping server waits for clients to take their replies.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 6380)),
            tls: None,
            io: Io::Epoll,
            threads: 1,
            cpus: Vec::new(),
            admin: None,
            admin_certificate: None,
            build: admin::Build::default(),
            durability: Durability::Group,
            password: None,
            insecure: false,
            debug_access: DebugAccess::No,
            databases: 16,
            maxmemory: 0,
            eviction: EvictionSettings::default(),
            data: None,
            limits: Limits::default(),
            file: None,
            slow_log_limit: Some(Duration::from_millis(10)),
            slow_log_length: 128,
            latency_threshold: None,
            key_events: EventClasses::default(),
            inline_sync: Duration::from_millis(1),
            hold_timeout: Duration::from_secs(10),
            snapshot_idle: Duration::from_secs(60),
            staleness: Duration::from_secs(1),
            cluster: None,
            read_atomic: ReadAtomic::default(),
            ramp: Algorithm::default(),
            published: 32 << 20,
            renewal: Renewal::default(),
            failure_summary: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Other machines could read and change everything without a password.
    #[error(
        "{listen} can be reached from other machines and no password is set: give \
         --requirepass PASSWORD, or listen on 127.0.0.1, or give --insecure to serve anyone"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// The server cannot listen on the address.
    #[error("cannot listen on {listen}: {error}; choose another address by --listen")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The server cannot listen on the address for TLS.
    #[error(
        "cannot listen on {listen}: {error}; choose another port by --tls-port, or by tls in the cluster's file"
    )]
    ListenTls {
        /// The address.
        listen: SocketAddr,
        /// The error of the system.
        error: std::io::Error,
    },
    /// io_uring is asked for and cannot be used.
    #[error("{0}: leave out --io uring")]
    Uring(#[from] reactor::NoUring),
    /// The admin endpoint cannot start.
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    /// The server cannot listen on the address for other nodes.
    #[error(
        "cannot listen for other nodes on {fabric}: {error}; choose another one by --fabric-listen, \
         or correct that of node {node} in the cluster's file"
    )]
    ListenFabric {
        /// The address.
        fabric: SocketAddr,
        /// The node.
        node: NodeId,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The cluster has no such node.
    #[error("the cluster's file has no node {node}; it has: {}", list(known))]
    NoSuchNode {
        /// The node that was requested.
        node: NodeId,
        /// The nodes that the cluster has.
        known: Vec<NodeId>,
    },
    /// A thread cannot be pinned to its processor.
    #[error("cannot have a thread stay on processor {cpu}: {error}; choose others by --affinity")]
    Pin {
        /// The processor.
        cpu: usize,
        /// The error of the system.
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
    /// Returns the keys that are read atomic.
    #[must_use]
    pub fn read_atomic(&self) -> &ReadAtomic {
        let membership = self.cluster.as_ref();
        membership.map_or(&self.read_atomic, |membership| {
            membership.topology.read_atomic()
        })
    }

    /// Checks that no address is open to other machines without protection.
    ///
    /// # Errors
    /// Returns [`StartError::Open`] or [`StartError::Admin`] if one is.
    pub fn check(&self) -> Result<(), StartError> {
        let has_password = self
            .password
            .as_ref()
            .is_some_and(|password| !password.is_empty());
        let tls = self.tls.as_ref();
        let open_tls = tls.filter(|tls| !tls.certificate.requires_certificates());
        let addresses = [Some(self.listen), open_tls.map(|tls| tls.listen)];
        for listen in addresses.into_iter().flatten() {
            if !is_loopback(listen.ip()) && !has_password && !self.insecure {
                return Err(StartError::Open { listen });
            }
        }
        if let Some(address) = self.admin {
            // The password is for clients; the admin endpoint does not ask for it.
            admin::check(address, self.admin_certificate.as_deref(), self.insecure)?;
        }
        Ok(())
    }
}

fn list(nodes: &[NodeId]) -> String {
    let texts: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    texts.join(", ")
}

/// Returns `true` if it is an address of this machine alone.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
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
