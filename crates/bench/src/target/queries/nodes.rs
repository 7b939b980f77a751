//! The nodes, and the proxy before them.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::job::{QueriesJob, QueryNodesKind, QueryRoute};
use super::redis_cluster;
use crate::error::RunError;
use crate::paper_proxy::{PaperProxyConfig, ProxyDesign};
use crate::run_context::RunContext;
use crate::systems::{
    ClusterShape, KumikiCluster, ListeningProcess, PaperProxyProcesses, on_last_processor,
};

/// Processes that hold keys. They share the slots evenly, in their order.
pub(super) struct QueryNodes {
    addresses: Vec<SocketAddr>,
    kind: NodeKind,
}

enum NodeKind {
    Redis(Vec<ListeningProcess>),
    Kumiki {
        servers: KumikiCluster,
        file: PathBuf,
    },
}

impl QueryNodes {
    pub(super) fn start(
        job: &QueriesJob,
        context: &RunContext<'_>,
        dir: &Path,
    ) -> Result<QueryNodes, RunError> {
        let start = || match context.peers.redis()? {
            Some(program) => QueryNodes::redis(program, dir, job.nodes, job.kind, context),
            None if job.kind == QueryNodesKind::Cluster => Err(RunError::Skipped(
                "redis-server is not installed; Debian's package has this name".to_owned(),
            )),
            None => QueryNodes::kumiki(context, dir, job.nodes),
        };
        if !job.pinned {
            return start();
        }
        on_last_processor(start)
    }

    fn redis(
        program: &Path,
        dir: &Path,
        count: usize,
        kind: QueryNodesKind,
        context: &RunContext<'_>,
    ) -> Result<QueryNodes, RunError> {
        let mut buses = Vec::new();
        let mut start = |number| {
            let bus = Cell::new(0);
            let name = format!("redis{number}");
            let arguments = |at: SocketAddr, other: u16| {
                bus.set(other);
                let port = at.port().to_string();
                let other = other.to_string();
                let file = format!("{name}.conf");
                let mut all = vec!["--port", &port, "--bind", "127.0.0.1", "--save", ""];
                all.extend(["--appendonly", "no", "--daemonize", "no"]);
                if kind == QueryNodesKind::Cluster {
                    all.extend(["--cluster-enabled", "yes", "--cluster-config-file", &file]);
                    all.extend(["--cluster-port", &other]);
                }
                Ok(all.into_iter().map(str::to_owned).collect())
            };
            let process = ListeningProcess::start(program, dir, &name, arguments)?;
            buses.push(bus.get());
            Ok(process)
        };
        let all: Result<Vec<ListeningProcess>, RunError> = (0..count).map(&mut start).collect();
        let all = all?;
        let addresses: Vec<SocketAddr> = all.iter().map(ListeningProcess::address).collect();
        if kind == QueryNodesKind::Cluster {
            redis_cluster::join(&addresses, &buses, context)?;
        }
        Ok(QueryNodes {
            addresses,
            kind: NodeKind::Redis(all),
        })
    }

    fn kumiki(context: &RunContext<'_>, dir: &Path, count: usize) -> Result<QueryNodes, RunError> {
        let binary = context.unrecorded_server()?;
        let mut servers = KumikiCluster::new(binary, dir, ClusterShape::partitions(count))?;
        servers.start()?;
        Ok(QueryNodes {
            addresses: servers.clients().collect(),
            kind: NodeKind::Kumiki {
                servers,
                file: dir.join("cluster.toml"),
            },
        })
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the processor time that they have used, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        match &self.kind {
            NodeKind::Redis(all) => all.iter().map(ListeningProcess::cpu).sum(),
            NodeKind::Kumiki { servers, .. } => servers.cpu(),
        }
    }

    /// Checks that all of them run, where they are processes of Redis.
    pub(super) fn check_alive(&self) -> Result<(), RunError> {
        match &self.kind {
            NodeKind::Redis(all) => all.iter().try_for_each(ListeningProcess::check_alive),
            NodeKind::Kumiki { .. } => Ok(()),
        }
    }

    pub(super) fn note(&self) -> Option<String> {
        match self.kind {
            NodeKind::Redis(_) => None,
            NodeKind::Kumiki { .. } => {
                Some("redis-server is not installed: nodes are Kumiki's".into())
            }
        }
    }

