//! The settings of a proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reactor::tls::{AuthorityFiles, CertificateError, ServerTls};

use crate::locks;
use crate::seeds::NodeAddress;

/// The network stack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Stack {
    /// The kernel's sockets, used by the threads that also work off the input (paper 3, section 5.1).
    Sockets,
    /// The kernel's sockets through io_uring, where a turn of a thread is one system call. Where the
    /// kernel refuses io_uring, the same as `Sockets`.
    #[default]
    Uring,
    /// A TCP stack in the process, with packets by AF_XDP, on the interface of this name (the paper's proxy uses mTCP on
    /// DPDK). Connections over other interfaces are the kernel's.
    Xdp(String),
}

/// The nodes behind the proxy, by their kind.
#[derive(Clone, Debug)]
pub enum Nodes {
    /// A Kumiki cluster: the addresses on which its nodes listen for Redis clients.
    Kumiki(Vec<NodeAddress>),
    /// Redis: some nodes of a Redis Cluster, or servers that do not know of each other.
    Redis(Vec<NodeAddress>),
    /// Some nodes of a Cassandra cluster; the proxy learns of the others from them.
    Cassandra(Vec<NodeAddress>),
}

/// How a client of Redis's protocol learns that the outcome of its command is not known: the command was sent, and
/// the node died before it answered, or lost its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnknownOutcome {
    /// Its connection is closed behind the replies to the commands before, as by a server that dies. Libraries
    /// know this case.
    #[default]
    Close,
    /// By the error `-UNKNOWN`.
    Error,
}

/// A table of Cassandra.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CqlTable {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name there.
    pub table: String,
}

/// Limits on what clients control. Sizes in bytes unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once (a count).
    pub clients: usize,
    /// Of these, connections whose clients have not authenticated or finished their handshake, where
    /// they must (a count). Each thread has its part. When there are more, the oldest is closed.
    pub newcomers: usize,
    /// Limits of one request.
    pub request: resp::Limits,
    /// Input of one connection that is not yet a whole request.
    pub query_buffer: usize,
    /// Replies of a connection that wait for earlier replies; beyond this its next requests wait.
    pub unordered: usize,
    /// Replies held for a connection; beyond this it is closed.
    pub output: usize,
    /// Replies and messages held for a connection that subscribes to channels; beyond this it is closed.
    pub subscriber_output: usize,
    /// Input and replies of all connections together. A connection that needs more is closed.
    pub in_flight: u64,
    /// Keys that clients with client-side caching have read and may keep (a count). When there are more, some
    /// are reported as changed.
    pub tracked_keys: usize,
    /// The body of one CQL request.
    pub envelope: usize,
    /// Arguments held by a `MULTI` block.
    pub block_bytes: usize,
    /// Commands in a `MULTI` block (a count).
    pub block_commands: usize,
    /// How long a client may take to authenticate or finish its handshake, where it must (a time).
    pub greeting: Duration,
    /// The longest pause in the middle of a request (a time).
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 10_000,
            newcomers: 2048,
            request: resp::Limits::default(),
            query_buffer: 1 << 30,
            unordered: 1 << 20,
            output: 4 << 30,
            subscriber_output: 32 << 20,
            in_flight: 1 << 30,
            tracked_keys: 1_000_000,
            envelope: 64 << 20,
            block_bytes: 64 << 20,
            block_commands: 64 << 10,
            greeting: Duration::from_secs(10),
            stall: Duration::from_secs(60),
        }
    }
}

