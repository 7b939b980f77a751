//! The processes that keep locks.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::job::LockBackend;
use super::lock_client::{LightweightTransactions, TABLE};
use crate::error::RunError;
use crate::paper_proxy::{BatchLimits, PaperProxyConfig, ProxyDesign};
use crate::run_context::{RunContext, StorageMedium};
use crate::systems::{
    ClusterShape, KumikiCluster, ListeningProcess, PaperProxyProcesses, start_cassandra,
};
use cassandra::{CassandraNodes, Paxos};

/// Java's heap of a node, in MiB.
const HEAP: u64 = 768;
/// Nodes of Kumiki that hold a replicated table.
const REPLICAS: usize = 3;
/// Client threads and aggregation threads of the paper's proxy.
const PAPER_CLIENT_THREADS: usize = 26;
const PAPER_AGGREGATION_THREADS: usize = 10;
/// Options of a proxy that keeps locks in its memory.
const IN_MEMORY: [&str; 4] = ["--locks", "memory", "--data", "locks"];

/// Running processes. They end when this is dropped, the proxy before its nodes.
pub(super) struct LockProcesses {
    address: SocketAddr,
    proxy: Option<LockProxy>,
    _servers: Option<KumikiCluster>,
    _nodes: Option<CassandraNodes>,
    /// Removed when they have ended.
    _dir: tempfile::TempDir,
}

/// A proxy that keeps locks.
enum LockProxy {
    Kumiki(ListeningProcess),
    Paper(PaperProxyProcesses),
}

impl LockProcesses {
    /// Checks that the proxy still runs, if there is one.
    pub(super) fn check_alive(&self) -> Result<(), RunError> {
        match &self.proxy {
            None => Ok(()),
            Some(LockProxy::Kumiki(process)) => process.check_alive(),
            Some(LockProxy::Paper(processes)) => processes.check_alive(),
        }
    }

    /// Returns the address for requests of locks.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Starts the processes that keep locks.
pub(super) fn start(
    service: LockBackend,
    context: &RunContext<'_>,
) -> Result<LockProcesses, RunError> {
    match service {
        LockBackend::Memory => proxy(context, ClusterShape::partitions(1), &IN_MEMORY),
        LockBackend::Durable => {
            let in_store = ["--locks", "durable", "--data", "locks"];
            proxy(context, ClusterShape::partitions(1), &in_store)
        }
        LockBackend::Replicated => {
            let file = ["--lock-cluster", "cluster.toml"];
            proxy(context, ClusterShape::replicas(REPLICAS), &file)
        }
        LockBackend::Paper => of_paper(ProxyDesign::Improved, context),
        LockBackend::Older => of_paper(ProxyDesign::Earlier, context),
        LockBackend::Cql => before_cassandra(context),
        LockBackend::Lwt { nodes, paxos } => {
            let nodes = cassandra(context, nodes, paxos)?;
            Ok(LockProcesses {
                address: nodes.addresses()[0],
                proxy: None,
                _servers: None,
                _nodes: Some(nodes),
                _dir: context.directory(StorageMedium::Disk)?,
            })
        }
    }
}

/// Returns a proxy before nodes of Kumiki, whose only work is to hold locks, if they do.
fn proxy(
    context: &RunContext<'_>,
    shape: ClusterShape,
    locks: &[&str],
) -> Result<LockProcesses, RunError> {
    let binary = context.unrecorded_server()?;
    let dir = context.directory(StorageMedium::Disk)?;
    let mut servers = KumikiCluster::new(binary, dir.path(), shape)?;
    servers.start()?;
    let before = ["--cluster", "cluster.toml"];
    let process = listening(binary, dir.path(), &[&before, locks].concat())?;
    Ok(LockProcesses {
        address: process.address(),
        proxy: Some(LockProxy::Kumiki(process)),
        _servers: Some(servers),
        _nodes: None,
        _dir: dir,
    })
}

/// Returns a proxy of the paper before a node of Kumiki, which has nothing to do with the locks.
fn of_paper(design: ProxyDesign, context: &RunContext<'_>) -> Result<LockProcesses, RunError> {
    let binary = context.unrecorded_server()?;
    let dir = context.directory(StorageMedium::Disk)?;
    let mut servers = KumikiCluster::new(binary, dir.path(), ClusterShape::partitions(1))?;
    servers.start()?;
    let nodes: Vec<SocketAddr> = servers.clients().collect();
    let config = PaperProxyConfig {
        design,
        listen: nodes[0],
        nodes,
        client_threads: PAPER_CLIENT_THREADS,
        aggregation_threads: PAPER_AGGREGATION_THREADS,
        batch: BatchLimits::default(),
    };
    let processes = PaperProxyProcesses::start(&config, context, dir.path())?;
    Ok(LockProcesses {
        address: processes.address(),
        proxy: Some(LockProxy::Paper(processes)),
        _servers: Some(servers),
        _nodes: None,
        _dir: dir,
    })
}

/// Returns a proxy that answers lightweight transactions on the table of locks by itself.
fn before_cassandra(context: &RunContext<'_>) -> Result<LockProcesses, RunError> {
    let binary = context.unrecorded_server()?;
    let help = Command::new(binary).args(["proxy", "--help"]).output();
    let help =
        help.map_err(|error| RunError::failed("asking the proxy for its options")(&error))?;
    if !String::from_utf8_lossy(&help.stdout).contains("--lock-table") {
        let what = "this proxy has no option --lock-table";
        return Err(RunError::Skipped(what.to_owned()));
    }
    let nodes = cassandra(context, 1, Paxos::V1)?;
    let dir = context.directory(StorageMedium::Disk)?;
    let first = nodes.addresses()[0].to_string();
    let arguments = ["--cassandra", &first, "--lock-table", TABLE];
    let process = listening(binary, dir.path(), &[&arguments[..], &IN_MEMORY].concat())?;
    Ok(LockProcesses {
        address: process.address(),
        proxy: Some(LockProxy::Kumiki(process)),
        _servers: None,
        _nodes: Some(nodes),
        _dir: dir,
    })
}

fn listening(binary: &Path, dir: &Path, more: &[&str]) -> Result<ListeningProcess, RunError> {
    let arguments = |at: SocketAddr, _| {
        let at = at.to_string();
        let own = ["proxy", "--listen", &at, "--network-threads", "1"];
        let all = own.iter().chain(more);
        Ok(all.map(|one| (*one).to_owned()).collect())
    };
    ListeningProcess::start(binary, dir, "proxy", arguments)
}

/// Returns the nodes of Cassandra, with the table of locks.
fn cassandra(
    context: &RunContext<'_>,
    nodes: u8,
    paxos: Paxos,
) -> Result<CassandraNodes, RunError> {
    let nodes = start_cassandra(context, nodes, HEAP, Some(paxos))?;
    let made = LightweightTransactions::create_table(&nodes.addresses());
    made.map_err(|error| RunError::failed("making the table of locks")(&error))?;
    Ok(nodes)
}
