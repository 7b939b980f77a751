//! Which requests to Cassandra are measured.
//!
//! | load | clients | results |
//! |---|---|---|
//! | paced | on a schedule, over bare connections, with prepared statements | latency, beside a bare round trip |
//! | YCSB | YCSB's core with a Cassandra binding of ours over the Java driver: workload A, as fast as it goes | throughput, latency, processor time of the nodes |

use serde::{Deserialize, Serialize};

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CassandraLoad {
    /// On a schedule.
    Paced {
        /// The version of the protocol: 4 or 5.
        version: u8,
        /// Requests a second of all clients together.
        rate: f64,
        /// Requests before that, each way, that are not counted. Java compiles code that it has
        /// often run.
        warm_up: u64,
    },
    /// YCSB's workload A.
    Ycsb {
        /// The version of the protocol: 4 or 5.
        version: u8,
        /// Records of a kilobyte.
        records: u64,
        /// Pairs that are counted; one is run before.
        pairs: usize,
        /// How long each half of a pair takes, in seconds.
        seconds: u64,
    },
}

/// Requests to Cassandra.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CassandraJob {
    /// The kind of requests.
    pub load: CassandraLoad,
    /// Cassandra nodes, each with a copy of everything.
    pub nodes: u8,
    /// `true` if all nodes share one processor.
    pub pinned: bool,
    /// Connections of clients: to each node, or to the proxy.
    pub clients: usize,
}

impl CassandraLoad {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CassandraLoad::Paced { .. } => "1 kq/s",
            CassandraLoad::Ycsb { .. } => "YCSB A",
        }
    }

    /// Returns the version of the protocol.
    #[must_use]
    pub fn version(self) -> u8 {
        match self {
            CassandraLoad::Paced { version, .. } | CassandraLoad::Ycsb { version, .. } => version,
        }
    }
}
