//! Cassandra nodes and the proxy before them.

use std::net::SocketAddr;

use cql::Version;

use super::job::CassandraJob;
use crate::error::RunError;
use crate::machine;
use crate::run_context::{RunContext, StorageMedium};
use crate::systems::{ListeningProcess, on_last_processor, start_cassandra};
use cassandra::CassandraNodes;

/// Java's heap of a node, in MiB.
const HEAP: u64 = 1024;

/// Both. They end when this is dropped, the proxy first.
pub(super) struct CassandraSystem {
    proxy: ListeningProcess,
    nodes: CassandraNodes,
    /// Removed when they have ended.
    _dir: tempfile::TempDir,
}

/// The way of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CassandraRoute {
    Direct,
    Proxy,
}

impl CassandraSystem {
    pub(super) fn start(
        job: &CassandraJob,
        context: &RunContext<'_>,
    ) -> Result<CassandraSystem, RunError> {
        let binary = context.unrecorded_server()?;
        let start = || start_cassandra(context, job.nodes, HEAP, None);
        let nodes = match job.pinned {
            true => on_last_processor(start)?,
            false => start()?,
        };
        let dir = context.directory(StorageMedium::Disk)?;
        let all: Vec<String> = nodes
            .addresses()
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        let arguments = |at: SocketAddr, _| {
            let (at, all) = (at.to_string(), all.join(","));
            let own = ["proxy", "--listen", &at, "--cassandra", &all];
            let more = ["--network-threads", "1"];
            let words = own.iter().chain(&more);
            Ok(words.map(|one| (*one).to_owned()).collect())
        };
        let proxy = ListeningProcess::start(binary, dir.path(), "proxy", arguments)?;
        Ok(CassandraSystem {
            proxy,
            nodes,
            _dir: dir,
        })
    }

    pub(super) fn nodes(&self) -> Vec<SocketAddr> {
        self.nodes.addresses()
    }

    /// Returns the addresses for clients that go this way.
    pub(super) fn targets(&self, route: CassandraRoute) -> Vec<SocketAddr> {
        match route {
            CassandraRoute::Direct => self.nodes(),
            CassandraRoute::Proxy => vec![self.proxy.address()],
        }
    }

    /// Returns the processor time in seconds: of the nodes, of the proxy.
    pub(super) fn used(&self) -> [f64; 2] {
        let pids = (0..self.nodes.count()).filter_map(|node| self.nodes.pid(node));
        let nodes = pids.map(|pid| machine::cpu_of(pid.as_raw_nonzero().get().cast_unsigned()));
        [nodes.sum(), self.proxy.cpu()]
    }
}

/// Returns the protocol's version with this number.
pub(super) fn version(number: u8) -> Result<Version, RunError> {
    let known = Version::from_number(number);
    known.ok_or_else(|| RunError::Failed(format!("the protocol has no version {number}")))
}