    fn list(&self) -> String {
        let all: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        all.join(",")
    }
}

/// The processes between clients and nodes.
pub(super) enum ProxyProcess {
    One(ListeningProcess),
    Paper(PaperProxyProcesses),
}

impl ProxyProcess {
    pub(super) fn start(
        job: &QueriesJob,
        context: &RunContext<'_>,
        nodes: &QueryNodes,
        dir: &Path,
    ) -> Result<ProxyProcess, RunError> {
        let design = match job.route {
            QueryRoute::Paper => ProxyDesign::Improved,
            QueryRoute::Older => ProxyDesign::Earlier,
            QueryRoute::Twemproxy => {
                return ProxyProcess::twemproxy(context, nodes, dir).map(ProxyProcess::One);
            }
            QueryRoute::Direct | QueryRoute::Proxy | QueryRoute::Sockets => {
                return ProxyProcess::kumiki(job, context, nodes, dir).map(ProxyProcess::One);
            }
        };
        let paper = PaperProxyConfig {
            design,
            listen: nodes.addresses[0],
            nodes: nodes.addresses.clone(),
            client_threads: job.threads,
            aggregation_threads: job.aggregation,
            batch: job.batch,
        };
        PaperProxyProcesses::start(&paper, context, dir).map(ProxyProcess::Paper)
    }

    fn kumiki(
        job: &QueriesJob,
        context: &RunContext<'_>,
        nodes: &QueryNodes,
        dir: &Path,
    ) -> Result<ListeningProcess, RunError> {
        let binary = context.unrecorded_server()?;
        let arguments = |at: SocketAddr, _| {
            let mut all = vec!["proxy".to_owned(), "--listen".to_owned(), at.to_string()];
            all.extend(match &nodes.kind {
                NodeKind::Redis(_) => ["--redis".to_owned(), nodes.list()],
                NodeKind::Kumiki { file, .. } => {
                    ["--cluster".to_owned(), file.display().to_string()]
                }
            });
            let threads = ["--network-threads".to_owned(), job.threads.to_string()];
            let others = [
                "--aggregation-threads".to_owned(),
                job.aggregation.to_string(),
            ];
            all.extend(threads.into_iter().chain(others));
            if job.route == QueryRoute::Sockets {
                all.extend(["--network", "sockets"].map(str::to_owned));
            }
            Ok(all)
        };
        ListeningProcess::start(binary, dir, "proxy", arguments)
    }

    fn twemproxy(
        context: &RunContext<'_>,
        nodes: &QueryNodes,
        dir: &Path,
    ) -> Result<ListeningProcess, RunError> {
        let program = context.peers.twemproxy()?;
        if nodes.addresses.len() > 1 {
            let what = "twemproxy shares keys out among nodes in its own way";
            return Err(RunError::Skipped(what.to_owned()));
        }
        let file = dir.join("twemproxy.yml");
        let arguments = |at: SocketAddr, port: u16| {
            let text = format!(
                "kumiki:\n  listen: {at}\n  hash: fnv1a_64\n  distribution: modula\n  redis: true\n  \
                 servers:\n   - {}:1\n",
                nodes.addresses[0]
            );
            let written = std::fs::write(&file, text);
            written.map_err(|error| RunError::failed("describing the node")(&error))?;
            let file = file.display().to_string();
            let port = port.to_string();
            let all = ["-c", &file, "-a", "127.0.0.1", "-s", &port];
            Ok(all.map(str::to_owned).to_vec())
        };
        ListeningProcess::start(program, dir, "twemproxy", arguments)
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            ProxyProcess::One(process) => process.address(),
            ProxyProcess::Paper(processes) => processes.address(),
        }
    }

    /// Returns the processor time that it has used, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        match self {
            ProxyProcess::One(process) => process.cpu(),
            ProxyProcess::Paper(processes) => processes.cpu(),
        }
    }

    /// Checks that it still runs.
    pub(super) fn check_alive(&self) -> Result<(), RunError> {
        match self {
            ProxyProcess::One(process) => process.check_alive(),
            ProxyProcess::Paper(processes) => processes.check_alive(),
        }
    }
}
