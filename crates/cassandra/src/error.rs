//! The errors of Cassandra's nodes, with what to do about them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// The result of functions that deal with nodes.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why nodes do not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The jars are missing.
    #[error("Cassandra is not installed (no {}); `cargo xtask peers` installs it", jars.display())]
    NotInstalled {
        /// The directory in which they were looked for.
        jars: PathBuf,
    },
    /// There is no Java 17.
    #[error(
        "Cassandra needs Java 17, which is neither on the path nor in JAVA_HOME nor in \
         /usr/lib/jvm (found: {}); install the package openjdk-17-jdk-headless",
        none_if_empty(seen)
    )]
    NoJava {
        /// Other versions, and their places.
        seen: Vec<String>,
    },
    /// No or too many nodes.
    #[error("a cluster has 1 to 254 nodes")]
    Count,
    /// Memory is short.
    #[error(
        "the nodes need {needed_mib} MiB of memory and {free_mib} MiB are free; start fewer, or \
         with a smaller heap"
    )]
    Memory {
        /// The memory of all nodes.
        needed_mib: u64,
        /// The free memory.
        free_mib: u64,
    },
    /// Another process listens there.
    #[error(
        "{address} cannot be listened at ({source}); other nodes may be running: stop them first"
    )]
    PortInUse {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The directory has the data of other nodes.
    #[error(
        "{} has the data of {there}; start these again, remove the directory, or name another one",
        dir.display()
    )]
    OtherNodes {
        /// The directory.
        dir: PathBuf,
        /// The nodes whose data it has.
        there: String,
    },
    /// A file or a program cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A node has ended by itself.
    #[error("node {id} has ended ({status})\n{tail}")]
    Ended {
        /// The node, from 1 on.
        id: u8,
        /// The exit status.
        status: ExitStatus,
        /// The end of its log.
        tail: String,
    },
    /// A node runs and does not serve.
    #[error("node {id} does not answer, or does not know all others, after {after:.0?}\n{tail}")]
    NotReady {
        /// The node, from 1 on.
        id: u8,
        /// The time for which it was waited for.
        after: Duration,
        /// The end of its log.
        tail: String,
    },
    /// A node did not end after SIGTERM and was killed.
    #[error("node {id} did not end after SIGTERM and was killed\n{tail}")]
    Stays {
        /// The node, from 1 on.
        id: u8,
        /// The end of its log.
        tail: String,
    },
    /// A node that was to be paused or resumed does not run.
    #[error("node {id} does not run")]
    Dead {
        /// The node, from 1 on.
        id: u8,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Stopped,
}

impl Error {
    /// Returns a function that makes an error about the file `path`.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }
}

fn none_if_empty(seen: &[String]) -> String {
    match seen.is_empty() {
        true => "none".to_owned(),
        false => seen.join("; "),
    }
}
