//! A cluster of processes of the real binary.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::process::Server;

/// A running cluster. Its processes are killed when this is dropped.
pub(crate) struct Cluster {
    servers: Vec<Option<Server>>,
    /// Where clients of each node connect.
    addresses: Vec<SocketAddr>,
    /// Where nodes and Rust clients do.
    fabrics: Vec<SocketAddr>,
    keeping: Keeping,
    /// Further arguments of each node.
    further: Vec<String>,
    /// Where the cluster's file lies, and each node's data.
    dir: TempDir,
}

/// Whether nodes keep their data on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Nothing,
    Data,
}

impl Cluster {
    /// Starts so many nodes with equal shares of the slots.
    pub(crate) fn start(count: usize, keeping: Keeping) -> Cluster {
        Cluster::start_with(count, keeping, "", &[])
    }

    /// As [`Cluster::start`], with `top` at the top of the cluster's file and further arguments of
    /// each node.
    pub(crate) fn start_with(
        count: usize,
        keeping: Keeping,
        top: &str,
        further: &[&str],
    ) -> Cluster {
        let mut said = String::new();
        // Another process may take a port that was found free.
        for _ in 0..5 {
            let mut cluster = Cluster::prepare(count, keeping, top);
            cluster.further = further.iter().map(|arg| (*arg).to_owned()).collect();
            match (0..count).try_for_each(|node| cluster.start_node(node)) {
                Ok(()) => return cluster,
                Err(text) => said = text,
            }
        }
        panic!("the cluster does not start: {said}");
    }

    /// Writes the cluster's file.
    fn prepare(count: usize, keeping: Keeping, top: &str) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let addresses = loopback::free_addresses(2 * count).expect("free ports");
        let text = format!("{top}\n{}", describe(&addresses));
        std::fs::write(dir.path().join(FILE), text).expect("the cluster's file");
        Cluster {
            servers: (0..count).map(|_| None).collect(),
            fabrics: addresses.iter().skip(1).step_by(2).copied().collect(),
            addresses: addresses.into_iter().step_by(2).collect(),
            keeping,
            further: Vec::new(),
            dir,
        }
    }

    /// Starts a node, which are numbered from 0 here. If it does not start, what it said.
    pub(crate) fn start_node(&mut self, node: usize) -> Result<(), String> {
        let dir = self.dir.path();
        let build = |_, _: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki"));
            command.args(["serve", "--threads", "2"]);
            command.args(&self.further).arg("--cluster");
            command.arg(dir.join(FILE));
            command.args(["--node", &(node + 1).to_string()]);
            match self.keeping {
                Keeping::Nothing => command.arg("--ephemeral"),
                Keeping::Data => command.arg("--data").arg(dir.join(format!("node{node}"))),
            };
            command
        };
        let server = Server::insist_at(self.addresses[node], build)?;
        self.servers[node] = Some(server);
        Ok(())
    }

    /// Where the cluster's file is.
    pub(crate) fn file(&self) -> String {
        self.dir.path().join(FILE).display().to_string()
    }

    /// Kills a node as a crash would.
    pub(crate) fn kill_node(&mut self, node: usize) {
        self.servers[node].take().expect("it runs").kill();
    }

    /// Asks a node to stop.
    pub(crate) fn terminate_node(&mut self, node: usize) -> ExitStatus {
        self.servers[node].take().expect("it runs").terminate()
    }

    /// The number of a node's process.
    pub(crate) fn process(&self, node: usize) -> u32 {
        self.servers[node].as_ref().expect("it runs").process()
    }

    /// Has a node stand still; see [`Server::pause`].
    pub(crate) fn pause_node(&self, node: usize) {
        self.servers[node].as_ref().expect("it runs").pause();
    }

    /// Has it go on.
    pub(crate) fn resume_node(&self, node: usize) {
        self.servers[node].as_ref().expect("it runs").resume();
    }

    /// Where clients of a node connect.
    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.addresses[node]
    }

    /// Where nodes and Rust clients connect.
    pub(crate) fn fabrics(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.fabrics.iter().copied()
    }
}

/// The name of the cluster's file.
const FILE: &str = "cluster.toml";

/// The file of nodes with these addresses, a pair for each.
fn describe(addresses: &[SocketAddr]) -> String {
    let count = addresses.len() / 2;
    let mut text = String::new();
    for (at, pair) in addresses.chunks(2).enumerate() {
        let (id, [client, fabric]) = (at + 1, [pair[0], pair[1]]);
        let (first, last) = (at * 16_384 / count, (at + 1) * 16_384 / count - 1);
        write!(
            text,
            "[[node]]\nid = {id}\nclient = \"{client}\"\nfabric = \"{fabric}\"\n\
             [[partition]]\nid = {id}\nslots = [\"{first}-{last}\"]\nnodes = [{id}]\n"
        )
        .expect("a String takes any text");
    }
    text
}
