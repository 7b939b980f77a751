//! A cluster of processes of the real binary.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::cluster_file::{NodeAddresses, describe};
use testkit::process::Server;
use testkit::relay::{Passing, Relay};

use super::files::exchange;
use super::process::kumiki;

/// A running cluster. Its processes are killed when this is dropped.
pub(crate) struct Cluster {
    servers: Vec<Option<Server>>,
    addresses: Vec<NodeAddresses>,
    keeping: Keeping,
    /// Further arguments of each node.
    further: Vec<String>,
    /// The relays at the addresses that nodes know of each other, if there are any.
    relays: Vec<Relay>,
    /// The directory of the cluster's file, and of each node's data.
    dir: TempDir,
}

/// Where nodes keep their data.
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
    /// each node. With --tls-cert among them, the file has addresses for clients that speak TLS.
    pub(crate) fn start_with(
        count: usize,
        keeping: Keeping,
        top: &str,
        further: &[&str],
    ) -> Cluster {
        Cluster::begin(count, keeping, top, further, |_| ())
    }

    /// Starts so many nodes, with `top` at the top of the cluster's file. `prepare` gets the directory of
    /// each node's data before the node starts.
    pub(crate) fn start_prepared(count: usize, top: &str, prepare: impl FnMut(&Path)) -> Cluster {
        Cluster::begin(count, Keeping::Data, top, &[], prepare)
    }

    fn begin(
        count: usize,
        keeping: Keeping,
        top: &str,
        further: &[&str],
        mut prepare: impl FnMut(&Path),
    ) -> Cluster {
        let mut said = String::new();
        // Another process may take a port that was found free.
        for _ in 0..5 {
            let mut cluster = Cluster::prepare(count, keeping, top, further);
            for node in 0..count {
                prepare(&cluster.data(node));
            }
            match (0..count).try_for_each(|node| cluster.start_node(node)) {
                Ok(()) => return cluster,
                Err(text) => said = text,
            }
        }
        panic!("the cluster does not start: {said}");
    }

    /// As [`Cluster::start_with`]. All bytes between nodes pass a relay that changes them as `change` says.
    pub(crate) fn start_attacked<C>(
        count: usize,
        further: &[&str],
        change: impl Fn() -> C,
    ) -> Cluster
    where
        C: FnMut(Passing<'_>) + Send + 'static,
    {
        let mut cluster = Cluster::prepare(count, Keeping::Data, "", further);
        for node in 0..count {
            let relay = testkit::free_address().and_then(|listens| {
                let relay = Relay::start_at(cluster.addresses[node].fabric, listens, change());
                Ok((relay?, listens))
            });
            let (relay, listens) = relay.expect("a relay");
            cluster.relays.push(relay);
            cluster.start_node_at(node, Some(listens)).expect("a node");
        }
        cluster
    }

    /// Writes the cluster's file.
    fn prepare(count: usize, keeping: Keeping, top: &str, further: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut addresses = NodeAddresses::free(count, false);
        if further.contains(&"--tls-cert") {
            addresses = NodeAddresses::with_tls(addresses);
        }
        let text = format!("{top}\n{}", describe(&addresses, 1));
        std::fs::write(dir.path().join(FILE), text).expect("the cluster's file");
        Cluster {
            servers: (0..count).map(|_| None).collect(),
            addresses,
            keeping,
            further: further.iter().map(|arg| (*arg).to_owned()).collect(),
            relays: Vec::new(),
            dir,
        }
    }

    /// Starts a node; nodes are numbered from 0 here. If it does not start, returns its errors.
    pub(crate) fn start_node(&mut self, node: usize) -> Result<(), String> {
        self.start_node_at(node, None)
    }

    fn start_node_at(&mut self, node: usize, listens: Option<SocketAddr>) -> Result<(), String> {
        let dir = self.dir.path();
        let build = |_, _: &Path| {
            let mut command = kumiki();
            command.args(["serve", "--threads", "2"]);
            if let Some(listens) = listens {
                command.args(["--fabric-listen", &listens.to_string()]);
            }
            command.args(&self.further).arg("--cluster");
            command.arg(dir.join(FILE));
            command.args(["--node", &(node + 1).to_string()]);
            match self.keeping {
                Keeping::Nothing => command.arg("--ephemeral"),
                Keeping::Data => command.arg("--data").arg(self.data(node)),
            };
            command
        };
        let server = Server::insist_at(self.address(node), build)?;
        self.servers[node] = Some(server);
        Ok(())
    }

    fn data(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("node{node}"))
    }

    /// Exchanges the data of two nodes that do not run.
    pub(crate) fn exchange_data(&self, one: usize, other: usize) {
        exchange(&self.data(one), &self.data(other));
    }

    /// Changes the cluster's file.
    pub(crate) fn edit_file(&self, change: impl FnOnce(&str) -> String) {
        let text = std::fs::read_to_string(self.file()).expect("the cluster's file");
        std::fs::write(self.file(), change(&text)).expect("the cluster's file");
    }

    /// Sends a node a signal.
    pub(crate) fn signal_node(&self, node: usize, signal: Signal) {
        self.servers[node].as_ref().expect("it runs").signal(signal);
    }

    /// Returns the log of a node since it was started.
    pub(crate) fn log(&self, node: usize) -> String {
        self.servers[node].as_ref().expect("it runs").errors()
    }

    /// Returns the path of the cluster's file.
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

    /// Returns the number of a node's process.
    pub(crate) fn process(&self, node: usize) -> u32 {
        self.servers[node].as_ref().expect("it runs").process()
    }

    /// Pauses a node; see [`Server::pause`].
    pub(crate) fn pause_node(&self, node: usize) {
        self.servers[node].as_ref().expect("it runs").pause();
    }

    /// Lets it continue.
    pub(crate) fn resume_node(&self, node: usize) {
        self.servers[node].as_ref().expect("it runs").resume();
    }

    /// Returns the address for clients of a node.
    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.addresses[node].client
    }

    /// Returns the address for clients of a node that speak TLS.
    pub(crate) fn tls_address(&self, node: usize) -> SocketAddr {
        self.addresses[node].tls.expect("it speaks TLS")
    }

    /// Returns the addresses for nodes and Rust clients.
    pub(crate) fn fabrics(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.addresses.iter().map(|node| node.fabric)
    }
}

/// The name of the cluster's file.
const FILE: &str = "cluster.toml";
