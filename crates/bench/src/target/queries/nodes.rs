//! The nodes, and the proxy before them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{QueriesJob, Road};
use crate::older_proxy::Serving;
use crate::sample::RunError;
use crate::target::Context;
use crate::target::cluster::{self as clusters, Servers, Shape};
use crate::target::process::Process;

/// Processes that hold keys. They share the slots evenly, in their order.
pub(super) struct Nodes {
    addresses: Vec<SocketAddr>,
    kind: Kind,
}

enum Kind {
    Redis(Vec<Process>),
    Kumiki { servers: Servers, file: PathBuf },
}

impl Nodes {
    pub(super) fn start(
        job: &QueriesJob,
        context: &Context<'_>,
        dir: &Path,
    ) -> Result<Nodes, RunError> {
        let start = || match context.peers.redis()? {
            Some(program) => Nodes::redis(program, dir, job.nodes),
            None => Nodes::kumiki(context, dir, job.nodes),
        };
        if !job.pinned {
            return start();
        }
        let failed = |error: std::io::Error| RunError::failed("placing the nodes")(&error);
        let usable = base::cpus::usable().map_err(failed)?;
        let cpu = usable.last().copied().unwrap_or(0);
        // Processes inherit the processor of the thread that starts them.
        let pinned = || {
            base::cpus::pin_current_thread(cpu).map_err(failed)?;
            start()
        };
        std::thread::scope(|scope| scope.spawn(pinned).join())
            .unwrap_or_else(|_| Err(RunError::Failed("starting the nodes panicked".to_owned())))
    }

    fn redis(program: &Path, dir: &Path, count: usize) -> Result<Nodes, RunError> {
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
            Process::start(program, dir, &format!("redis{number}"), arguments)
        };
        let all: Vec<Process> = (0..count).map(start).collect::<Result<_, _>>()?;
        Ok(Nodes {
            addresses: all.iter().map(Process::address).collect(),
            kind: Kind::Redis(all),
        })
    }

    fn kumiki(context: &Context<'_>, dir: &Path, count: usize) -> Result<Nodes, RunError> {
        let binary = clusters::program(context)?;
        let mut servers = Servers::new(binary, dir, Shape::partitions(count))?;
        servers.start()?;
        Ok(Nodes {
            addresses: servers.clients().collect(),
            kind: Kind::Kumiki {
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
            Kind::Redis(all) => all.iter().map(Process::cpu).sum(),
            Kind::Kumiki { servers, .. } => servers.cpu(),
        }
    }

    pub(super) fn note(&self) -> Option<String> {
        match self.kind {
            Kind::Redis(_) => None,
            Kind::Kumiki { .. } => Some("redis-server is not installed: nodes are Kumiki's".into()),
        }
    }

    fn list(&self) -> String {
        let all: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        all.join(",")
    }
}

/// A process between clients and nodes.
pub(super) struct Proxy(Process);

impl Proxy {
    pub(super) fn start(
        job: &QueriesJob,
        context: &Context<'_>,
        nodes: &Nodes,
        dir: &Path,
    ) -> Result<Proxy, RunError> {
        if job.road == Road::Twemproxy {
            return Proxy::twemproxy(context, nodes, dir);
        }
        if job.road == Road::Older {
            return Proxy::older(job, context, nodes, dir);
        }
        let binary = clusters::program(context)?;
        let arguments = |at: SocketAddr, _| {
            let mut all = vec!["proxy".to_owned(), "--listen".to_owned(), at.to_string()];
            all.extend(match &nodes.kind {
                Kind::Redis(_) => ["--redis".to_owned(), nodes.list()],
                Kind::Kumiki { file, .. } => ["--cluster".to_owned(), file.display().to_string()],
            });
            let threads = ["--network-threads".to_owned(), job.threads.to_string()];
            let others = [
                "--aggregation-threads".to_owned(),
                job.aggregation.to_string(),
            ];
            all.extend(threads.into_iter().chain(others));
            if job.road == Road::Sockets {
                all.extend(["--network", "sockets"].map(str::to_owned));
            }
            Ok(all)
        };
        Process::start(binary, dir, "proxy", arguments).map(Proxy)
    }

    fn older(
        job: &QueriesJob,
        context: &Context<'_>,
        nodes: &Nodes,
        dir: &Path,
    ) -> Result<Proxy, RunError> {
        let Some(program) = context.laboratory else {
            let why = "there is no program whose older proxy could be started";
            return Err(RunError::Skipped(why.to_owned()));
        };
        let arguments = |listen: SocketAddr, _| {
            let serving = Serving {
                listen,
                nodes: nodes.addresses.clone(),
                kumiki: matches!(nodes.kind, Kind::Kumiki { .. }),
                network_threads: job.threads,
                aggregation_threads: job.aggregation,
            };
            let serving = serde_json::to_string(&serving);
            let serving = serving.map_err(|error| RunError::failed("naming the nodes")(&error))?;
            Ok(["older-proxy", &serving].map(str::to_owned).to_vec())
        };
        Process::start(program, dir, "proxy", arguments).map(Proxy)
    }

    fn twemproxy(context: &Context<'_>, nodes: &Nodes, dir: &Path) -> Result<Proxy, RunError> {
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
        Process::start(program, dir, "twemproxy", arguments).map(Proxy)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns the processor time that it has used, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        self.0.cpu()
    }
}
