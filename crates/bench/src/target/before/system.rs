//! Cassandra nodes and the proxy before them.

use std::net::SocketAddr;

use cql::Version;

use super::{BeforeJob, Load};
use crate::experiment::Effort;
use crate::machine;
use crate::sample::RunError;
use crate::target::cluster as clusters;
use crate::target::process::Process;
use crate::target::{Context, Place};
use cassandra::{self, CassandraNodes, Compiler};

/// Java's heap of a node, in MiB.
const HEAP: u64 = 1024;

/// Both. They end when this is dropped, the proxy first.
pub(super) struct System {
    proxy: Process,
    nodes: CassandraNodes,
    /// Removed when they have ended.
    _dir: tempfile::TempDir,
}

/// The way of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Road {
    Direct,
    Proxy,
}

impl System {
    pub(super) fn start(job: &BeforeJob, context: &Context<'_>) -> Result<System, RunError> {
        let binary = clusters::program(context)?;
        let installed = context.peers.cassandra()?;
        let options = cassandra::Options {
            heap_mib: HEAP,
            compiler: match context.scale.effort {
                Effort::Tiny => Compiler::Quick,
                Effort::Quick | Effort::Full => Compiler::Full,
            },
            ..cassandra::Options::new(installed, job.nodes).anywhere()
        };
        let nodes = match job.pinned {
            true => pinned(&options)?,
            false => start(&options)?,
        };
        let dir = context.directory(Place::Disk)?;
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
        let proxy = Process::start(binary, dir.path(), "proxy", arguments)?;
        Ok(System {
            proxy,
            nodes,
            _dir: dir,
        })
    }

    pub(super) fn nodes(&self) -> Vec<SocketAddr> {
        self.nodes.addresses()
    }

    /// Returns the addresses for clients that go this way.
    pub(super) fn targets(&self, road: Road) -> Vec<SocketAddr> {
        match road {
            Road::Direct => self.nodes(),
            Road::Proxy => vec![self.proxy.address()],
        }
    }

    /// Returns the processor time in seconds: of the nodes, of the proxy.
    pub(super) fn used(&self) -> [f64; 2] {
        let pids = (0..self.nodes.count()).filter_map(|node| self.nodes.pid(node));
        let nodes = pids.map(|pid| machine::cpu_of(pid.as_raw_nonzero().get().cast_unsigned()));
        [nodes.sum(), self.proxy.cpu()]
    }
}

fn start(options: &cassandra::Options) -> Result<CassandraNodes, RunError> {
    match CassandraNodes::start(options) {
        // A machine that is too small for so many nodes is no failure of the measured system.
        Err(error @ cassandra::Error::Memory { .. }) => Err(RunError::Skipped(error.to_string())),
        other => other.map_err(|error| RunError::failed("starting Cassandra")(&error)),
    }
}

/// Starts them on the last processor.
fn pinned(options: &cassandra::Options) -> Result<CassandraNodes, RunError> {
    let failed = |error: std::io::Error| RunError::failed("placing the nodes")(&error);
    let usable = base::cpus::usable().map_err(failed)?;
    let cpu = usable.last().copied().unwrap_or(0);
    // Processes inherit the processor of the thread that starts them.
    let pinned = || {
        base::cpus::pin_current_thread(cpu).map_err(failed)?;
        start(options)
    };
    std::thread::scope(|scope| scope.spawn(pinned).join())
        .unwrap_or_else(|_| Err(RunError::Failed("starting the nodes panicked".to_owned())))
}

/// Returns the protocol's version with this number.
pub(super) fn version(number: u8) -> Result<Version, RunError> {
    let known = Version::from_number(number);
    known.ok_or_else(|| RunError::Failed(format!("the protocol has no version {number}")))
}

impl Load {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::Paced { .. } => "1 kq/s",
            Load::Ycsb { .. } => "YCSB A",
        }
    }

    /// Returns the version of the protocol.
    #[must_use]
    pub fn version(self) -> u8 {
        match self {
            Load::Paced { version, .. } | Load::Ycsb { version, .. } => version,
        }
    }
}
