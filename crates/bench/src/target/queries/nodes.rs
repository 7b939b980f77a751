//! The nodes, and the proxy before them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::job::{QueriesJob, QueryRoute};
use crate::error::RunError;
use crate::older_proxy::OlderProxyConfig;
use crate::run_context::RunContext;
use crate::systems::{ClusterShape, KumikiCluster, ListeningProcess, on_last_processor};

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
            Some(program) => QueryNodes::redis(program, dir, job.nodes),
            None => QueryNodes::kumiki(context, dir, job.nodes),
        };
        if !job.pinned {
            return start();
        }
        on_last_processor(start)
    }

    fn redis(program: &Path, dir: &Path, count: usize) -> Result<QueryNodes, RunError> {
        let start = |number| {
            let arguments = |at: SocketAddr, _| {
                let port = at.port().to_string();
                let all = ["--port", &port, "--bind", "127.0.0.1", "--save", ""];
                let more = ["--appendonly", "no", "--daemonize", "no"];
                Ok(all
                    .iter()
                    .chain(&more)
                    .map(|one| (*one).to_owned())
                    .collect())
            };
            ListeningProcess::start(program, dir, &format!("redis{number}"), arguments)
        };
        let all: Vec<ListeningProcess> = (0..count).map(start).collect::<Result<_, _>>()?;
        Ok(QueryNodes {
            addresses: all.iter().map(ListeningProcess::address).collect(),
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

/// A process between clients and nodes.
pub(super) struct ProxyProcess(ListeningProcess);

impl ProxyProcess {
    pub(super) fn start(
        job: &QueriesJob,
        context: &RunContext<'_>,
        nodes: &QueryNodes,
        dir: &Path,
    ) -> Result<ProxyProcess, RunError> {
        if job.route == QueryRoute::Twemproxy {
            return ProxyProcess::twemproxy(context, nodes, dir);
        }
        if job.route == QueryRoute::Older {
            return ProxyProcess::older(job, context, nodes, dir);
        }
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
        ListeningProcess::start(binary, dir, "proxy", arguments).map(ProxyProcess)
    }

    fn older(
        job: &QueriesJob,
        context: &RunContext<'_>,
        nodes: &QueryNodes,
        dir: &Path,
    ) -> Result<ProxyProcess, RunError> {
        let program = context.laboratory("older proxy")?;
        let arguments = |listen: SocketAddr, _| {
            let config = OlderProxyConfig {
                listen,
                nodes: nodes.addresses.clone(),
                kumiki: matches!(nodes.kind, NodeKind::Kumiki { .. }),
                network_threads: job.threads,
                aggregation_threads: job.aggregation,
            };
            let config = serde_json::to_string(&config);
            let config = config.map_err(|error| RunError::failed("naming the nodes")(&error))?;
            Ok(["older-proxy", &config].map(str::to_owned).to_vec())
        };
        ListeningProcess::start(program, dir, "proxy", arguments).map(ProxyProcess)
    }

    fn twemproxy(
        context: &RunContext<'_>,
        nodes: &QueryNodes,
        dir: &Path,
    ) -> Result<ProxyProcess, RunError> {
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
        ListeningProcess::start(program, dir, "twemproxy", arguments).map(ProxyProcess)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns the processor time that it has used, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        self.0.cpu()
    }
}
