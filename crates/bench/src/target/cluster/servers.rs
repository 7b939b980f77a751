//! Processes of the server, which form a cluster on this machine.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::NodeId;
use cluster::topology::{self, NodeInfo};

use crate::machine;
use crate::sample::RunError;

/// How long a server may take to listen.
const READY: Duration = Duration::from_secs(60);

/// The processes. They are killed when this goes.
pub(in crate::target) struct Servers {
    binary: PathBuf,
    dir: PathBuf,
    nodes: Vec<NodeInfo>,
    logged: bool,
    running: Vec<Child>,
}

impl Servers {
    /// Describes them in `dir`, where their logs go, too, each with a partition of its own; starts
    /// none.
    pub(super) fn new(
        binary: &Path,
        dir: &Path,
        count: usize,
        logged: bool,
    ) -> Result<Servers, RunError> {
        Servers::describe(binary, dir, count, 1, logged)
    }

    /// As [`Servers::new`], with one partition that all of them hold, on disk.
    pub(in crate::target) fn replicas(
        binary: &Path,
        dir: &Path,
        count: usize,
    ) -> Result<Servers, RunError> {
        Servers::describe(binary, dir, count, count, true)
    }

    fn describe(
        binary: &Path,
        dir: &Path,
        count: usize,
        replicas: usize,
        logged: bool,
    ) -> Result<Servers, RunError> {
        let nodes: Vec<NodeInfo> = (1..=count as u16)
            .map(|id| {
                Ok(NodeInfo {
                    id: NodeId(id),
                    client: free_address()?,
                    fabric: free_address()?,
                    replica: (replicas > 1).then(free_address).transpose()?,
                })
            })
            .collect::<std::io::Result<_>>()
            .map_err(|error| RunError::failed("looking for ports")(&error))?;
        std::fs::write(
            dir.join("cluster.toml"),
            topology::even(&nodes, replicas, None),
        )
        .map_err(|error| RunError::failed("describing the cluster")(&error))?;
        Ok(Servers {
            binary: binary.to_owned(),
            dir: dir.to_owned(),
            nodes,
            logged,
            running: Vec::new(),
        })
    }

    /// Where clients that are written in Rust find them.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.fabric)
    }

    /// Where clients that speak RESP find them.
    pub(in crate::target) fn clients(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.client)
    }

    /// Starts all of them, and waits until they listen.
    pub(in crate::target) fn start(&mut self) -> Result<(), RunError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / self.nodes.len()).max(1).to_string();
        for node in &self.nodes {
            let name = format!("node{}", node.id);
            let said = File::create(self.dir.join(format!("{name}.log")));
            let said = said.and_then(|file| Ok((file.try_clone()?, file)));
            let (out, err) = said.map_err(|error| RunError::failed("making a file")(&error))?;
            let mut command = Command::new(&self.binary);
            command.args(["serve", "--threads", &threads, "--node"]);
            command.arg(node.id.to_string());
            command.arg("--cluster").arg(self.dir.join("cluster.toml"));
            if self.logged {
                command.arg("--data").arg(self.dir.join(name));
            } else {
                command.arg("--ephemeral");
            }
            command.stdin(Stdio::null()).stdout(out).stderr(err);
            let child = command.spawn();
            self.running
                .push(child.map_err(|error| RunError::failed("starting a server")(&error))?);
        }
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<(), RunError> {
        let deadline = Instant::now() + READY;
        for (node, child) in self.nodes.iter().zip(&mut self.running) {
            while std::net::TcpStream::connect(node.fabric).is_err() {
                let ended = child.try_wait().ok().flatten();
                if ended.is_some() || Instant::now() > deadline {
                    let said = self.dir.join(format!("node{}.log", node.id));
                    let said = std::fs::read_to_string(said).unwrap_or_default();
                    let last = said.lines().last().unwrap_or("it said nothing");
                    let what = format!("node {} does not listen: {last}", node.id);
                    return Err(RunError::Failed(what));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    /// The last that each of them has said.
    pub(in crate::target) fn said(&self) -> String {
        let last = |node: &NodeInfo| {
            let said = self.dir.join(format!("node{}.log", node.id));
            let said = std::fs::read_to_string(said).unwrap_or_default();
            said.lines().last().map(str::to_owned)
        };
        let all: Vec<String> = self.nodes.iter().filter_map(last).collect();
        all.join("; ")
    }

    /// Processor time that they have used, in seconds.
    pub(in crate::target) fn cpu(&self) -> f64 {
        let used = self.running.iter().map(|child| machine::cpu_of(child.id()));
        used.sum()
    }

    /// Kills them, as a power failure would.
    pub(in crate::target) fn kill(&mut self) {
        for child in &mut self.running {
            // An error means that it has ended already, which `wait` tells.
            let _ = child.kill();
        }
        for mut child in self.running.drain(..) {
            let _ = child.wait();
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback address that nobody listens at. If someone else takes it before the server does, the
/// server says so.
pub(in crate::target) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
