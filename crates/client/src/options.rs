//! How a client is set up.

use std::time::Duration;

use fabric::Secret;
pub use fabric::tcp::Transport;

/// Who runs [`Client::get_all`](crate::Client::get_all).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The client: it asks each partition itself. One way to each and back, and the least work for
    /// the nodes; the client has a message for each partition.
    #[default]
    Direct,
    /// A node that leads one of the partitions: one message to it and one back. The nodes' messages to
    /// each other are those of many clients at a time, so that all together cost less; but an answer
    /// has gone two ways.
    ByNode,
}

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's secret.
    pub secret: Secret,
    /// How long a call may take, with all that it tries.
    pub timeout: Duration,
    /// How long one request may take before it is sent again, elsewhere maybe. A transaction that
    /// writes and must not be sent again, because it is not one of a single replicated partition,
    /// waits as long as the call may take: giving up earlier would only leave its outcome unknown.
    pub answer_within: Duration,
    /// How long connecting to a node may take.
    pub connect_within: Duration,
    /// Connections to one node at a time, at most; a call that finds none free waits.
    pub connections_per_node: usize,
    /// Connections that were not used for so long are closed.
    pub idle_after: Duration,
    /// Who runs reads of several read-atomic keys.
    pub reads: Reads,
    /// Bytes of the longest message, in either direction.
    pub message: usize,
    /// Whether [`Client::get_all`](crate::Client::get_all) reads what nodes have published in memory
    /// without asking them, where messages travel through memory.
    pub one_sided: bool,
    /// How messages travel. Nodes take part in shared memory if they were started so. A client opens
    /// no RDMA device, so far.
    pub transport: Transport,
}

impl Options {
    /// 10 s for a call, 3 s for an answer, 2 s for connecting, 32 connections to a node, closed
    /// after 30 s, direct reads, messages to 1 GiB, over TCP.
    #[must_use]
    pub fn new(secret: impl AsRef<[u8]>) -> Options {
        Options {
            secret: Secret::new(secret),
            timeout: Duration::from_secs(10),
            answer_within: Duration::from_secs(3),
            connect_within: Duration::from_secs(2),
            connections_per_node: 32,
            idle_after: Duration::from_secs(30),
            reads: Reads::default(),
            message: 1 << 30,
            one_sided: true,
            transport: Transport::Tcp,
        }
    }
}
