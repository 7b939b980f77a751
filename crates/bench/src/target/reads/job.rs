//! Which reads of a file are measured.
//!
//! | reader | reads the file |
//! |---|---|
//! | [`FileReader::Plain`] | threads, each in a loop: the paper's local I/O |
//! | [`FileReader::Own`] | one thread, in one of the node's ways |
//! | [`FileReader::Node`] | a storage node, for connections that have a thread each, or that threads share: the paper's remote I/O |
//!
//! A node that shows memory instead of a file answers at once: this is the limit of the fabric
//! alone.
//!
//! | order | offsets |
//! |---|---|
//! | [`AccessPattern::Random`] | random ones, for a time |
//! | [`AccessPattern::Counted`] | random ones, as many as a trace has |
//! | [`AccessPattern::Replay`] | those of a [trace](crate::replay), perhaps through a cache |

use serde::{Deserialize, Serialize};

use crate::run_context::StorageMedium;
use crate::storage_node::{PageTransport, ReadMethodOption};

/// Reads of a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadsJob {
    /// The place of the file.
    pub place: StorageMedium,
    /// Bytes of a read.
    pub unit: usize,
    /// The reader.
    pub reader: FileReader,
    /// The parts that are read.
    pub order: AccessPattern,
    /// `true` if the threads of each process share one processor: those of the node, or of local
    /// readers, have the first one, readers of a node the last.
    pub pinned: bool,
}

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileReader {
    /// Threads here that do nothing but read.
    Plain {
        /// How many.
        threads: usize,
    },
    /// One of the node's ways, here.
    Own {
        /// Which.
        #[serde(rename = "reading")]
        read_method: ReadMethodOption,
        /// Reads under way.
        depth: usize,
    },
    /// A node.
    Node(RemoteReaders),
}

/// A node, and its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteReaders {
    /// How pages travel.
    #[serde(rename = "carrier")]
    pub transport: PageTransport,
    /// How the node reads; `None`: it does not read, but shows memory.
    #[serde(rename = "reading")]
    pub read_method: Option<ReadMethodOption>,
    /// Threads of the node that serve connections.
    #[serde(rename = "desks")]
    pub node_threads: usize,
    /// Connections.
    pub connections: usize,
    /// Threads here that share each connection and wait for one page at a time, as the paper's I/O
    /// threads do. `None`: each connection has a thread, which has many pages under way.
    #[serde(default)]
    pub threads_per_connection: Option<usize>,
    /// Reads under way, of each connection.
    pub depth: usize,
}

impl RemoteReaders {
    /// Returns the number of threads that read.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.connections * self.threads_per_connection.unwrap_or(1)
    }
}

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessPattern {
    /// Random, for the scale's time.
    Random,
    /// Random, as many as the trace has.
    Counted,
    /// Those of the trace.
    Replay {
        /// Bytes of the cache, as a part of those that the trace touches; 0: there is none.
        cache: f64,
    },
}
