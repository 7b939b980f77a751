//! The kinds of nodes behind a proxy.

/// The kind of the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// Nodes of a Kumiki cluster: any of them executes a command on keys of several.
    Kumiki,
    /// Nodes of a Redis Cluster.
    RedisCluster,
    /// Redis servers that do not know of each other: the slots are divided evenly among them, in the
    /// order in which the servers were given.
    RedisServers,
    /// Nodes of a Cassandra cluster.
    Cassandra,
}