/// The settings of a proxy.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address on which the proxy listens. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The nodes behind the proxy.
    pub nodes: Nodes,
    /// The address at which clients reach this proxy, if it is not the one on which it listens
    /// (Cassandra).
    pub advertise: Option<SocketAddr>,
    /// The addresses at which clients reach the other proxies of the same nodes (Cassandra).
    pub proxies: Vec<SocketAddr>,
    /// Tables that are locks, which the proxy keeps instead of the nodes (Cassandra).
    pub lock_tables: Vec<CqlTable>,
    /// Tables whose transactions are read atomic (Cassandra).
    pub read_atomic: Vec<CqlTable>,
    /// Writes of several clients may become one CQL batch (Cassandra).
    pub merge_writes: bool,
    /// Threads with clients, each with a listener of its own.
    pub network_threads: usize,
    /// Threads with nodes; 0: each thread with clients has connections of its own to the nodes.
    pub aggregation_threads: usize,
    /// Threads that share a node, where there are threads with nodes.
    pub threads_for_each_node: usize,
    /// Connections of one thread to a node.
    pub connections: u8,
    /// For each thread (those with clients first) the processor that it is pinned to; empty: no thread
    /// is pinned.
    pub cpus: Vec<usize>,
    /// The network stack.
    pub network: Stack,
    /// Queries that may wait for one node, or be under way to it, over all threads.
    pub queue: usize,
    /// Packets that may be without any reply on one connection to a node; further queries gather for
    /// the next packet. `None`: 2 before Redis, which is idle while it has none and answers at once,
    /// and any number before nodes that answer late, because they sync first, or in another order.
    pub packs: Option<usize>,
    /// Queries in one packet, at most.
    pub pack_count: usize,
    /// Bytes in one packet, after which no further query is added.
    pub pack_bytes: usize,
    /// How long a node may take to answer.
    pub timeout: Duration,
    /// How long a query is retried while its node fails.
    pub patience: Duration,
    /// How clients of Redis's protocol learn of unknown outcomes.
    pub unknown_outcome: UnknownOutcome,
    /// How long a connection to a node may be idle before a request is sent that shows if the node
    /// lives.
    pub health: Duration,
    /// The address on which figures and health are served over HTTP.
    pub admin: Option<SocketAddr>,
    /// The certificate with which they are served over HTTPS; `None`: over HTTP.
    pub admin_certificate: Option<Arc<ServerTls>>,
    /// The sources that the program was built from, to show in figures.
    pub build: admin::Build,
    /// The certificate with which clients' connections are encrypted; `None`: they are not. The caller
    /// may keep it to have its files read again ([`ServerTls::reload`]).
    pub certificate: Option<Arc<ServerTls>>,
    /// How connections to nodes are encrypted; `None`: they are not.
    pub node_tls: Option<AuthorityFiles>,
    /// The password that clients must give.
    pub password: Option<String>,
    /// The user as which the proxy authenticates with nodes.
    pub node_user: Option<String>,
    /// The password with which the proxy authenticates with nodes.
    pub node_password: Option<String>,
    /// Allows listening without a password where other machines can connect.
    pub insecure: bool,
    /// The locks; `None`: commands about locks are refused.
    pub locks: Option<locks::Options>,
    /// Limits on what clients control.
    pub limits: Limits,
    /// How long a stopping proxy waits for clients to take their replies.
    pub drain: Duration,
}

impl Config {
    /// Returns the settings of a proxy of these nodes, with defaults for everything else.
    #[must_use]
    pub fn new(nodes: Nodes) -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 6390)),
            nodes,
            advertise: None,
            proxies: Vec::new(),
            lock_tables: Vec::new(),
            read_atomic: Vec::new(),
            merge_writes: false,
            network_threads: 1,
            aggregation_threads: 0,
            threads_for_each_node: 1,
            connections: 1,
            cpus: Vec::new(),
            network: Stack::default(),
            queue: 4096,
            packs: None,
            pack_count: 1024,
            pack_bytes: 64 * 1024,
            timeout: Duration::from_secs(5),
            patience: Duration::from_secs(3),
            unknown_outcome: UnknownOutcome::default(),
            health: Duration::from_secs(5),
            admin: None,
            admin_certificate: None,
            build: admin::Build::default(),
            certificate: None,
            node_tls: None,
            password: None,
            node_user: None,
            node_password: None,
            insecure: false,
            locks: None,
            limits: Limits::default(),
            drain: Duration::from_secs(10),
        }
    }

    /// Returns the limit of packets that may be without any reply on one connection to a node.
    pub(crate) fn packs_under_way(&self) -> usize {
        let by_nodes = match &self.nodes {
            Nodes::Redis(_) => 2,
            Nodes::Kumiki(_) | Nodes::Cassandra(_) => usize::MAX,
        };
        self.packs.unwrap_or(by_nodes)
    }
}

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Any client that can reach the address could read and change everything.
    #[error(
        "{listen} can be reached from other machines and no password is set: give --requirepass \
         PASSWORD, or listen on 127.0.0.1, or give --insecure to serve anyone"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// Any client that can reach the address could read and change everything: the nodes demand no
    /// authentication.
    #[error(
        "{listen} can be reached from other machines and the nodes require no password: \
         listen on 127.0.0.1, or give --insecure to serve anyone"
    )]
    OpenNodes {
        /// The address.
        listen: SocketAddr,
    },
    /// Transactions are completed under the proxy's name, and not under that of their user.
    #[error(
        "--read-atomic does not work with nodes that require passwords: leave it out, or have the \
         nodes accept all clients and protect their network"
    )]
    ReadAtomicUsers,
    /// The proxy cannot listen on the address.
    #[error("cannot listen on {listen}: {error}; choose another address by --listen")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The reason.
        error: std::io::Error,
    },
    /// The admin endpoint cannot start.
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    /// Certificates or keys are unusable.
    #[error(transparent)]
    Tls(#[from] CertificateError),
    /// No node answers a request for its kind.
    #[error("no node answers as it should; start the nodes, or correct their addresses:\n{}", .tried.join("\n"))]
    NoNode {
        /// Each address, and the reason why it failed.
        tried: Vec<String>,
    },
    /// The locks cannot start.
    #[error(transparent)]
    Locks(#[from] locks::LockStartError),
    /// The interface cannot be used past the kernel.
    #[error(transparent)]
    Xdp(#[from] xdp::XdpError),
    /// A thread cannot start.
    #[error("cannot start a thread of the proxy: {error}")]
    Thread {
        /// The reason.
        error: std::io::Error,
    },
}
