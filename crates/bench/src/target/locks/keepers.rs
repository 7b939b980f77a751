//! The processes that keep locks.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::Keeper;
use super::desk::{Lwt, TABLE};
use crate::experiment::Effort;
use crate::sample::RunError;
use crate::target::cluster::{self as clusters, Servers, Shape};
use crate::target::process::Process;
use crate::target::{Context, Place};
use cassandra::{self, CassandraNodes, Compiler, Paxos};

/// Java's heap of a node, in MiB.
const HEAP: u64 = 768;
/// Nodes of Kumiki that hold a replicated table.
const REPLICAS: usize = 3;
/// Options of a proxy that keeps locks in its memory.
const IN_MEMORY: [&str; 4] = ["--locks", "memory", "--data", "locks"];

/// Running processes. They end when this is dropped, the proxy before its nodes.
pub(super) struct Started {
    address: SocketAddr,
    _proxy: Option<Process>,
    _servers: Option<Servers>,
    _nodes: Option<CassandraNodes>,
    /// Removed when they have ended.
    _dir: tempfile::TempDir,
}

impl Started {
    /// Returns the address for requests of locks.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Starts a keeper of locks.
pub(super) fn start(keeper: Keeper, context: &Context<'_>) -> Result<Started, RunError> {
    match keeper {
        Keeper::Memory => proxy(context, Shape::partitions(1), &IN_MEMORY),
        Keeper::Durable => {
            let in_store = ["--locks", "durable", "--data", "locks"];
            proxy(context, Shape::partitions(1), &in_store)
        }
        Keeper::Replicated => {
            let file = ["--lock-cluster", "cluster.toml"];
            proxy(context, Shape::replicas(REPLICAS), &file)
        }
        Keeper::Cql => before_cassandra(context),
        Keeper::Lwt { nodes, paxos } => {
            let nodes = cassandra(context, nodes, paxos)?;
            Ok(Started {
                address: nodes.addresses()[0],
                _proxy: None,
                _servers: None,
                _nodes: Some(nodes),
                _dir: context.directory(Place::Disk)?,
            })
        }
    }
}

/// Returns a proxy before nodes of Kumiki, whose only work is to hold locks, if they do.
fn proxy(context: &Context<'_>, shape: Shape, locks: &[&str]) -> Result<Started, RunError> {
    let binary = clusters::program(context)?;
    let dir = context.directory(Place::Disk)?;
    let mut servers = Servers::new(binary, dir.path(), shape)?;
    servers.start()?;
    let before = ["--cluster", "cluster.toml"];
    let process = listening(binary, dir.path(), &[&before, locks].concat())?;
    Ok(Started {
        address: process.address(),
        _proxy: Some(process),
        _servers: Some(servers),
        _nodes: None,
        _dir: dir,
    })
}

/// Returns a proxy that answers lightweight transactions on the table of locks by itself.
fn before_cassandra(context: &Context<'_>) -> Result<Started, RunError> {
    let binary = clusters::program(context)?;
    let help = Command::new(binary).args(["proxy", "--help"]).output();
    let help =
        help.map_err(|error| RunError::failed("asking the proxy for its options")(&error))?;
    if !String::from_utf8_lossy(&help.stdout).contains("--lock-table") {
        let what = "this proxy has no option --lock-table";
        return Err(RunError::Skipped(what.to_owned()));
    }
    let nodes = cassandra(context, 1, Paxos::V1)?;
    let dir = context.directory(Place::Disk)?;
    let first = nodes.addresses()[0].to_string();
    let arguments = ["--cassandra", &first, "--lock-table", TABLE];
    let process = listening(binary, dir.path(), &[&arguments[..], &IN_MEMORY].concat())?;
    Ok(Started {
        address: process.address(),
        _proxy: Some(process),
        _servers: None,
        _nodes: Some(nodes),
        _dir: dir,
    })
}

fn listening(binary: &Path, dir: &Path, more: &[&str]) -> Result<Process, RunError> {
    let arguments = |at: SocketAddr, _| {
        let at = at.to_string();
        let own = ["proxy", "--listen", &at, "--network-threads", "1"];
        let all = own.iter().chain(more);
        Ok(all.map(|one| (*one).to_owned()).collect())
    };
    Process::start(binary, dir, "proxy", arguments)
}

/// Returns the nodes of Cassandra, with the table of locks.
fn cassandra(context: &Context<'_>, nodes: u8, paxos: Paxos) -> Result<CassandraNodes, RunError> {
    let installed = context.peers.cassandra()?;
    let options = cassandra::Options::new(installed, nodes).anywhere();
    let nodes = CassandraNodes::start(&cassandra::Options {
        heap_mib: HEAP,
        paxos,
        compiler: match context.scale.effort {
            Effort::Tiny => Compiler::Quick,
            Effort::Quick | Effort::Full => Compiler::Full,
        },
        ..options
    });
    let nodes = match nodes {
        Ok(nodes) => nodes,
        // A machine that is too small for so many nodes is no failure of the measured system.
        Err(error @ cassandra::Error::Memory { .. }) => {
            return Err(RunError::Skipped(error.to_string()));
        }
        Err(error) => return Err(RunError::failed("starting Cassandra")(&error)),
    };
    let made = Lwt::create_table(&nodes.addresses());
    made.map_err(|error| RunError::failed("making the table of locks")(&error))?;
    Ok(nodes)
}
