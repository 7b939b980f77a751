//! How a proxy is set up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::locks;
use crate::seeds::NodeAddress;

/// Who does the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stack {
    /// The kernel's sockets, on the threads that work with what comes (paper 3, section 5.1).
    Sockets,
    /// The same through io_uring, a turn of a thread being one system call; sockets where the kernel
    /// refuses that.
    #[default]
    Uring,
}

/// What the proxy stands before.
#[derive(Clone, Debug)]
pub enum Nodes {
    /// A Kumiki cluster: where its nodes listen for Redis clients.
    Kumiki(Vec<NodeAddress>),
    /// Redis: some nodes of a Redis Cluster, or servers that do not know of each other.
    Redis(Vec<NodeAddress>),
    /// Some nodes of a Cassandra cluster; they tell of the others.
    Cassandra(Vec<NodeAddress>),
}

/// A table of Cassandra.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockTable {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name there.
    pub table: String,
}

/// How clients' connections are encrypted. Files are in PEM.
#[derive(Clone, Debug)]
pub struct TlsClients {
    /// The proxy's certificate, and those between it and the authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of the certificates that clients must show; `None`: they need none.
    pub client_ca: Option<PathBuf>,
}

/// How connections to nodes are encrypted.
#[derive(Clone, Debug, Default)]
pub struct TlsNodes {
    /// Authorities of the nodes' certificates, in PEM; `None`: those that the system knows.
    pub ca: Option<PathBuf>,
    /// The name in all nodes' certificates; `None`: each must have its node's address.
    pub name: Option<String>,
}

/// Limits on what clients control. Sizes in bytes unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once (a count).
    pub clients: usize,
    /// Of these, connections whose clients have not said who they are, where they must (a count), of which each
    /// thread has its part. When there are more, the oldest is closed.
    pub newcomers: usize,
    /// What one request may claim.
    pub request: resp::Limits,
    /// Input of one connection that is not yet a whole request.
    pub query_buffer: usize,
    /// Replies of a connection that wait for those before them, beyond which its requests wait.
    pub unordered: usize,
    /// Replies held for a connection, beyond which it is closed.
    pub output: usize,
    /// Input and replies of all connections together. The connection that needs more is closed.
    pub in_flight: u64,
    /// The body of one request of CQL.
    pub envelope: usize,
    /// Arguments held by a `MULTI` block.
    pub block_bytes: usize,
    /// Commands in a `MULTI` block (a count).
    pub block_commands: usize,
    /// How long a client may take to say who it is, where it must (a time).
    pub greeting: Duration,
    /// How long nothing may come in the middle of a request (a time).
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
            in_flight: 1 << 30,
            envelope: 64 << 20,
            block_bytes: 64 << 20,
            block_commands: 64 << 10,
            greeting: Duration::from_secs(10),
            stall: Duration::from_secs(60),
        }
    }
}

/// How a proxy is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// What it stands before.
    pub nodes: Nodes,
    /// Where clients reach this proxy, if not where it listens (Cassandra).
    pub advertise: Option<SocketAddr>,
    /// Where clients reach the other proxies before the same nodes (Cassandra).
    pub proxies: Vec<SocketAddr>,
    /// Tables that are locks, which the proxy keeps instead of the nodes (Cassandra).
    pub lock_tables: Vec<LockTable>,
    /// Whether writes of several clients may become one batch (Cassandra).
    pub merge_writes: bool,
    /// Threads with clients, each with a listener of its own.
    pub network_threads: usize,
    /// Threads with nodes; 0: each thread with clients has connections of its own to the nodes.
    pub aggregation_threads: usize,
    /// Threads that share a node, where there are threads with nodes.
    pub threads_for_each_node: usize,
    /// Connections of one thread to a node.
    pub connections: u8,
    /// For each thread (those with clients first) the processor that it stays on; empty: wherever
    /// the system puts them.
    pub cpus: Vec<usize>,
    /// Who does the network.
    pub network: Stack,
    /// Queries that may wait for one node, or be under way to it, over all threads.
    pub queue: usize,
    /// Packets that may be without any reply on one connection to a node, while what comes gathers for
    /// the next; `None`: 2 before Redis, which is idle while it has none and answers at once, and any
    /// number before nodes that answer late, because they sync first, or in another order.
    pub packs: Option<usize>,
    /// Queries in one packet, at most.
    pub pack_count: usize,
    /// Bytes in one packet, after which no further query is added.
    pub pack_bytes: usize,
    /// How long a node may take to answer.
    pub timeout: Duration,
    /// How long a query is tried again for, while its node fails.
    pub patience: Duration,
    /// How long a connection to a node is idle before it is asked whether it lives.
    pub health: Duration,
    /// Where figures and health are served over HTTP.
    pub admin: Option<SocketAddr>,
    /// Which sources the program was built from, to show in figures.
    pub build: admin::Build,
    /// How clients' connections are encrypted; `None`: they are not.
    pub tls: Option<TlsClients>,
    /// How connections to nodes are encrypted; `None`: they are not.
    pub node_tls: Option<TlsNodes>,
    /// The password that clients must give.
    pub password: Option<String>,
    /// The user that nodes are told.
    pub node_user: Option<String>,
    /// The password that nodes want.
    pub node_password: Option<String>,
    /// Whether to listen where strangers may reach, without a password.
    pub insecure: bool,
    /// The locks; `None`: commands about locks are refused.
    pub locks: Option<locks::Options>,
    /// What clients control.
    pub limits: Limits,
    /// How long a stopping proxy waits for clients to take their replies.
    pub drain: Duration,
}

impl Config {
    /// A proxy before these nodes, with defaults for everything else.
    #[must_use]
    pub fn new(nodes: Nodes) -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 6390)),
            nodes,
            advertise: None,
            proxies: Vec::new(),
            lock_tables: Vec::new(),
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
            health: Duration::from_secs(5),
            admin: None,
            build: admin::Build::default(),
            tls: None,
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

    /// Packets that may be without any reply on one connection to a node.
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
    /// Anyone who can reach the address could read and change everything.
    #[error(
        "{listen} can be reached from other machines and no password is set: give --requirepass \
         PASSWORD, or listen on 127.0.0.1, or give --insecure to serve anyone"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// The same, where nodes want to know nobody.
    #[error(
        "{listen} can be reached from other machines and the nodes ask nobody for a password: \
         listen on 127.0.0.1, or give --insecure to serve anyone"
    )]
    OpenNodes {
        /// The address.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {error}; choose another address by --listen")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
    /// The admin endpoint cannot be had.
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    /// Certificates or keys are of no use.
    #[error("{what}")]
    Tls {
        /// Which, why, and what to do.
        what: String,
    },
    /// No node tells what it is.
    #[error("no node answers as it should; start the nodes, or correct their addresses:\n{}", .tried.join("\n"))]
    NoNode {
        /// Each address, and what is wrong there.
        tried: Vec<String>,
    },
    /// The locks cannot be had.
    #[error(transparent)]
    Locks(#[from] locks::LockStartError),
    /// A thread cannot be had.
    #[error("cannot start a thread of the proxy: {error}")]
    Thread {
        /// Why not.
        error: std::io::Error,
    },
}
